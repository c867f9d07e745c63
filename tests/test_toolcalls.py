"""Streamed calls: however the fragments are cut, the same calls; and never a half one taken for whole."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.wire.toolcalls import CallsBeingWritten, is_cut, is_object

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.text(max_size=4), JSON, min_size=1, max_size=3)
FRAGMENT = st.fixed_dictionaries(
    {},
    optional={
        "index": st.none() | st.integers(-1, 3) | st.text(max_size=2),
        "id": st.none() | st.sampled_from(["", "a", "b"]) | st.integers(0, 2),
        "function": JSON | st.fixed_dictionaries({}, optional={"name": JSON, "arguments": JSON | st.sampled_from(["{", "}", "{}"])}),
        "name": JSON,
        "extra_content": JSON,
    },
)  # fmt: skip


def pieces(text: str, cuts: list[int]) -> list[str]:
    marks = sorted({0, len(text), *(c % (len(text) + 1) for c in cuts)})
    return [text[a:b] for a, b in pairwise(marks)]


@given(st.lists(OBJECT, min_size=1, max_size=3), st.lists(st.integers(0, 500), max_size=6), st.booleans(), st.randoms())
@settings(max_examples=200, deadline=None)
def test_parallel_calls_cut_and_interleaved_come_out_whole(
    wanted: list[Any], cuts: list[int], named: bool, dice: Any
) -> None:
    """By index, each call's fragments in order, the calls mixed at will; the name perhaps in every fragment."""
    queues = []
    for at, args in enumerate(wanted):
        parts = pieces(json.dumps(args), cuts)
        first = {"index": at, "id": f"c{at}", "function": {"name": f"f{at}", "arguments": parts[0]}}
        rest = [{"index": at, "function": {"arguments": p, **({"name": f"f{at}"} if named else {})}} for p in parts[1:]]
        queues.append([first, *rest])
    writing = CallsBeingWritten()
    writing.add([queue.pop(0) for queue in queues])
    while any(queues):
        writing.add([dice.choice([q for q in queues if q]).pop(0)])
    found = [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in writing.finish()]
    assert found == [(f"c{at}", f"f{at}", args) for at, args in enumerate(wanted)]


@given(st.lists(st.lists(FRAGMENT | JSON, max_size=3) | FRAGMENT | JSON, max_size=6))
@settings(max_examples=300, deadline=None)
def test_any_fragments_give_calls_with_a_name_an_id_and_text(fragments: list[Any]) -> None:
    """Total, and what comes out can stand in a message."""
    writing = CallsBeingWritten()
    for fragment in fragments:
        writing.add(fragment)
    for call in writing.finish():
        assert call["id"] and call["function"]["name"] and isinstance(call["function"]["arguments"], str)


@given(OBJECT, st.integers(1, 500))
@settings(max_examples=300, deadline=None)
def test_the_beginning_of_an_object_is_known_as_cut(args: dict[str, Any], at: int) -> None:
    whole = json.dumps(args)
    part = whole[: 1 + at % (len(whole) - 1)]
    assert (is_cut(whole), is_object(whole)) == (False, True)
    assert is_cut(part) == (part != whole)
    assert is_object(part) == (part == whole)
