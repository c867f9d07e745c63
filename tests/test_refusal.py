"""What a refusal says, whatever its shape."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.wire.faults import KINDS, Answer, classify
from agent.wire.refusal import Reading, read_body

SHAPES: list[Any] = [
    {"error": {"message": "No"}}, {"error": "No"}, {"message": "No"}, {"detail": "No"}, {"errors": [{"message": "No"}]},
    [{"error": {"message": "No"}}], {"detail": [{"msg": "No"}]}, {"error_msg": "No"}, {"base_resp": {"status_msg": "No"}},
    {"error": {"message": json.dumps({"error": {"message": "No"}})}}, {"message": {"detail": [{"msg": "No"}]}},
    {"error": {"message": "Provider returned error", "metadata": {"raw": "No"}}}, "No", json.dumps("No"),
]  # fmt: skip


def test_the_sentence_is_found_in_every_shape() -> None:
    said = [read_body(s if isinstance(s, str) else json.dumps(s).encode()).said for s in SHAPES[:-1]]
    assert said == ["No"] * (len(SHAPES) - 1)


def test_what_quotes_the_request_is_left_out() -> None:
    """A refusal that repeats the prompt must not be judged by the prompt's words."""
    body = {"detail": [{"msg": "bad", "input": "context length exceeded"}], "failed_generation": "rate limit"}
    assert read_body(json.dumps(body).encode()).text == "bad"


def test_codes_numbers_and_names_are_sorted() -> None:
    body = {"error": {"code": "too_long", "type": "x", "n_ctx": 5, "param": "messages", "message": "No"}}
    reading = read_body(json.dumps(body).encode())
    assert (reading.codes, reading.typed["n_ctx"], reading.loc) == ("too_long x", 5, "messages")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["error", "message", "code", "loc", "x"]), inner)
    ),
    max_leaves=20,
)


@given(JSON | st.binary(max_size=100) | st.text(max_size=100))
@settings(max_examples=300, deadline=None)
def test_anything_gives_a_reading(body: Any) -> None:
    assert isinstance(read_body(body), Reading)


def test_reading_a_body_is_total() -> None:
    """Nested to absurdity, cyclic-looking, or empty: always a reading."""
    deep: Any = "x"
    for _ in range(300):
        deep = {"error": deep}
    for body in (deep, json.dumps(deep).encode(), b"", b"{", b'"text"', b"[1, 2]", None, 7, [], {"error": None}):
        assert isinstance(read_body(body).text, str)


def test_a_refusal_of_a_megabyte_is_read_at_once() -> None:
    """No rule may take time that grows with the square of what a server sends."""
    pieces = "x|image |http://|prompt is |limit 1 |max_tokens |model id |account suspended |limit|12345678"
    for piece in pieces.split("|"):
        said = {"error": {"message": (piece * 1_000_000)[:1_000_000]}}
        assert classify(Answer(400, {}, json.dumps(said).encode(), secrets=["0123456789"])).kind in KINDS
