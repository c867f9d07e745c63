"""The part of `bench.recall` that fits a test run: planted facts, real sessions, requests that stay valid."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from server import ScriptedServer, check_messages, text
from writers import Writer, reply, sections

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from agent.compaction import Compactor  # noqa: E402
from agent.errors import ContextOverflow, LimitError, TemporaryError  # noqa: E402
from agent.events import Compacted, Event  # noqa: E402
from agent.messages import Message, Request  # noqa: E402
from agent.session import Session  # noqa: E402
from agent.tokens import estimate_messages, limits_for  # noqa: E402
from agent.wire import Dialect, prepare_for_wire  # noqa: E402
from bench import cases, policies, recall  # noqa: E402

SHARED = ROOT.parent / "shared" / "data"
SESSIONS = sorted((SHARED / "sessions").glob("*.jsonl")) if SHARED.is_dir() else []


def test_every_case_is_valid_and_there_are_146_questions() -> None:
    """The full context answers everything, or the case would prove nothing."""
    made = list(cases.all_cases(1))
    assert [case.kind for case in made if not case.valid] == []
    assert sum(len(case.questions) for case in made) == 146


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("model", [policies.LOSSY, policies.HOSTILE[0]], ids=lambda model: model.name)
def test_planted_facts_survive_a_summariser_that_says_nothing(seed: int, model: policies.Summariser) -> None:
    """At least 140 of 146, each context at no more than 0.31 of the conversation by the estimate."""
    answered = 0
    for case in cases.all_cases(seed):
        context = policies.ours(case.messages, recall.window_for(case.messages), model)
        assert estimate_messages(context) <= recall.RATIO * estimate_messages(case.messages), case.kind
        answered += cases.score(context, case.questions)
    assert answered >= 140


def test_the_other_policies_lose_what_ours_keeps() -> None:
    """So that the scoreboard can tell: at the same window each of them answers less than half."""
    for name, policy in policies.OTHERS.items():
        answered = sum(
            cases.score(policy(case.messages, recall.window_for(case.messages), policies.LOSSY), case.questions)
            for case in cases.all_cases(1)
        )
        assert answered < 73, name


def test_probes_of_real_sessions() -> None:
    """Where they are at hand: a window of a quarter of the session, chained compactions, 35 % of the answers."""
    for folder in [SHARED] if SESSIONS else []:
        found = recall.on_real(str(folder / "sessions"), str(folder / "probes"), policies.LOSSY, only=("ours",))["ours"]
        answered, asked = sum(a for a, _, _ in found.values()), sum(q for _, q, _ in found.values())
        assert answered >= 0.35 * asked


def test_a_model_s_own_answers_are_scored() -> None:
    """One that reads out what it was shown is right where the context is; one that knows nothing is not."""
    (case,) = (case for case in cases.all_cases(1) if case.kind == "constraints")
    shown = "\n".join(str(message["content"]) for message in case.messages)

    def reading(request: dict[str, Any], index: int) -> Any:
        return text("\n".join(str(message["content"]) for message in request["messages"]))

    for script, right in ((reading, len(case.questions)), (lambda request, index: text("I do not know."), 0)):
        with ScriptedServer(script) as server:
            client = recall.client_of(server.url, "m")
            context: list[Message] = [{"role": "user", "content": shown}]
            assert recall.answers(client, context, case.questions) == right
            client.close()


def test_what_is_lost_is_listed_with_the_reason() -> None:
    (case,) = (case for case in cases.all_cases(1) if case.kind == "planted")
    assert list(recall.missing(case, case.messages)) == []
    everything = dict(recall.missing(case, []))
    assert len(everything) == len(case.questions)
    assert all(why.startswith("stated in message ") for why in everything.values())


# ---- valid requests, no dead ends ----


class Moody(Writer):
    """Every way a summary can fail, in the order of dice."""

    def __init__(self, seed: int) -> None:
        super().__init__(self._answer)
        self.dice = random.Random(seed)

    def _answer(self, request: Request) -> object:  # type: ignore[override]
        assert check_messages(prepare_for_wire(request.messages, Dialect())) is None
        return self.dice.choice(
            (
                lambda: reply(sections("value 12345 at src/a.py", "Go on with the work as it was going")),
                lambda: reply(""),
                lambda: reply(None, "tool_calls", calls=1),
                lambda: reply("cut", "length", truncated=True),
                lambda: _raise(TemporaryError("500")),
                lambda: _raise(ContextOverflow("too long")),
            )
        )()


def _raise(error: Exception) -> None:
    raise error


def live_through(messages: list[Message], window: int, seed: int) -> tuple[int, int]:
    """Replay a session turn by turn with overflows thrown in; (requests, compactions). Asserts what must always
    hold."""
    dice, events = random.Random(seed), list[Event]()
    requests = 0
    with Session.ephemeral({"model": "writer"}) as session:
        compactor = Compactor(session, Moody(seed), limits_for(window, "test"), (), events.append)
        for message in messages:
            if message.get("role") == "assistant" and session.entries:
                before = estimate_messages(session.view())
                if compactor.make_room():
                    assert estimate_messages(session.view()) < before
                elif dice.random() < 0.02:
                    _overflow(compactor, before)
                requests += 1
                fault = check_messages(prepare_for_wire(session.view(), Dialect()))
                assert fault is None, fault
            session.append({"type": "message", "message": message})
    return requests, sum(isinstance(event, Compacted) for event in events)


def _overflow(compactor: Compactor, size: int) -> None:
    try:
        compactor.after_overflow(ContextOverflow("too long"), 1)
    except LimitError:
        assert size < 1500, "a long context can always be made smaller"


@pytest.mark.parametrize("kind", range(len(cases.KINDS)))
def test_no_request_is_invalid_whatever_the_summariser_does(kind: int) -> None:
    """Every kind of conversation x windows of a half, a quarter and an eighth, compacted at whatever point it comes
    to."""
    messages = cases.KINDS[kind](random.Random(kind)).messages
    for part in (2, 4, 8):
        requests, compactions = live_through(messages, max(700, estimate_messages(messages) // part), part)
        assert requests >= 7 and compactions >= 1


def test_real_sessions_stay_valid() -> None:
    """The same with real sessions, where they are at hand (the longest ones in part)."""
    for path in SESSIONS:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        messages = [line["message"] for line in lines if line["type"] == "message"][:160]
        for part in (2, 4, 8):
            live_through(messages, max(700, estimate_messages(messages) // part), part)


GARBAGE_CONTENT = (
    None, "", 7, [], {"a": 1}, "\ud800 lone", "word " * 300, "数据" * 200, "\x00\x1b[31m", "x" * 6000, "{" * 200,
    [{"type": "text", "text": "port 8080"}], [{"type": "image_url", "image_url": {"url": "x" * 5000}}],
    '{"a": {"b": [1, 2, {"c": "d 123"}]}}',
)  # fmt: skip
GARBAGE_CALLS = (
    None, "x", {}, [None], ["junk"], [{"id": None}], [{"id": "c1", "function": None}],
    [{"id": "c1", "type": "function", "function": {"name": 5, "arguments": None}}],
    [{"id": "c2", "type": "function", "function": {"name": "bash", "arguments": '{"command": "' + "y" * 6000 + '"}'}}],
    [{"id": "c3", "type": "function", "function": {"name": "read", "arguments": '{"path": {"x": 1}}'}}],
)  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_garbage_in_a_session_is_no_obstacle(seed: int) -> None:
    """Messages of any shape a damaged or foreign file can hold: valid requests, smaller contexts, no exception."""
    dice, events = random.Random(seed), list[Event]()
    with Session.ephemeral({"model": "writer"}) as session:
        compactor = Compactor(session, Moody(seed), limits_for(dice.choice((900, 4000)), "test"), (), events.append)
        for _ in range(40):
            message: Message = {
                "role": dice.choice(("user", "assistant", "tool")),
                "content": dice.choice(GARBAGE_CONTENT),
            }
            if message["role"] == "assistant":
                message["tool_calls"] = dice.choice(GARBAGE_CALLS)
            if message["role"] == "tool":
                message["tool_call_id"] = dice.choice(("c1", "c2", "c3", None, 3))
            about = dice.choice((None, {"files": 7}, {"exit_code": "x"}, {"files": {"read": ["a"]}}))
            session.append({"type": "message", "message": message, "tool": about, "usage": dice.choice((None, 5, {}))})
            before = estimate_messages(session.view())
            if compactor.make_room():
                assert estimate_messages(session.view()) < before
            fault = check_messages(prepare_for_wire(session.view(), Dialect()))
            assert fault is None, fault
