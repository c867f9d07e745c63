"""Streamed calls: however the fragments are cut, the same calls; and never a half one taken for whole."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
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


FIRST: dict[str, Any] = {"index": 0, "id": "a", "function": {"name": "f"}}
REPEATS: list[tuple[str, dict[str, Any]]] = [
    ("at its index", {"index": 0}),
    ("with its name", {"index": 0, "function": {"name": "f"}}),
    ("as it began", FIRST),
    ("by its id alone", {"id": "a"}),
    ("by its id and name", {"id": "a", "function": {"name": "f"}}),
    ("at another index", {**FIRST, "index": 1}),
    ("with nothing but its name", {"function": {"name": "f"}}),
    ("with nothing at all", {}),
]


def stated(like: dict[str, Any], arguments: Any) -> dict[str, Any]:
    return {**like, "function": {**like.get("function", {}), "arguments": arguments}}


def written(*fragments: Any) -> list[tuple[str, str]]:
    """Names and arguments of the calls that come out of these fragments, one delta each."""
    writing = CallsBeingWritten()
    for fragment in fragments:
        writing.add([fragment])
    return [(c["function"]["name"], c["function"]["arguments"]) for c in writing.finish()]


@pytest.mark.parametrize("how, like", REPEATS, ids=[how for how, _ in REPEATS])
@given(OBJECT, st.lists(st.integers(0, 500), max_size=4), st.integers(1, 3), st.booleans())
@settings(max_examples=40, deadline=None)
def test_arguments_stated_again_are_one_call(
    how: str, like: dict[str, Any], args: dict[str, Any], cuts: list[int], times: int, grown: bool
) -> None:
    """After the pieces, or after more and more of the text: written in other marks and another order, or as an object."""
    text = json.dumps(args)
    cut = pieces(text, cuts)
    parts = [text[: len(text) - sum(map(len, cut[n + 1 :]))] for n in range(len(cut))] if grown else cut
    again = [json.dumps(args, indent=1, ensure_ascii=False), json.dumps(dict(reversed(args.items()))), args][:times]
    given = [stated(FIRST, ""), *(stated({"index": 0}, part) for part in parts), *(stated(like, a) for a in again)]
    assert [(name, json.loads(a)) for name, a in written(*given)] == [("f", args)]


AT_ONE_INDEX: list[tuple[str, list[str], list[str]]] = [
    ("twice in one text", ['{"x":1}{"x":1}'], ['{"x":1}']),
    ("three times, in other words", ['{"x":1,"y":"\u00e9"} {"y":"é","x":1}\n{"x":1.0,"y":"é"}'], ['{"x":1,"y":"\u00e9"}']),
    ("with raw line ends", ['{"x":"a\nb"}{"x":"a\nb"}'], ['{"x":"a\nb"}']),
    ("encoded twice and repeated", ['"{\\"x\\":1}"', '"{\\"x\\":1}"'], ['{"x":1}']),
    ("both in pieces", ['{"x"', ":1}", '{"x"', ":1}"], ['{"x":1}']),
    ("nothing, twice", ["{}", "{}"], ["{}"]),
    ("after an empty object", ["{}", '{"x"', ":1}", '{"x": 1}'], ['{"x":1}']),
    ("two calls, all repeated", ['{"x":1}{"x":2}{"x":1}{"x":2}'], ['{"x":1}', '{"x":2}']),
    ("pieces that are objects inside a text", ['{"x":"', "{}", "{}", '"}'], ['{"x":"{}{}"}']),
    ("pieces that are objects inside a list", ['{"x":[', "{}", ",{},", "{}", "]}"], ['{"x":[{},{},{}]}']),
    ("different objects", ['{"x":1}', '{"x":true}', '{"x":"1"}', '{"x":[1]}'], ['{"x":1}', '{"x":true}', '{"x":"1"}', '{"x":[1]}']),
]  # fmt: skip


@pytest.mark.parametrize("parts, calls", [row[1:] for row in AT_ONE_INDEX], ids=[row[0] for row in AT_ONE_INDEX])
def test_objects_one_after_another_at_one_index(parts: list[str], calls: list[str]) -> None:
    """The same one is one call however often it stands there; different ones are several."""
    assert written(stated(FIRST, ""), *(stated({"index": 0}, part) for part in parts)) == [("f", c) for c in calls]


def test_the_call_after_a_repeated_one_keeps_its_arguments() -> None:
    other = {"index": 0, "function": {"name": "g", "arguments": '{"y":2}'}}
    repeats = [['{"x":1}', '{"x": 1}'], ['{"x":1}{"x":1}'], ['{"x"', ":1}", '{"x"', ":1}"]]
    for parts in repeats:
        found = written(stated(FIRST, ""), *(stated({"index": 0}, part) for part in parts), other)
        assert found == [("f", '{"x":1}'), ("g", '{"y":2}')]


LISTED = [("f", {"x": 1}), ("g", {"y": 2}), ("f", {"x": 2})]


@pytest.mark.parametrize("keys", [("index", "id"), ("index",), ("id",), ()])
def test_a_last_delta_that_lists_all_calls_again_adds_none(keys: tuple[str, ...]) -> None:
    """Whichever of index and id it states."""
    whole = [
        {"index": at, "id": f"c{at}", "function": {"name": name, "arguments": json.dumps(args)}}
        for at, (name, args) in enumerate(LISTED)
    ]
    again = [{key: call[key] for key in (*keys, "function")} for call in whole]
    writing = CallsBeingWritten()
    for delta in (whole, again):
        writing.add(delta)
    found = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in writing.finish()]
    assert found == LISTED


def test_calls_that_are_alike_but_have_ids_of_their_own_are_several() -> None:
    assert written(stated(FIRST, "{}"), stated({**FIRST, "id": "b"}, "{}")) == [("f", "{}"), ("f", "{}")]


def test_calls_that_are_alike_in_one_list_are_several() -> None:
    writing = CallsBeingWritten()
    writing.add([{"name": "f", "input": {"x": 1}}] * 2)
    assert [c["function"]["arguments"] for c in writing.finish()] == ['{"x":1}', '{"x":1}']


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
