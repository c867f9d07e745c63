"""What is changed after a refusal: once, only what was sent, and nothing for a refusal that names nothing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import APIError
from agent.wire import Dialect
from agent.wire.adapt import adapted

SENT = {"model": "m", "messages": [], "temperature": 0.2, "max_tokens": 9, "stream": True, "stream_options": {}}


def refusal(text: str, kind: str = "params", parameter: str | None = None) -> APIError:
    return APIError(text, kind=kind, status=400, parameter=parameter)


def test_a_parameter_that_was_not_sent_is_not_dropped() -> None:
    assert adapted(refusal("Unknown parameter: tool_choice", parameter="tool_choice"), Dialect(), SENT) is None


def test_a_parameter_is_dropped_once() -> None:
    error = refusal("Unknown parameter: temperature", parameter="temperature")
    first = adapted(error, Dialect(), SENT)
    assert first == (Dialect(drop=("temperature",)), "temperature is left out")
    assert adapted(error, first[0], SENT) is None


def test_the_model_the_messages_and_the_stream_stay() -> None:
    for name in ("model", "messages", "stream"):
        assert adapted(refusal(f"Unknown parameter: {name}", parameter=name), Dialect(), SENT) is None


def test_other_kinds_of_failure_change_nothing() -> None:
    for kind in ("auth", "billing", "rate_limit", "overloaded", "content_filter", "media"):
        assert adapted(refusal("roles must alternate; temperature", kind, "temperature"), Dialect(), SENT) is None


WORDS = ["roles", "must", "alternate", "system", "'system'", "developer", "reasoning_content", "missing", "not", "supported", "tools",
         "content", "null", "temperature", "tool", "call", "id", "length of 9", "does", "support", "unknown", "signature", "thought"]  # fmt: skip


@given(
    st.lists(st.sampled_from(WORDS), max_size=10), st.sampled_from(["params", "tool_history", "bad_request", "server"])
)
@settings(max_examples=300, deadline=None)
def test_changes_come_to_an_end(words: list[str], kind: str) -> None:
    """The same refusal over and over leads to a dialect that does not change any more, soon."""
    error, dialect, seen = refusal(" ".join(words), kind), Dialect(), set()
    for _ in range(12):
        found = adapted(error, dialect, SENT)
        if found is None or found[1] in seen:
            return
        dialect = found[0]
        seen.add(found[1])
    raise AssertionError(f"still changing: {seen}")
