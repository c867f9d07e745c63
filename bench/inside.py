"""Parts of a turn inside one process: the log, the estimate, a compaction without a model, a tool round.

The log and the tools have measurements of their own (`bench/log.py`, `bench/tools.py`); what matters of them is here.
"""

from __future__ import annotations

import gc
import os
import re
import tempfile
import time
from collections.abc import Callable
from functools import partial

import orjson

from agent import tokens
from agent.compaction import Compactor
from agent.compaction.form import HEADINGS
from agent.log.disk import Disk
from agent.log.entries import replay
from agent.log.library import summaries
from agent.messages import Delta, Reply, Request, Sent, Usage, text_of
from agent.session import Session
from agent.wire import encode_messages, prepare_for_wire
from bench import log, tools
from bench.measuring import Figure, Row, figure, in_turns, milliseconds

PROSE = "The quick brown fox jumps over 13 lazy dogs; `os.path.join(a, b)` returns '/tmp/x'. 你好，世界。\n"


def compared(
    part: str,
    what: str,
    rounds: int,
    ours: Callable[[], object],
    floor: Callable[[], object],
    floor_is: str,
    most: float | None = None,
) -> Row:
    """Two actions in turn, in milliseconds."""
    found = in_turns(rounds, {"floor": milliseconds(floor), "ours": milliseconds(ours)})
    return Row(part, what, "ms", figure(found["ours"]), figure(found["floor"]), floor_is, most)


def disk(rounds: int) -> list[Row]:
    """What a turn costs the disk: prompt, answer with a call, its result, answer; and a rewrite."""
    words = "lorem ipsum dolor sit amet " * 34
    turn = [{"type": "message", "message": {"role": role, "content": words}} for role in ("user", "assistant") * 2]
    bare = Disk()
    with tempfile.TemporaryDirectory(prefix="bench-") as root, Session.create(root, log.META) as session:
        lines = [orjson.dumps(session.append(entry)) + b"\n" for entry in turn]
        fd = bare.create(os.path.join(root, "bare"))

        def write() -> None:
            for line in lines:
                os.write(fd, line)
                os.fsync(fd)

        def append() -> None:
            for entry in turn:
                session.append(entry)

        row = compared("disk", "the four appends of a turn", rounds, append, write, "bare write+fsync", 1.3)
        os.close(fd)
        found = log.bench_rewrite(root, 1000, max(3, rounds // 5))
    ours, floor = (Figure(*[found[f"{who} ms"]] * 3) for who in ("ours", "floor"))
    whole = Row("disk", "rewrite of 1,000 messages, old file archived", "ms", ours, floor, "write+fsync+rename", 4)
    return [row, whole]


def loading(rounds: int, megabytes: int) -> list[Row]:
    """Opening a large log, against parsing its lines and nothing else; and its peak memory against the file's size."""
    with tempfile.TemporaryDirectory(prefix="bench-") as root:
        path = log.write_log(root, "large", megabytes * 1000)
        size = os.path.getsize(path) / (1 << 20)
        parse, load = partial(log.parse_lines, path), partial(log.open_and_close, root, "large")
        rows = [compared("resume", f"open a log of {megabytes} MB", rounds, load, parse, "bare orjson pass", 1.5)]
        held = log.peak_memory("s = Session.open(sys.argv[1], 'large'); ", root) / size
        rows.append(Row("resume", "peak memory of that, to the file's size", "x", figure([held]), target=4))
        entries = [log.entry(n) for n in range(megabytes * 100)]
    view = replay(entries)
    bare = partial(orjson.dumps, view)
    whole = lambda: encode_messages(prepare_for_wire(replay(entries)))  # noqa: E731
    rows.append(
        compared("resume", f"replay, prepare, encode {len(view):,} messages", rounds, whole, bare, "bare orjson")
    )
    return rows


def counting(rounds: int, kilobytes: int) -> list[Row]:
    """The estimate that every turn takes, and a compaction that asks no model."""
    text = PROSE * (kilobytes * 1000 // len(PROSE.encode()))
    bare = partial(str.encode, text)
    row = compared(
        "size", f"estimate of {kilobytes:,} KB", rounds, partial(tokens.estimate, text), bare, "utf-8 encoding", 100
    )
    return [row, *compactions(min(rounds, 5), kilobytes), *compactions(2, 8 * kilobytes)[:1]]


def compactions(rounds: int, kilobytes: int) -> list[Row]:
    """A compaction against one pass of orjson over the same lines: what it adds to the time a model thinks (both right after
    such a wait: a processor that was idle is slow at first); without a model, of a session that is compacted for the first
    time; and, after that, of one to which a tenth was added."""
    thinking = 0.5 + kilobytes / 2000
    limits, outcomes = tokens.limits_for(kilobytes * 250, "flag"), []
    entries = [log.entry(n) for n in range(1, kilobytes * 11 // 10 + 1)]
    lines = [orjson.dumps(entry) for entry in entries[:kilobytes]]
    entries = [{key: value for key, value in entry.items() if key != "n"} for entry in entries]
    first, later = entries[:kilobytes], entries[kilobytes:]

    def compact(session: Session, strategy: str) -> float:
        """Milliseconds, without those in which the model thinks."""
        model = Thinking(thinking)
        compactor = Compactor(session, model, limits, (), lambda event: None)
        gc.collect()
        gc.freeze()  # as when a session is loaded
        start = time.perf_counter()
        done = compactor.now(strategy=strategy)
        taken = time.perf_counter() - start
        outcomes.append((done["outcome"], done.get("strategy") == strategy))
        return (taken - model.thought) * 1000

    def parse() -> tuple[float, float]:
        """Milliseconds of one pass after a wait, and of the next one."""
        time.sleep(thinking)
        passes = milliseconds(lambda: list(map(orjson.loads, lines)))
        return passes(), passes()

    def each() -> tuple[float, float, float]:
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as root,
            Session.create(root, log.META, disk=log.Unsynced()) as asked,
            Session.create(root, log.META, disk=log.Unsynced()) as session,
        ):
            said(asked, first)
            beside = compact(asked, "window_plus_summary")
            said(session, first)
            new = compact(session, "raw_fallback")
            said(session, later)
            return beside, new, compact(session, "raw_fallback")

    before = gc.get_threshold()
    gc.set_threshold(50_000)  # as `agent.cli.entry` does
    found = in_turns(rounds, {"parse": parse, "ours": each})
    gc.set_threshold(*before)
    gc.unfreeze()
    if set(outcomes) != {("compacted", True)}:
        raise SystemExit(f"the compaction did not compact as it should: {set(outcomes)}")
    waited, warm = (figure(list(times)) for times in zip(*found["parse"], strict=True))
    whats = (
        f"what a compaction of {kilobytes:,} messages adds to the time the model thinks",
        f"compaction of {kilobytes:,} messages without a model, the first",
        "the next one, a tenth as many messages later",
    )
    floors = ((waited, "one pass of orjson after such a wait", 5), *[(warm, "one pass of orjson", None)] * 2)
    return [
        Row("size", what, "ms", figure(list(taken)), *floor)
        for what, floor, taken in zip(whats, floors, zip(*found["ours"], strict=True), strict=True)
    ]


def said(session: Session, entries: list[dict[str, object]]) -> None:
    """Append messages, the last of them an answer whose usage was reported."""
    for entry in entries[:-1]:
        session.append(entry)
    usage = {"prompt_tokens": tokens.estimate_messages(session.view()), "completion_tokens": 200}
    session.append({**entries[-1], "usage": usage, "model": "m"})


class Thinking:
    """A model that takes so many seconds for a summary, which says how the newest messages begin."""

    name = "m"
    takes_tools = False
    structured = ""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.thought = seconds, 0.0
        """`thought`: the seconds in which there was no answer yet."""

    def complete(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        began = time.perf_counter()
        newest = re.findall(r"message \d+", "\n".join(map(text_of, request.messages)))[-60:]
        text = "\n".join(f"## {name}\n- {', '.join(newest)}" for name in HEADINGS[:2])
        text += "".join(f"\n## {name}\n- none" for name in HEADINGS[2:])
        request.meanwhile()
        time.sleep(max(0.0, self.seconds - (time.perf_counter() - began)))
        self.thought += self.seconds
        return Reply({"role": "assistant", "content": text}, "stop", Usage(1, 1), self.name, Sent("", 0))


def listing(rounds: int, sessions: int) -> list[Row]:
    """The newest 20 of many sessions, and the whole list."""
    with tempfile.TemporaryDirectory(prefix="bench-") as store:
        for number in range(sessions):
            log.write_log(store, f"20260101-000000-{number:08x}", 2, 200)
        walk, every = partial(log.bare_walk, store), lambda: sum(1 for _ in summaries(store, None))
        return [compared("list", f"{sessions:,} sessions", rounds, every, walk, "stat, sort, read each head", 5)]


def tool_round(rounds: int) -> list[Row]:
    """A bash call through the box against the bare subprocess; what confines it comes apart."""
    found = tools.measure(rounds)["milliseconds"]
    assert isinstance(found, dict)
    bare = Figure(*[found["bare subprocess"]] * 3)
    rows = []
    for name, value in found.items():
        if name.startswith("box"):
            what = "bash, not confined" if name == "box" else f"bash, confined by {name.removeprefix('box, ')}"
            limit = 3 if name == "box" else None
            rows.append(Row("tool round", what, "ms", Figure(*[value] * 3), bare, "bare subprocess", limit))
    return rows


def standing() -> list[Row]:
    """The system prompt and the schemas of all tools, as sent."""
    from agent.cli.equipment import SYSTEM_PROMPT
    from agent.tools import Permissions, ToolContext, build_toolbox
    from agent.tools.permissions import TOOL_NAMES

    box = build_toolbox(TOOL_NAMES, ToolContext("/w", ["/w"], lambda: ""), Permissions())
    size = len(orjson.dumps(box.schemas())) + len(SYSTEM_PROMPT.encode())
    return [Row("size", "standing prompt and all tool schemas", "KB", figure([size / 1000]), target=3)]
