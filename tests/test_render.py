"""What people see: the answer alone on stdout, one line per event on stderr, no control character let through."""

import os

import pytest

from agent.errors import AgentError
from agent.events import (
    Answered,
    Budget,
    Compacted,
    Compacting,
    Event,
    NotCompacted,
    Notice,
    SessionOpened,
    Streamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    Waiting,
)
from agent.lines import one_line, tool_line, visible
from agent.messages import Delta, Usage
from agent.render import Output, Text

OPENED = SessionOpened("20260101-000000-0123abcd", "s.jsonl", False, 1, "m", "/w", [], 8192, "table")
RECORD = {
    "type": "compaction", "reason": "threshold", "strategy": "window_plus_summary", "folded": [2, 6], "kept": 2,
    "tokens": {"before": 1105, "after_estimate": 420}, "checks": {"ok": True, "reasons": []}, "ms": 810,
}  # fmt: skip
TURN = TurnFinished(OPENED.id, 1, Usage(1130, 45, 896), Usage(1130, 45, 896), "stop", 1.0, "Hi", window=700)
A_RUN: list[Event] = [
    OPENED,
    Budget(120, 8192, "table", True, "m"),
    Streamed(Delta("reasoning", "hm")),
    Streamed(Delta("text", "Let me ")),
    Streamed(Delta("text", "look.")),
    Answered({"role": "assistant", "content": "Let me look."}, 3, Usage(1105, 9), "tool_calls", True, "m"),
    Budget(1105, 8192, "table", False, "m"),
    ToolStarted("c1", "bash", "ls -la"),
    ToolFinished("c1", "bash", True, 0.11, "exit status 0"),
    ToolStarted("c2", "bash", "rm -rf /"),
    ToolFinished("c2", "bash", False, 0.0, "Denied, nothing was run: a rule.\nGo on.", denied=True),
    Compacting("threshold", 7, 1105, 700),
    Compacted(RECORD, 7, 4, "0001"),
    NotCompacted("nothing", ""),
    NotCompacted("no_summary", "it was empty", Usage(5000, 60), 0.0125),
    NotCompacted("failed", "the disk is full"),
    Waiting(3.0, 2, 5, "rate limit"),
    Notice("warning", "x", "careful"),
    Streamed(Delta("text", "Hi")),
]


def show(events: list[Event], error: AgentError | None = None, **kind: bool) -> tuple[str, str]:
    """What `Text` writes to stdout and stderr when both are pipes."""
    kind = {"quiet": False, "verbose": False, "colour": False} | kind
    pipes = [os.pipe(), os.pipe()]
    screen = Text(Output(pipes[0][1]), Output(pipes[1][1]), resume="agent", **kind)
    for event in events:
        screen.emit(event)
    screen.finish(None if error else TURN, error, 0)
    texts = []
    for reader, writer in pipes:
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            texts.append(file.read().decode())
    return texts[0], texts[1]


def test_a_whole_run() -> None:
    out, err = show(A_RUN)
    assert out == "Let me look.\nHi\n"
    assert err.splitlines() == [
        "session: 20260101-000000-0123abcd (new)",
        "window: m → 8,192 tokens (table); context about 120/8,192 tokens, 1 %, estimated",
        "context: 1,105/8,192 tokens, 13 %, reported",
        "tool: bash ls -la",
        "tool: bash done in 0.1 s",
        "tool: bash rm -rf /",
        "tool: bash denied in 0.0 s: Denied, nothing was run: a rule.…",
        "compacting: over the window; 7 messages, 1,105 tokens of 700 ...",
        "compacted: 4 messages → 1 summary · 7 → 4 messages · 1,105 → about 420 tokens · 0.8 s"
        " · originals: s.archive/0001.jsonl",
        "nothing to compact",
        "no summary produced, history kept: it was empty · the attempt used 5,000 tokens in, 60 out, $0.0125",
        "compaction failed, history kept: the disk is full",
        "waiting 3.0 s before retry 2 of 5: rate limit",
        "warning: careful",
        "1 step · last input 1,130 tokens (896 cached), 45 out · finish_reason=stop"
        " · continue: agent -c 20260101-000000-0123abcd",
    ]


def test_quiet_is_the_answer_alone_and_what_was_denied() -> None:
    denied = "agent: bash denied in 0.0 s: Denied, nothing was run: a rule.…\n"
    assert show(A_RUN, quiet=True) == ("Let me look.\nHi\n", denied)


def test_quiet_still_says_what_makes_the_answer_less_than_was_asked_for() -> None:
    """The question or the answer was cut: a script would take it for whole."""
    events = [Notice("warning", "cut", "the answer was cut off by the token limit"), Notice("info", "adapted", "x")]
    cut = Notice("warning", "prompt_cut", "a window of 700 tokens has no room for the whole prompt")
    assert show([*events, cut], quiet=True)[1] == (
        "agent: the answer was cut off by the token limit\n"
        "agent: a window of 700 tokens has no room for the whole prompt\n"
    )


def test_quiet_still_says_what_failed() -> None:
    assert show([], AgentError("It broke", "Mend it"), quiet=True) == ("", "agent: It broke. Mend it\n")


def test_compaction_is_yellow_and_a_pipe_has_no_escape() -> None:
    assert "\x1b[33mcompacting: " in show(A_RUN, colour=True)[1]
    assert "\x1b" not in "".join(show(A_RUN))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a^[[31mb"),
        ("title\x1b]0;x\x07", "title^[]0;x^G"),
        ("tab\tline\n", "tab\tline\n"),
        ("cr\rover", "cr^Mover"),
        ("\x9b31m", "<U+009B>31m"),
        ("evil\u202egnp", "evil<U+202E>gnp"),
        ("half\ud83d", "half<U+D83D>"),
        ("中文 🙂 é", "中文 🙂 é"),
        ("\x7f\x00", "^?^@"),
    ],
)
def test_control_characters_are_made_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_pipe_gets_the_answer_as_it_was_written() -> None:
    """A terminal does not (`test_acceptance`): there what acts on it is written out."""
    written = "a\x1b]0;owned\x07\r\n\u200fb\f\n"
    assert show([Streamed(Delta("text", written))])[0] == written


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (ToolFinished("c", "bash", False, 0.1, "hi\ncurl: (7) no route\nexit status 7", False, {}),
         "tool: bash failed in 0.1 s: exit status 7: curl: (7) no route"),
        (ToolFinished("c", "bash", False, 0.1, "exit status 3", False, {}), "tool: bash failed in 0.1 s: exit status 3"),
        (ToolFinished("c", "bash", False, 1, "a\n[timed out after 1 s]", False, {"timed_out": True}),
         "tool: bash timed out in 1.0 s: [timed out after 1 s]"),
        (ToolFinished("c", "bash", False, 1, "a\n[stopped]", False, {"interrupted": True}),
         "tool: bash interrupted in 1.0 s: [stopped]"),
        (ToolFinished("c", "read_file", False, 0, "no such file", False, {}), "tool: read_file failed in 0.0 s: no such file"),
        (ToolFinished("c", "bash", True, 0.1, "x\nexit status 0", False, {}), "tool: bash done in 0.1 s"),
    ],
)  # fmt: skip
def test_a_tool_line_says_how_it_ended(event: ToolFinished, line: str) -> None:
    assert tool_line(event) == line


def test_verbose_shows_what_a_tool_gave() -> None:
    text = "".join(f"line {i}\n" for i in range(40)) + "exit status 0"
    _, told = show([ToolFinished("c", "bash", True, 0.1, text, False, {})], verbose=True)
    assert told.splitlines()[1:-1] == [
        *(f"  line {i}" for i in range(6)), "  ... 29 more lines", *(f"  line {i}" for i in range(35, 40)), "  exit status 0",
    ]  # fmt: skip


def test_one_line_cuts() -> None:
    assert one_line("first\nsecond") == "first…"
    assert one_line("x" * 200, 10) == "x" * 9 + "…"


def test_a_gone_reader_and_a_full_disk_do_not_raise() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    gone = Output(writer)
    gone.write(b"x")
    assert (gone.closed, gone.problem) == (True, None)
    with open("/dev/full", "wb", buffering=0) as file:
        full = Output(file.fileno())
        full.write(b"x")
    assert full.problem is not None
    os.close(writer)
