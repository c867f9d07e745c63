"""prepare_for_wire: what any list of messages becomes, and what stays as it was."""

from __future__ import annotations

import copy
import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server import check_alternation, check_messages

from agent.wire import UNKNOWN_OUTCOME, Dialect, arguments_object, clean, digest, encode_messages, prepare_for_wire

TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=12) | st.sampled_from(
    ["", " ", "\ud83d", "a\udc00"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
IDS = st.sampled_from(["a", "b", "call_1", "", "x" * 64, "not ok!", "\ud800"]) | JSON
ARGUMENTS = JSON | st.sampled_from(
    ["{}", '{"a": 1}', "", "null", "[]", '"x"', '"{}"', '{"a": "\\ud83d"}', '{"a": ', "NaN"]
)
CALL = st.fixed_dictionaries(
    {}, optional={"id": IDS, "type": JSON, "index": JSON, "extra_content": JSON,
                  "function": st.fixed_dictionaries({}, optional={"name": TEXT | JSON, "arguments": ARGUMENTS}) | JSON},
)  # fmt: skip
PARTS = st.lists(st.fixed_dictionaries({}, optional={"type": st.sampled_from(["text", "image_url", 3]), "text": TEXT | JSON,
                                                     "image_url": st.just({"url": "data:x"}) | JSON}) | JSON, max_size=3)  # fmt: skip
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "assistant", "tool", "tool", "function"]) | JSON},
    optional={"content": TEXT | PARTS | JSON, "tool_calls": st.lists(CALL, max_size=3) | JSON, "tool_call_id": IDS, "name": JSON,
              "reasoning_content": TEXT | JSON, "reasoning_details": JSON, "pruned": JSON, "refusal": JSON},
)  # fmt: skip
CONVERSATION = st.lists(MESSAGE | JSON, max_size=8)
DIALECTS = st.builds(
    Dialect,
    system=st.sampled_from(["system", "developer", "fold"]),
    reasoning=st.sampled_from(["drop", "calls", "always", "inline"]),
    signatures=st.booleans(),
    details=st.booleans(),
    ids=st.sampled_from(["any", "alnum9"]),
    alternate=st.booleans(),
    silent_content=st.sampled_from(["null", "empty", "omit"]),
    tools=st.booleans(),
)


@given(CONVERSATION, DIALECTS)
@settings(max_examples=300, deadline=None)
def test_anything_becomes_messages_that_a_strict_server_takes(messages: list[Any], dialect: Dialect) -> None:
    """Total, valid, idempotent, JSON; and the input is left alone."""
    before = copy.deepcopy(messages)
    prepared = prepare_for_wire(messages, dialect)
    assert repr(messages) == repr(before)
    assert check_messages(json.loads(encode_messages(prepared))) is None
    assert prepare_for_wire(prepared, dialect) == prepared
    assert dialect.tools or not any(m.get("tool_calls") or m["role"] == "tool" for m in prepared)
    if dialect.alternate:
        assert check_alternation(prepared) is None


@given(CONVERSATION, CONVERSATION)
@settings(max_examples=200, deadline=None)
def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter(one: list[Any], more: list[Any]) -> None:
    """So that prompt caches hit: what was sent once is sent again in the same form."""
    one = [{"role": "user", "content": "go"}, *(m for m in one if is_talk(m)), {"role": "user", "content": "on"}]
    more = [m for m in more if is_talk(m) and m["role"] != "tool"]
    begin = encode_messages(prepare_for_wire(one))[:-1]
    assert encode_messages(prepare_for_wire([*one, *more])).startswith(begin)


def is_talk(message: Any) -> bool:
    """A message of the conversation itself; system messages move to the front and change it on purpose."""
    return isinstance(message, dict) and message.get("role") in ("user", "assistant", "tool")


CLEAN = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "list"},
    {"role": "assistant", "content": None,
     "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"p": "."}'}}]},
    {"role": "tool", "content": "a\nb", "tool_call_id": "c1"},
    {"role": "assistant", "content": "two files"},
    {"role": "user", "content": [{"type": "text", "text": "this?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]},
]  # fmt: skip


def test_a_valid_conversation_comes_back_unchanged() -> None:
    assert prepare_for_wire(CLEAN) == CLEAN
    assert encode_messages(prepare_for_wire(CLEAN)) == orjson.dumps(CLEAN)


def test_a_call_without_a_result_is_answered() -> None:
    prepared = prepare_for_wire([*CLEAN[:3], {"role": "user", "content": "go on"}])
    assert prepared[3:] == [
        {"role": "tool", "content": UNKNOWN_OUTCOME, "tool_call_id": "c1"},
        {"role": "user", "content": "go on"},
    ]


def test_the_same_id_in_every_turn_is_made_unique_and_pairs_with_its_own_result() -> None:
    """Providers that call every call `call_0` must not get results mixed up."""
    turn = [
        {"role": "assistant", "tool_calls": [{"id": "call_0", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_0", "content": "first"},
    ]
    prepared = prepare_for_wire([CLEAN[1], *turn, turn[0], {**turn[1], "content": "second"}])
    ids = [m["tool_calls"][0]["id"] for m in prepared if m["role"] == "assistant"]
    assert ids[0] == "call_0" and ids[1] != "call_0"
    assert [(m["tool_call_id"], m["content"]) for m in prepared if m["role"] == "tool"] == [
        (ids[0], "first"), (ids[1], "second"),
    ]  # fmt: skip


def test_results_out_of_order_and_parted_by_a_message_are_put_back() -> None:
    calls = [{"id": i, "function": {"name": "f", "arguments": "{}"}} for i in ("a", "b")]
    prepared = prepare_for_wire([
        CLEAN[1], {"role": "assistant", "tool_calls": calls}, {"role": "tool", "tool_call_id": "b", "content": "B"},
        {"role": "user", "content": "wait"}, {"role": "tool", "tool_call_id": "a", "content": "A"},
        {"role": "tool", "tool_call_id": "zz", "content": "nobody asked"},
    ])  # fmt: skip
    assert [(m["role"], m["content"]) for m in prepared[2:]] == [("tool", "A"), ("tool", "B"), ("user", "wait")]


ARGUMENT_FORMS = [
    ('{"a": 1}', '{"a": 1}'), ("", "{}"), (None, "{}"), ("null", "{}"), ({"a": 1}, '{"a":1}'), ('"{\\"a\\": 1}"', '{"a":1}'),
    ("[]", '{"raw":[]}'), ('"x"', '{"raw":"\\"x\\""}'), ('{"command": "ls', '{"raw":"{\\"command\\": \\"ls"}'),
    (7, '{"raw":7}'), ('{"a": "\\ud83d"}', '{"a":"\ufffd"}'),
]  # fmt: skip


@pytest.mark.parametrize("given, expect", ARGUMENT_FORMS, ids=[repr(a[0]) for a in ARGUMENT_FORMS])
def test_arguments_are_always_an_object(given: Any, expect: str) -> None:
    assert arguments_object(given) == expect


def test_reasoning_goes_back_as_the_dialect_says() -> None:
    """Withheld by default; with calls; always; as tags; and empty where a server demands the field."""
    thought = {**CLEAN[2], "reasoning_content": "hm", "reasoning_details": [{"type": "x"}]}
    plain = {"role": "assistant", "content": "ok", "reasoning_content": "so"}
    talk = [CLEAN[1], thought, CLEAN[3], plain, {"role": "user", "content": "and?"}]

    def sent(dialect: Dialect, messages: list[Any] = talk) -> list[Any]:
        return [
            (m["content"], m.get("reasoning_content"))
            for m in prepare_for_wire(messages, dialect)
            if m["role"] == "assistant"
        ]

    assert sent(Dialect()) == [(None, None), ("ok", None)]
    assert sent(Dialect(reasoning="calls")) == [(None, "hm"), ("ok", None)]
    assert sent(Dialect(reasoning="always")) == [(None, "hm"), ("ok", "so")]
    assert sent(Dialect(reasoning="inline")) == [("<think>hm</think>\n\n", None), ("<think>so</think>\n\nok", None)]
    assert sent(Dialect(reasoning="calls"), CLEAN) == [(None, ""), ("two files", None)]
    assert prepare_for_wire(talk, Dialect(details=True))[1]["reasoning_details"] == [{"type": "x"}]


def test_private_fields_of_another_provider_stay_here() -> None:
    """A signed call from Gemini goes back to Gemini only; an unsigned one gets the official pass there."""
    signed = copy.deepcopy(CLEAN)
    signed[2]["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "c2ln"}}  # type: ignore[index]
    assert prepare_for_wire(signed) == CLEAN
    assert prepare_for_wire(signed, Dialect(signatures=True)) == signed
    passed = prepare_for_wire(CLEAN, Dialect(signatures=True))[2]["tool_calls"][0]["extra_content"]
    assert passed == {"google": {"thought_signature": "skip_thought_signature_validator"}}


def test_system_messages_become_one() -> None:
    late = [*CLEAN[:2], {"role": "system", "content": "and polite"}, {"role": "user", "content": "x"}]
    assert prepare_for_wire(late)[0] == {"role": "system", "content": "be brief\n\nand polite"}
    assert prepare_for_wire(late, Dialect(system="fold"))[0] == {
        "role": "user",
        "content": "be brief\n\nand polite\n\nlist",
    }
    assert prepare_for_wire(late, Dialect(system="developer"))[0]["role"] == "developer"


def test_neighbours_are_merged_only_where_roles_must_alternate() -> None:
    talk = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    assert prepare_for_wire(talk) == talk
    assert prepare_for_wire(talk, Dialect(alternate=True)) == [{"role": "user", "content": "one\n\ntwo"}]
    parted = [*CLEAN[1:4], {"role": "user", "content": "stop"}]
    assert [m["role"] for m in prepare_for_wire(parted, Dialect(alternate=True))] == [
        "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip


def test_nothing_empty_is_sent() -> None:
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": " "}, {"role": "user", "content": ""},
            {"role": "user", "content": "b"}]  # fmt: skip
    assert prepare_for_wire(talk) == [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]


def test_a_dialect_survives_its_json_and_bad_json_is_no_dialect() -> None:
    dialect = Dialect(reasoning="calls", drop=("temperature",), alternate=True)
    assert dialect.as_json() == {"reasoning": "calls", "alternate": True, "drop": ["temperature"]}
    assert Dialect.from_json(json.loads(json.dumps(dialect.as_json()))) == dialect
    assert Dialect.from_json({"alternate": "yes", "drop": 3, "new": 1, "ids": "alnum9"}) == Dialect(ids="alnum9")
    assert Dialect.from_json(None) == Dialect()


def test_a_digest_is_of_the_bytes() -> None:
    assert digest(CLEAN) == digest(copy.deepcopy(CLEAN)) != digest(CLEAN[:-1])


def test_clean_joins_pairs_and_replaces_halves() -> None:
    assert clean("a\ud83d\ude00b\ud83d") == "a\N{GRINNING FACE}b\ufffd"
