"""What a run looks like to people. (`agent.jsonlines` is what it looks like to programs.)

stdout carries the answer and nothing else; everything for people goes to stderr. A renderer never decides anything and
never touches a session: if stdout breaks, the run goes on and saves. Control characters that a terminal would act on
are made visible, whoever wrote them.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, ClassVar

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

if TYPE_CHECKING:
    from agent.patience import Patience

# ---- text, pure ----

_ACTS_ON_TERMINAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN, _YELLOW, _RED, _DIM = "", "33", "31", "2"


def visible(text: str, *, keep_cr: bool = False) -> str:
    """`text` with every control character except newline and tab written out: ESC becomes `^[`, U+202E `<U+202E>`.

    `keep_cr` keeps carriage returns, for an answer that goes into a file or pipe.
    """

    if text.isprintable():  # the everyday fragment: no search
        return text

    def written(found: re.Match[str]) -> str:
        character = found.group()
        code = ord(character)
        if keep_cr and character == "\r":
            return character
        return f"^{chr(code ^ 64)}" if code < 32 or code == 127 else f"<U+{code:04X}>"

    return _ACTS_ON_TERMINAL.sub(written, text)


def number(count: int) -> str:
    return f"{count:,}"


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "?"


def one_line(text: str, width: int = 100) -> str:
    """The first line of `text`, made visible, cut at `width` characters with an ellipsis."""
    first, _, rest = text.strip().partition("\n")
    return visible(first[: width - 1] + "…" if len(first) >= width or rest else first)


def within(text: str, columns: int) -> str:
    """The beginning of one line that fits into so many columns of a terminal; wide characters take two."""
    import unicodedata

    shown, left = "", columns - 1
    for char in one_line(text, max(2, columns)):
        left -= 1 + (unicodedata.east_asian_width(char) in "WF")
        if left < 0:
            return shown[:-1] + "…"
        shown += char
    return shown


def budget_line(event: Budget) -> str:
    used = f"{number(event.used)}/{number(event.window)} tokens, {share(event.used, event.window)}"
    if event.estimated:
        window = f"{event.model} → {number(event.window)} tokens ({event.source})"
        return f"window: {window}; context about {used}, estimated"
    return f"context: {used}, reported"


def compacting_line(event: Compacting) -> str:
    reasons = {"threshold": "near the window", "overflow": "the server says it is too long", "manual": "asked for"}
    why = reasons.get(event.reason, event.reason)
    why = "over the window" if event.reason == "threshold" and event.tokens > event.window else why
    return f"compacting: {why}; {event.messages} messages, {number(event.tokens)} tokens of {number(event.window)} ..."


def compacted_line(event: Compacted) -> str:
    record = event.record
    tokens = record.get("tokens", {})
    folded = folded_messages(event)
    became = {
        "pruned": "old tool results replaced by stubs",
        "shortened": "overlong messages cut to their beginning and end",
        "window_plus_summary": f"{folded} messages → 1 summary",
        "raw_fallback": f"{folded} messages cut, no summary{why_no_summary(record)}",
    }.get(record.get("strategy", ""), str(record.get("strategy")))
    parts = [
        f"compacted: {became}",
        f"{event.messages_before} → {event.messages_after} messages",
        f"{number(tokens.get('before', 0))} → about {number(tokens.get('after_estimate', 0))} tokens",
        f"{record.get('ms', 0) / 1000:.1f} s",
    ]
    if event.cost is not None:
        parts.append(f"${event.cost:.4f}")
    return " · ".join([*parts, f"originals: {event.archive}"])


def archive_path(session_path: str, archive: str) -> str:
    """Where an archived generation lies, from the path of its session."""
    from agent.log.logfile import beside  # an installation may lack what that needs, and this is what says so

    return os.path.join(beside(session_path, "archive"), f"{archive}.jsonl")


def folded_messages(event: Compacted) -> int:
    """How many messages of the context one summary message replaced."""
    return max(0, event.messages_before - event.messages_after + 1)


def why_no_summary(record: dict[str, Any]) -> str:
    """The reasons of the checks, in words."""
    from agent.compaction.summary import REASONS

    reasons = record.get("checks", {}).get("reasons", [])
    return f" ({'; '.join(REASONS.get(reason, reason) for reason in reasons)})" if reasons else ""


def not_compacted_line(event: NotCompacted) -> str:
    return (
        {
            "nothing": "nothing to compact",
            "no_summary": "no summary produced, history kept",
            "failed": "compaction failed, history kept",
        }.get(event.why, event.why)
        + (f": {event.text}" if event.text else "")
        + cost_of_attempt(event)
    )


def cost_of_attempt(event: NotCompacted) -> str:
    """What asking in vain took."""
    if event.usage is None:
        return ""
    cost = "" if event.cost is None else f", ${event.cost:.4f}"
    return f" · the attempt used {number(event.usage.prompt)} tokens in, {number(event.usage.completion)} out{cost}"


def waiting_line(event: Waiting) -> str:
    return f"waiting {event.seconds:.1f} s before retry {event.attempt} of {event.attempts}: {event.reason}"


def last_line(event: TurnFinished) -> str:
    steps = f"{event.steps} step{'s' if event.steps != 1 else ''}"
    usage = event.usage
    if usage is None:
        tokens = "tokens not reported"
    else:
        cached = f" ({number(usage.cached)} cached)" if usage.cached is not None else ""
        tokens = f"last input {number(usage.prompt)} tokens{cached}, {number(event.total.completion)} out"
    cost = f" · ${event.cost:.4f}" if event.cost is not None else ""
    return f"{steps} · {tokens}{cost} · finish_reason={event.finish_reason}"


# ---- effects: the streams ----


class Output:
    """A file descriptor that is written at once and never raises.

    `closed` is True once the reader has gone (a pipe into `head`); `problem` holds any other error, such as a full
    disk: the run finishes saving and then exits 1.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.closed = False
        self.problem: OSError | None = None

    def write(self, data: bytes) -> None:
        while data and not self.closed and self.problem is None:
            try:
                data = data[os.write(self.fd, data) :]
            except BlockingIOError:
                self._wait()
            except BrokenPipeError:
                self.closed = True
            except OSError as problem:
                self.problem = problem

    def _wait(self) -> None:
        import select

        select.select([], [self.fd], [])

    def columns(self) -> int:
        """How wide the terminal is, 80 where nobody says."""
        try:
            return os.get_terminal_size(self.fd).columns or 80
        except OSError:
            return 80

    def is_terminal(self) -> bool:
        try:
            return os.isatty(self.fd)
        except OSError:
            return False


NEVER_QUIET = ("silent_stdin", "cut", "filtered", "empty_answer", "silent_truncation", "context_full", "prompt_cut")
"""Notices of what was left out of the question or of the answer: that is never a detail."""


class Text:
    """The answer on stdout as it streams; on stderr one line per thing that happened.

    `quiet` leaves errors, and what makes an answer less than was asked for (`NEVER_QUIET`); `verbose` adds what tools were
    asked and gave; `colour` colours stderr; `patient`: on a terminal a line tells how long a model has been waited for.
    """

    def __init__(
        self,
        out: Output,
        err: Output,
        *,
        quiet: bool,
        verbose: bool,
        colour: bool,
        resume: str = "agent",
        patient: bool = True,
    ) -> None:
        self.out, self.err = out, err
        self.quiet, self.verbose, self.colour = quiet, verbose, colour
        self.resume, self.patient = resume, patient
        self.to_terminal = out.is_terminal()
        self.err_terminal = err.is_terminal()
        self.mid_line = False
        self.waiting = False
        """The line that stands is to be overwritten: it says when the next try is."""
        self.path = self.model = self.awaited = ""
        self._patience: Patience | None = None

    def emit(self, event: Event) -> None:
        if type(event) is Streamed:  # said for every fragment
            kind, text = event.delta
            if kind == "text":
                self._answer(text)
            elif self._patience is not None:
                self._patience.what = within(f"{self.model} is thinking", self.err.columns() - 12)
            return
        handler = self._HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def finish(self, turn: TurnFinished | None, error: AgentError | None, code: int) -> None:
        """The last lines: the way on, or what went wrong."""
        self.awaits("")
        self._end_answer()
        if turn is not None and turn.steps and error is None:
            way_on = f" · continue: {self.resume} -c {turn.id}" if self.path else ""
            self.line(f"{last_line(turn)}{way_on}", _DIM)
        if error is not None:
            self.fail(error)

    def fail(self, error: AgentError) -> None:
        """One error line; shown with -q too."""
        self._end_answer()
        self._raw(f"agent: {error}", _RED)

    def line(self, text: str, colour: str = _PLAIN) -> None:
        if not self.quiet:
            self._end_answer()
            self._raw(text, colour)

    def _raw(self, text: str, colour: str) -> None:
        self._clear()
        text = visible(text)
        painted = f"\x1b[{colour}m{text}\x1b[0m" if self.colour and colour else text
        self.err.write(f"{painted}\n".encode())
        self.awaits(self.awaited)

    def awaits(self, what: str, after: float = 0.0) -> None:
        """What is waited for from now on, "" for nothing: said on a terminal when nothing else was shown for a while, `after`
        seconds more than usual."""
        if not after:
            self._clear()
        self.awaited = what
        if what and self.patient and self.colour and self.err_terminal and not self.quiet:
            from agent.patience import Patience

            self._patience = Patience(self.err.write, within(what, self.err.columns() - 12), after)

    def _clear(self) -> None:
        """Take away a line that does not stay."""
        if self._patience is not None:
            self._patience.end()
            self._patience = None
        if self.waiting:
            self.err.write(b"\r\x1b[K")
            self.waiting = False

    def _answer(self, text: str) -> None:
        if text:
            if self.awaited or self.waiting:
                self.awaits("")
            shown = text if text.isprintable() else visible(text, keep_cr=not self.to_terminal)
            self.out.write(shown.encode())
            self.mid_line = text[-1] != "\n"

    def _end_answer(self) -> None:
        if self.mid_line:
            self.out.write(b"\n")
            self.mid_line = False

    def _opened(self, event: SessionOpened) -> None:
        self.path = event.path
        count = f"{event.messages} message{'s' * (event.messages != 1)}"
        origin = f"fork of {event.parent}" if event.forked else "resumed"
        told = f"{event.id} ({origin}, {count})" if event.resumed else f"{event.id} (new)"
        self.line(f"session: {told if event.path else 'not kept'}", _DIM)

    def _budget(self, event: Budget) -> None:
        self.line(budget_line(event), _DIM)
        self.model = event.model
        if event.estimated:
            self._await_model()

    def _answered(self, event: Answered) -> None:
        self.awaits("")
        self._end_answer()

    def _tool_started(self, event: ToolStarted) -> None:
        self.awaits("")
        self.line(f"tool: {event.name} {one_line(event.summary)}")

    def _tool_finished(self, event: ToolFinished) -> None:
        state = "denied" if event.denied else "done" if event.ok else "failed"
        why = event.detail.get("refusal") or event.text
        told = f": {one_line(why, 300 if event.denied else 100)}" if self.verbose or not event.ok else ""
        self.line(f"tool: {event.name} {state} in {event.seconds:.1f} s{told}", _PLAIN if event.ok else _YELLOW)
        self._await_model()

    def _await_model(self) -> None:
        self.awaits(f"waiting for {self.model}" if self.model else "")

    def _compacting(self, event: Compacting) -> None:
        self.line(compacting_line(event), _YELLOW)
        self.awaits("waiting for a summary")

    def _compacted(self, event: Compacted) -> None:
        archive = archive_path(self.path, event.archive) if self.path else "not kept (--no-session)"
        self.line(compacted_line(event._replace(archive=archive)), _YELLOW)
        self._await_model()

    def _not_compacted(self, event: NotCompacted) -> None:
        self.line(not_compacted_line(event), _YELLOW)
        self._await_model()

    def _waiting(self, event: Waiting) -> None:
        text = waiting_line(event)
        if self.colour and self.err_terminal and not self.quiet:
            self._clear()
            self._end_answer()
            self.err.write(f"\r\x1b[K{within(text, self.err.columns())}".encode())
            self.waiting = True
            self.awaits(f"waiting for {self.model}", event.seconds)
        else:
            self.line(text, _YELLOW)

    def _notice(self, event: Notice) -> None:
        if event.code in NEVER_QUIET and self.quiet:
            self._raw(f"agent: {event.text}", _YELLOW)
        self.line(f"{event.level}: {event.text}", _YELLOW if event.level == "warning" else _DIM)

    _HANDLERS: ClassVar[dict[type, Any]] = {
        SessionOpened: _opened,
        Budget: _budget,
        Answered: _answered,
        ToolStarted: _tool_started,
        ToolFinished: _tool_finished,
        Compacting: _compacting,
        Compacted: _compacted,
        NotCompacted: _not_compacted,
        Waiting: _waiting,
        Notice: _notice,
    }
