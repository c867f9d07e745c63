"""Lines and replay: what an entry is, and what the model sees of a row of them."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import Entry, answer, call, result, user

from agent.log.entries import INTERRUPTED, decode, encode, fault_of, largest_request, number, parse, replay, scan

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(deadline=None)
@given(st.dictionaries(st.text(st.characters(codec=None)), JSON, max_size=5))
def test_what_is_encoded_is_one_line_and_parses_back(value: dict[str, Any]) -> None:
    """Any JSON value, lone surrogates included: one LF, at the end, and the same value."""
    line = encode(value)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert parse(line) == value


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"", b" ", b"{}", b'{"type":"x"}', b"\xef\xbb\xbf"])))
def test_scanning_never_loses_a_byte_or_raises(chunks: list[bytes]) -> None:
    """Any bytes: each line in its place, with an entry or a fault; what stands between them is blank."""
    data = b"\n".join(chunks)
    between, end = b"", 0
    for line in scan(io.BytesIO(data)):
        assert data[line.offset : line.offset + len(line.raw)] == line.raw
        assert (line.entry is None) == bool(line.fault)
        between += data[end : line.offset]
        end = line.offset + len(line.raw)
    assert not (between + data[end:]).strip(b" \t\r\n\xef\xbb\xbf")


@settings(deadline=None)
@given(st.lists(JSON, max_size=6))
def test_the_fast_reading_and_the_close_look_agree(values: list[Any]) -> None:
    """`decode` gives entries exactly when `scan` finds no fault, and then the same ones."""
    lines = [json.dumps(v).encode() + b"\n" for v in values] + [encode(user("sound", n=1))]
    close = list(scan(lines))
    fast = decode(lines)
    if fast is not None:
        assert fast == [line.entry for line in close]
    assert fast is None or not any(line.fault for line in close)


def test_numbers_by_place_and_by_what_came_before() -> None:
    """Without n: the place. After entries that have one: the next above the largest."""
    entries = [user("a"), user("b"), user("c", n=7), user("d"), user("e", n=3), user("f")]
    assert (number(entries), [e["n"] for e in entries]) == (9, [1, 2, 7, 8, 3, 9])
    between = [user("a", n=1), user("put in by hand"), user("b", n=2), user("c", n=3), user("d")]
    assert (number(between), [e["n"] for e in between]) == (5, [1, 4, 2, 3, 5])
    assert largest_request([{"type": "x", "request": {"k": 4}}, {"type": "x", "request": 9}], 2) == 4


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ([], "it is not a JSON object"),
        ({"type": 1}, "it has no type"),
        ({"type": "message", "message": {"role": None}}, "it is a message without a role"),
        ({"type": "x", "n": -1}, "its n is not a number"),
        ({"type": "anything", "n": 0, "x": None}, ""),
    ],
)
def test_what_is_no_entry(value: Any, fault: str) -> None:
    assert fault_of(value) == fault


def roles(entries: list[Entry]) -> list[str]:
    """A view in short: role, and for a result its id and whether it is real."""
    short = {"user": "u", "assistant": "a", "system": "s"}
    return [
        f"{m['tool_call_id']}{'?' if m['content'] == INTERRUPTED else ''}" if m["role"] == "tool" else short[m["role"]]
        for m in replay(entries)
    ]


def test_messages_come_in_file_order_and_are_not_copied() -> None:
    """Records and unknown entries are not messages."""
    entries = [user("q"), {"type": "note", "n": 2}, {"type": "compaction", "n": 3}, answer("a")]
    assert [m is e["message"] for m, e in zip(replay(entries), (entries[0], entries[3]), strict=True)] == [True, True]


def test_a_call_without_a_result_is_answered() -> None:
    """None, one and both of two parallel results missing; in the middle and at the end; real ones keep their place."""
    assert roles([user("q"), call("x", "y")]) == ["u", "a", "x?", "y?"]
    assert roles([user("q"), call("x", "y"), result("y"), user("go on")]) == ["u", "a", "y", "x?", "u"]
    assert roles([user("q"), call("x"), answer("then")]) == ["u", "a", "x?", "a"]
    assert roles([user("q"), call("x"), result("x"), call("y")]) == ["u", "a", "x", "a", "y?"]


def test_a_result_that_answers_nothing_is_left_out() -> None:
    """Before any call, of another message's call, or a second time."""
    assert roles([result("x"), user("q"), answer("a"), result("x")]) == ["u", "a"]
    assert roles([user("q"), call("x"), result("x"), result("x"), result("z")]) == ["u", "a", "x"]


def test_a_result_that_came_late_goes_to_its_call() -> None:
    """A prompt between a call and its result: the result first, as every server wants it."""
    assert roles([user("q"), call("x"), user("hurry"), result("x")]) == ["u", "a", "x", "u"]


def test_ids_may_repeat_over_a_life_and_within_one_message() -> None:
    """Pairing is by place: call_0 in every turn, and twice in one."""
    turns = [user("q"), call("0"), result("0"), user("q"), call("0"), user("q"), call("0", "0"), result("0")]
    assert roles(turns) == ["u", "a", "0", "u", "a", "0?", "u", "a", "0", "0?"]


def test_a_prompt_whose_turn_failed_is_not_replayed() -> None:
    """Left out when no answer came before the failure; kept when one did, or when nothing says it failed."""
    failed = {"type": "failed", "n": 9, "prompt": 1, "error": {"kind": "auth", "text": "no"}}
    assert roles([user("poison", n=1), failed, user("next", n=3)]) == ["u"]
    assert roles([user("q", n=1), answer("half", n=2), failed]) == ["u", "a"]
    assert roles([user("q", n=1), user("next", n=3), answer("a", n=4)]) == ["u", "u", "a"]
    assert roles([user("a", n=1), user("b", n=2), {**failed, "prompt": 2}, {**failed, "prompt": 77}]) == ["u"]


PIECES = st.lists(
    st.sampled_from(["u", "a", "call", "call2", "r0", "r1", "other"]).map(
        lambda kind: {
            "u": user("q"), "a": answer("a"), "call": call("0"), "call2": call("0", "1"), "r0": result("0"),
            "r1": result("1"), "other": {"type": "note"},
        }[kind]
    ),
    max_size=14,
)  # fmt: skip


@settings(deadline=None)
@given(PIECES)
def test_every_view_is_paired(entries: list[Entry]) -> None:
    """Whatever the order on disk: each call is answered exactly once, directly after its message; replay of a view is
    that view."""
    view = replay(entries)
    at = 0
    while at < len(view):
        calls = [c["id"] for c in view[at].get("tool_calls", [])]
        answers = [m["tool_call_id"] for m in view[at + 1 : at + 1 + len(calls)]]
        assert sorted(answers) == sorted(calls)
        assert view[at]["role"] != "tool"
        at += 1 + len(calls)
    assert replay([{"type": "message", "message": m} for m in view]) == view


@settings(deadline=None)
@given(PIECES, st.integers(0, 14))
def test_a_longer_log_keeps_the_beginning_of_its_view(entries: list[Entry], cut: int) -> None:
    """Up to the last answer that had to be made up, a view only grows: prompt caches stay warm."""
    short, whole = replay(entries[:cut]), replay(entries)
    settled = next((i for i, m in enumerate(short) if m.get("content") == INTERRUPTED), len(short))
    last_call = max((i for i, m in enumerate(short[:settled]) if m["role"] == "assistant"), default=0)
    assert whole[:last_call] == short[:last_call]
