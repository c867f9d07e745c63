"""Whole turns over a line that cuts, splits, delays, repeats and garbles: a seeded schedule for each.

CI takes some; AGENT_TEST_CHAOS=2000 takes that many. Every schedule must end (a limit far above what is needed), with
an exit code of the table, a whole session that a strict server takes, and no tool run for a call that did not come
whole.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from server import ScriptedServer, Wire, calls, check_messages, text
from wiring import asking

from agent.errors import AgentError, Exit
from agent.gate import Gate
from agent.loop import Turn
from agent.session import Session
from agent.tokens import limits_for
from agent.tools import Permissions, Toolbox, ToolContext, ToolResult
from agent.wire import prepare_for_wire

SCHEDULES = int(os.environ.get("AGENT_TEST_CHAOS", "120"))
BATCH = 20
WRITTEN = 'the whole text, with "quotes", 中文 and a \\ backslash; 0123456789'
ANSWER = "Done — 完成了。\n\nThat is all."


@dataclass
class Pen:
    """A tool that only remembers what it was run with."""

    name: str = "pen"
    schema: dict[str, Any] = field(default_factory=lambda: {
        "type": "function", "function": {"name": "pen", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}},
    })  # fmt: skip
    written: list[dict[str, Any]] = field(default_factory=list)

    def run(self, args: dict[str, Any], context: ToolContext) -> ToolResult:
        self.written.append(args)
        return ToolResult("written", True, False, {})


class Line:
    """A bad line: `mangle` is one schedule's treatment of one answer. `faithful` until a byte was changed or
    repeated."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.faithful = True

    def mangle(self, wire: Wire) -> Wire:
        data = b"".join(c for c in wire.chunks if isinstance(c, bytes))
        ending, dice = "end", self.random
        treatment = dice.choice(["none", "cut", "cut", "garble", "repeat", "hang", "events"])
        if treatment in ("cut", "hang"):
            data, ending = data[: dice.randrange(len(data) + 1)], treatment
        elif treatment == "garble":
            self.faithful = False
            at = dice.randrange(len(data))
            data = data[:at] + bytes([dice.randrange(256) for _ in range(dice.choice([1, 1, 3, 40]))]) + data[at + 1 :]
        elif treatment == "repeat":
            self.faithful = False
            at = dice.randrange(len(data))
            data = data[:at] + data[at : at + dice.randrange(200)] * 2 + data[at:]
        elif treatment == "events":  # whole events lost
            self.faithful = False
            data = b"".join(e + b"\n\n" for e in data.split(b"\n\n") if e and dice.random() > 0.2)
        return Wire(wire.status, wire.headers, [*self.split(data)], ending)

    def split(self, data: bytes) -> list[bytes]:
        size = self.random.choice([1, 2, 7, 50, 5000])
        if size < 7 and len(data) > 1500:
            size = 7
        return [data[at : at + size] for at in range(0, len(data), size)]


def reply(request: dict[str, Any]) -> Any:
    """A call at first, and the answer once its result is there."""
    if any(m["role"] == "tool" for m in request["messages"]):
        return text(ANSWER, reasoning="thinking", pieces=5)
    return calls([("pen", {"text": WRITTEN})], text="I will write.")


def run_schedule(seed: int, place: Path) -> tuple[int, bool, Pen]:
    """One turn over one line: the exit code, whether the line was faithful, and the tool."""
    line, pen = Line(seed), Pen()

    def script(request: dict[str, Any], index: int) -> Any:
        return lambda request, tokens: line.mangle(reply(request)(request, tokens))

    code = 0
    with ScriptedServer(script) as server, Session.create(str(place), {"cwd": "/", "model": "scripted"}) as session:
        asked = asking(server, first_byte_timeout=0.1, stall_timeout=0.1)
        box = Toolbox([pen], ToolContext("/", ["/"], session.files_dir), Permissions(yolo=True))
        compactor = Gate(session, asked.client, limits_for(100_000, "flag"), box.schemas(), asked.events.append)
        turn = Turn(session, asked.client, box, compactor, asked.events.append, max_steps=4)
        try:
            turn.run("write it down")
            done = turn.compact_after()
        except AgentError as error:
            code = int(error.exit_code)
        else:
            assert not line.faithful or done.answer == ANSWER
        name = session.id
    assert server.violations == []
    with Session.open(str(place), name) as again:
        assert again.notices == []
        assert check_messages([*prepare_for_wire(again.view()), {"role": "user", "content": "go on"}]) is None
    return code, line.faithful, pen


@pytest.mark.parametrize("batch", range(-(-SCHEDULES // BATCH)))
def test_no_schedule_hangs_crashes_or_runs_half_a_call(batch: int, tmp_path: Path) -> None:
    codes = set()
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        code, faithful, pen = run_schedule(seed, tmp_path)
        codes.add(code)
        assert code in set(Exit), seed
        for args in pen.written:
            assert not faithful or args == {"text": WRITTEN}, seed
            assert json.dumps(args), seed
        assert len(pen.written) <= 4, seed
    assert codes <= {Exit.DONE, Exit.FAILED, Exit.LIMIT, Exit.TEMPORARY}
