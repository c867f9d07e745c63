"""Windows hardly larger than their fixed parts: every turn still ends with an answer, and nothing is sent in vain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from writers import READ, Writer, sections

from agent.errors import ContextOverflow, LimitError
from agent.events import Compacted, Event
from agent.gate import Gate
from agent.loop import Turn
from agent.messages import Reply, Request, Sent, Usage
from agent.session import Session
from agent.tokens import count, estimate_messages, limits_for
from agent.tools import Permissions, Toolbox, ToolContext, ToolResult

SYSTEM = "You are careful. Read a file before you change it, and say plainly what failed. " * 5
LAW = (
    "Every clause of the agreement shall be read together with its annexes, and none of them may be waived by silence. "
)


@dataclass
class Reader:
    """A tool whose results are as long as it is told."""

    result: str = "fine"
    name: str = "read_file"
    schema: dict[str, Any] = field(default_factory=lambda: READ)

    def run(self, args: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(self.result, True, False, {})


@dataclass
class Life:
    """A session whose server counts exactly, refuses what is over its window and reports what it took or not."""

    window: int
    reports: bool = True
    knows: bool = True
    sizes: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    reader: Reader = field(default_factory=Reader)
    steps: int = 0

    def __post_init__(self) -> None:
        self.session = Session.ephemeral({"model": "writer"})
        self.session.append({"type": "message", "message": {"role": "system", "content": SYSTEM}})
        self.limits = limits_for(self.window if self.knows else 100_000, "flag")

    def complete(self, request: Request) -> Reply:
        size = estimate_messages(request.messages, request.tools, count)
        if size > self.window:
            self.refused.append(size)
            raise ContextOverflow("too long", have=size, limit=self.window)
        self.sizes.append(size)
        usage = Usage(size, 30) if self.reports else None
        if request.purpose == "summary":
            return Reply({"role": "assistant", "content": sections()}, "stop", usage, "writer", Sent(b"", 0))
        message: dict[str, Any] = {"role": "assistant", "content": "Well, one could say this or that about it."}
        if self.steps:
            self.steps -= 1
            function = {"name": "read_file", "arguments": "{}"}
            message["tool_calls"] = [{"id": f"c{len(self.sizes)}", "type": "function", "function": function}]
        return Reply(message, "stop", usage, "writer", Sent(b"", 0))

    def turn(self, prompt: str, steps: int = 0) -> str:
        """One turn, as a process of its own would take it."""
        self.steps = steps
        model = Writer(self.complete)
        context = ToolContext(cwd="/", roots=["/"], files_dir=lambda: "/", session_id="s", result_cap=10_000)
        box = Toolbox([self.reader], context, Permissions())
        gate = Gate(self.session, model, self.limits, box.schemas(), self.events.append)
        turn = Turn(self.session, model, box, gate, self.events.append)
        turn.run(prompt)
        finished = turn.compact_after()
        self.limits = gate.limits
        return finished.answer


FIXED = estimate_messages([{"role": "system", "content": SYSTEM}], [READ], count)

prompts = st.builds(
    lambda text, times: (text * times)[:8000],
    st.one_of(
        st.sampled_from(["Go on. ", LAW, "数据库的端口是 8080。", "x = {a: [1, 2]}; ", "🙂 é ", "0f3a9c"]),
        st.text(min_size=1, max_size=60).filter(str.strip),
    ),
    st.integers(1, 60),
)


@settings(deadline=None, max_examples=60)
@given(st.integers(60, 1500), st.lists(prompts, min_size=1, max_size=8), st.booleans())
@example(60, [LAW] * 8, True)
@example(92, ["hello"] + [LAW * 3] * 6, True)
@example(132, ["hello"] + [LAW * 3] * 6, False)
def test_every_turn_ends_with_an_answer(free: int, said: list[str], reports: bool) -> None:
    """From 60 tokens above the fixed parts on, whatever was said before and whether or not usage is reported; the
    where a script costs more than estimated, a request may be refused, but no turn is."""
    life = Life(FIXED + free, reports)
    for prompt in said:
        assert life.turn(prompt)
    assert len(life.refused) <= len(said)


def test_what_was_wrongly_learnt_of_a_tokenizer_does_not_end_a_session() -> None:
    """A refusal taught a ratio by which nothing would fit; what fits by the count is sent, and the answer tells."""
    life = Life(FIXED + 70, reports=False, knows=False)
    for said in ("x = {a: [1, 2]}; " * 30, "x = {a: [1, 2]}; " * 18, "hi", "hello there", "what now?"):
        assert life.turn(said)


@pytest.mark.parametrize("free", [60, 70, 85, 92, 100, 132, 172, 250, 400])
@pytest.mark.parametrize("reports", [True, False])
def test_nothing_is_sent_that_is_known_to_be_too_large(free: int, reports: bool) -> None:
    """In plain words an estimate is good enough: in a dozen turns the server refuses nothing."""
    life = Life(FIXED + free, reports)
    for turn in range(12):
        assert life.turn(f"Turn {turn}. {LAW * 3}" if turn else "hello")
    assert life.refused == []


@settings(deadline=None, max_examples=25)
@given(st.integers(60, 1500), st.lists(prompts, min_size=1, max_size=5))
def test_a_window_nobody_knew_is_learnt_and_then_kept(free: int, said: list[str]) -> None:
    """The server states its window when it refuses: no turn is lost for it."""
    life = Life(FIXED + free, knows=False)
    for prompt in said:
        assert life.turn(prompt)
    assert len(life.refused) <= 1 + len(said)


@settings(deadline=None, max_examples=25)
@given(st.integers(250, 1500), st.lists(st.tuples(prompts, prompts, st.integers(0, 4)), min_size=1, max_size=4))
def test_steps_in_small_windows_end_too(free: int, said: list[tuple[str, str, int]]) -> None:
    """Calls stay with their results, which are cut to what fits."""
    life = Life(FIXED + free)
    for prompt, result, steps in said:
        life.reader.result = result
        assert life.turn(prompt, steps)
    assert len(life.refused) <= sum(1 + steps for _, _, steps in said)


def test_less_than_a_prompt_is_one_clear_error_and_nothing_is_sent() -> None:
    life = Life(FIXED + 8)
    try:
        life.turn(LAW * 10)
    except LimitError as error:
        assert "shortest form" in error.text and str(life.window) in error.text
    assert (life.sizes, life.refused) == ([], [])


def test_what_was_shortened_says_so_and_a_record_never_shows_growth() -> None:
    life = Life(FIXED + 92)
    for turn in range(6):
        life.turn(f"Turn {turn}. {LAW * 3}")
    records = [e.record for e in life.events if isinstance(e, Compacted)]
    assert records
    assert [r for r in records if r["tokens"]["after_estimate"] > r["tokens"]["before"]] == []
    assert "left out" in life.session.view()[-2]["content"]
