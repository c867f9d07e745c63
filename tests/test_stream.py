"""Streams through the real client: every row of the corpus, at every split, and the dialects of tool calls."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server import ScriptedServer, chunk, raw, sse, text
from wiring import asking, rows

from agent.errors import AgentError, APIError, ContextOverflow
from agent.events import Notice, Waiting
from agent.messages import ToolCall, Usage, tool_calls
from agent.wire import Dialect
from agent.wire.leaked import remark_on
from agent.wire.sse import Event, EventReader
from agent.wire.stream import Assembled, Assembler

QUIRKS = [r for r in rows("quirks") if "expect" in r]
ERRORS = [r for r in QUIRKS if "error" in r["expect"]]
ANSWERS = [r for r in QUIRKS if "error" not in r["expect"]]


def named(row: dict[str, Any]) -> str:
    return f"{row['id']}-{row['provider']}"


def pieces(row: dict[str, Any]) -> list[bytes]:
    """The bytes of a row as they came; where no split is stated, one line end apart."""
    if "chunks_b64" in row:
        return [base64.b64decode(c) for c in row["chunks_b64"]]
    return [part + b"\n" for part in row["sse"].encode().split(b"\n")]


def served(row: dict[str, Any], split: list[bytes] | None = None) -> Any:
    headers = dict(row.get("headers", {}))
    return raw(pieces(row) if split is None else split, headers.pop("content-type", "text/event-stream"), 200, headers)


def assemble(data: list[bytes]) -> Assembled:
    reader, assembler = EventReader(), Assembler()
    events = [e for piece in data for e in reader.feed(piece)] + reader.close()
    for event in events:
        assembler.take(event)
    return assembler.finish()


@pytest.mark.parametrize("row", ANSWERS, ids=named)
def test_an_answer_is_read_as_it_was_meant(row: dict[str, Any]) -> None:
    """Text, reasoning, calls, finish reason, usage and completeness of each quirk."""
    expect = row["expect"]
    with ScriptedServer([served(row)], repeat_last=True) as server:
        asked = asking(server, window=row.get("window"))
        reply = asked.ask()
    message = reply.message
    assert (message["content"] or "") == expect.get("text", "")
    assert message.get("reasoning_content", "") == expect.get("reasoning", "")
    assert reply.finish_reason == expect["finish"]
    if "usage" in expect:
        check_usage(reply.usage, expect["usage"])
    check_calls(tool_calls(message), expect.get("tool_calls", []), row.get("compare_args"))
    assert reply.complete == expect.get("complete", not expect.get("retryable", False))
    assert len(server.requests) == (2 if expect.get("empty") else 1)
    assert ("context_full" in asked.codes()) == expect.get("context_full", False)


def check_usage(found: Usage | None, expect: dict[str, int] | None) -> None:
    if expect is None:
        assert found is None
        return
    assert found is not None
    assert found._asdict() == {"cached": found.cached, **{k: v for k, v in expect.items() if k != "total"}}


def check_calls(found: list[Any], expect: list[dict[str, Any]], compare: str | None) -> None:
    assert [c.name for c in found] == [c["name"] for c in expect]
    for call, wanted in zip(found, expect, strict=True):
        assert call.id == wanted["id"] or (wanted["id"] == "*" and call.id)
        if compare == "json":
            assert json.loads(call.arguments) == json.loads(wanted["arguments"])
        else:
            assert call.arguments == wanted["arguments"]
    assert len({c.id for c in found}) == len(found)


@pytest.mark.parametrize("row", ERRORS, ids=named)
def test_an_error_inside_a_200_is_an_error(row: dict[str, Any]) -> None:
    """The stated class and retryability, with nothing shown."""
    with ScriptedServer([served(row)], repeat_last=True) as server:
        asked = asking(server)
        with pytest.raises(AgentError) as caught:
            asked.ask()
    assert caught.value.kind == row["expect"]["error"]
    if "retryable" in row["expect"]:
        assert isinstance(caught.value, APIError) and caught.value.retryable == row["expect"]["retryable"]
    assert asked.shown == ""


@pytest.mark.parametrize("row", ANSWERS, ids=named)
def test_splitting_changes_nothing(row: dict[str, Any]) -> None:
    """Byte by byte, and cut in two at every byte, an answer is the same."""
    data = b"".join(pieces(row))
    whole = comparable(assemble([data]))
    assert comparable(assemble([data[at : at + 1] for at in range(len(data))])) == whole
    for at in range(0, len(data), 1 if len(data) < 1500 else 7):
        assert comparable(assemble([data[:at], data[at:]])) == whole


def comparable(answer: Assembled) -> Any:
    """An answer without the ids that were made up."""
    calls = [(c.name, c.arguments) for c in tool_calls(answer.message)]
    return answer.message["content"], answer.message.get("reasoning_content"), calls, answer.finish_reason, answer.usage


NEW_REASONS = ["eos", "stop_sequence", "end_turn", "COMPLETE", "pause_turn", "a new word"]


@pytest.mark.parametrize("reason", NEW_REASONS)
def test_an_unknown_finish_reason_is_an_end(reason: str) -> None:
    answer = assemble([sse(chunk({"content": "x"})), sse(chunk({}, reason))])
    assert (answer.complete, answer.truncated, answer.finish_reason) == (True, False, reason)


@pytest.mark.parametrize("reason", ["network_error", "abort", "error", "MALFORMED_FUNCTION_CALL"])
def test_a_finish_reason_that_is_a_failure_keeps_the_text_and_is_no_answer(reason: str) -> None:
    """Shown text is kept in an incomplete reply; nothing is sent again."""
    with ScriptedServer([raw([sse(chunk({"content": "Par"})), sse(chunk({}, reason))])]) as server:
        reply = asking(server).ask()
    assert (reply.message["content"], reply.complete) == ("Par", False)
    assert isinstance(reply.error, APIError) and reply.error.kind == "server"


@pytest.mark.parametrize("reason", ["length", "max_tokens", "MAX_TOKENS", "model_context_window_exceeded", "model_length", "ERROR_LIMIT",
                                    "max_output_reached"])  # fmt: skip
def test_calls_cut_by_a_limit_are_marked_as_not_to_run(reason: str) -> None:
    """Not even when their arguments happen to be whole; they stay in the message, so that they can be answered."""
    call = {"index": 0, "id": "c1", "function": {"name": "write_file", "arguments": '{"path": "a"}'}}
    answer = assemble([sse(chunk({"content": "I will", "tool_calls": [call]})), sse(chunk({}, reason))])
    assert (answer.truncated, answer.cut_calls) == (True, 1)
    assert (answer.message["content"], tool_calls(answer.message)) == (
        "I will", [ToolCall("c1", "write_file", '{"path": "a"}')]
    )  # fmt: skip


@pytest.mark.parametrize("arguments", ['{"path": "a', '{"path": "a", "text": {"x": [1', '{"a": "b\\'])
def test_half_arguments_under_a_finish_of_stop_are_left_to_the_tools(arguments: str) -> None:
    """Only a limit cuts a whole answer: here the other calls may run, and the broken one is refused by its
    arguments."""
    call = {"index": 0, "id": "c1", "function": {"name": "write_file", "arguments": arguments}}
    answer = assemble([sse(chunk({"tool_calls": [call]})), sse(chunk({}, "stop")), sse("[DONE]")])
    assert (answer.truncated, answer.cut_calls) == (False, 0)
    assert tool_calls(answer.message) == [ToolCall("c1", "write_file", arguments)]


def test_a_stream_cut_inside_a_call_gives_out_no_call() -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "bash", "arguments": '{"command": "rm -rf build"}'}}
    with ScriptedServer([raw([sse(chunk({"content": "ok", "tool_calls": [call]}))], ending="cut")]) as server:
        reply = asking(server).ask()
    assert (tool_calls(reply.message), reply.complete, reply.cut_calls) == ([], False, 1)


DIALECTS: list[tuple[str, list[Any], list[tuple[str, str]]]] = [
    ("an index as text", [[{"index": "0", "id": "a", "function": {"name": "f", "arguments": "{}"}}]], [("f", "{}")]),
    ("fragments without index or id", [
        [{"id": "a", "function": {"name": "f", "arguments": '{"x"'}}], [{"function": {"arguments": ":1}"}}]], [("f", '{"x":1}')]),
    ("null index and null id in later fragments", [
        [{"index": None, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}],
        [{"index": None, "id": None, "function": {"name": None, "arguments": ":1}"}}]], [("f", '{"x":1}')]),
    ("index but never an id", [
        [{"index": 0, "function": {"name": "f", "arguments": "{}"}}], [{"index": 1, "function": {"name": "g", "arguments": "{}"}}]],
     [("f", "{}"), ("g", "{}")]),
    ("two ids on one index", [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}],
        [{"index": 0, "id": "b", "function": {"name": "f", "arguments": '{"x":1}'}}]], [("f", "{}"), ("f", '{"x":1}')]),
    ("an id that changes with each fragment", [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}],
        [{"index": 0, "id": "b", "function": {"name": "", "arguments": ":1}"}}]], [("f", '{"x":1}')]),
    ("a name in pieces", [
        [{"index": 0, "id": "a", "function": {"name": "read_"}}], [{"index": 0, "function": {"name": "file"}}],
        [{"index": 0, "function": {"arguments": "{}"}}]], [("read_file", "{}")]),
    ("the name in every fragment", [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}],
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ":1}"}}]], [("f", '{"x":1}')]),
    ("cumulative arguments", [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}],
        [{"index": 0, "function": {"arguments": '{"x":1}'}}]], [("f", '{"x":1}')]),
    ("the whole call twice", [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}],
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}]], [("f", '{"x":1}')]),
    ("arguments encoded twice", [[{"index": 0, "id": "a", "function": {"name": "f", "arguments": '"{\\"x\\":1}"'}}]],
     [("f", '{"x":1}')]),
    ("calls as one object", [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}], [("f", '{"x":1}')]),
    ("name and arguments beside the id", [[{"id": "a", "name": "f", "input": {"x": 1}}]], [("f", '{"x":1}')]),
    ("three objects at one index", [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1} {"x":2}\n{"x":3}'}}]],
     [("f", '{"x":1}'), ("f", '{"x":2}'), ("f", '{"x":3}')]),
    ("interleaved parallel calls", [
        [{"index": 0, "id": "a", "function": {"name": "f"}}, {"index": 1, "id": "b", "function": {"name": "g"}}],
        [{"index": 1, "function": {"arguments": '{"y"'}}], [{"index": 0, "function": {"arguments": "{}"}}],
        [{"index": 1, "function": {"arguments": ":2}"}}]], [("f", "{}"), ("g", '{"y":2}')]),
    ("fragments by id alone", [
        [{"id": "a", "function": {"name": "f", "arguments": '{"x"'}}, {"id": "b", "function": {"name": "g", "arguments": "{"}}],
        [{"id": "a", "function": {"arguments": ":1}"}}, {"id": "b", "function": {"arguments": "}"}}]],
     [("f", '{"x":1}'), ("g", "{}")]),
    ("two names on one index, no ids, one delta", [
        [{"index": 0, "id": "", "function": {"name": "read_file", "arguments": '{"path":"a"}'}},
         {"index": 0, "id": "", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}]],
     [("read_file", '{"path":"a"}'), ("bash", '{"command":"ls"}')]),
    ("two names on one index, no ids, the second in pieces", [
        [{"index": 0, "function": {"name": "read_file", "arguments": '{"path":"a"}'}}],
        [{"index": 0, "function": {"name": "bash", "arguments": '{"comm'}}], [{"index": 0, "function": {"arguments": 'and":"ls"}'}}]],
     [("read_file", '{"path":"a"}'), ("bash", '{"command":"ls"}')]),
    ("two names under one id", [
        [{"index": 0, "id": "call_0", "function": {"name": "f", "arguments": '{"x":1}'}}],
        [{"index": 0, "id": "call_0", "function": {"name": "g", "arguments": '{"y":2}'}}]], [("f", '{"x":1}'), ("g", '{"y":2}')]),
    ("two names under one id, no index", [
        [{"id": "call_0", "function": {"name": "f", "arguments": '{"x":1}'}}],
        [{"id": "call_0", "function": {"name": "g", "arguments": '{"y":2}'}}]], [("f", '{"x":1}'), ("g", '{"y":2}')]),
    ("one id for the calls of two indexes", [
        [{"index": 0, "id": "x", "function": {"name": "f", "arguments": ""}}, {"index": 1, "id": "x", "function": {"name": "f", "arguments": ""}}],
        [{"index": 1, "function": {"arguments": '{"y":2}'}}, {"index": 0, "function": {"arguments": '{"x":1}'}}]],
     [("f", '{"x":1}'), ("f", '{"y":2}')]),
    ("arguments one index beside their call", [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}], [{"index": 0, "function": {"arguments": '{"x":1}'}}],
        [{"index": 0, "id": "b", "function": {"name": "g", "arguments": ""}}], [{"index": 1, "function": {"arguments": '{"y"'}}],
        [{"index": 1, "function": {"arguments": ":2}"}}]], [("f", '{"x":1}'), ("g", '{"y":2}')]),
    ("a known id on an unknown index", [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}],
        [{"index": 0, "id": "b", "function": {"name": "g", "arguments": ""}}], [{"index": 1, "id": "b", "function": {"arguments": '{"y":2}'}}]],
     [("f", '{"x":1}'), ("g", '{"y":2}')]),
    ("a nameless fragment after whole calls is nobody's", [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}], [{"index": 1, "function": {"arguments": '{"y":2}'}}]],
     [("f", '{"x":1}')]),
    ("an empty object before the arguments", [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}], [{"index": 0, "function": {"arguments": '{"x"'}}],
        [{"index": 0, "function": {"arguments": ":1}"}}]], [("f", '{"x":1}')]),
    ("an empty object after the arguments", [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}], [{"index": 0, "function": {"arguments": "{}"}}]],
     [("f", '{"x":1}')]),
    ("an empty object among others", [[{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1}{}{"x":2}'}}]],
     [("f", '{"x":1}'), ("f", "{}"), ("f", '{"x":2}')]),
    ("a call that never gets a name", [[{"index": 0, "id": "a", "function": {"arguments": "{}"}}]], []),
    ("not a call at all", [["x", None, 3]], []),
]  # fmt: skip


@pytest.mark.parametrize("fragments, expect", [d[1:] for d in DIALECTS], ids=[d[0] for d in DIALECTS])
def test_tool_calls_in_every_dialect(fragments: list[Any], expect: list[tuple[str, str]]) -> None:
    events = [sse(chunk({"tool_calls": f})) for f in fragments] + [sse(chunk({}, "tool_calls")), sse("[DONE]")]
    found = tool_calls(assemble(events).message)
    assert [(c.name, c.arguments) for c in found] == expect
    assert all(c.id for c in found) and len({c.id for c in found}) == len(found)


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
AGAIN = {"id": "b", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
SAID, THOUGHT = {"delta": {"content": "I will"}}, {"delta": {"reasoning_content": "hm"}}
ELSEWHERE: list[tuple[str, list[dict[str, Any]], Any]] = [
    ("a call in a last message",
     [SAID, {"delta": {}, "message": {"role": "assistant", "content": "I will", "tool_calls": [CALL]}}], ("I will", "", 1)),
    ("a call in a last message beside an empty delta",
     [SAID, {"delta": {"role": "assistant", "content": ""}, "message": {"content": "I will", "tool_calls": [CALL]}}], ("I will", "", 1)),
    ("a call in a last message beside text",
     [SAID, {"delta": {"content": " do"}, "message": {"content": "I will do", "tool_calls": [CALL]}}], ("I will do", "", 1)),
    ("a call in a last message and no delta",
     [SAID, {"message": {"content": None, "tool_calls": [CALL]}}], ("I will", "", 1)),
    ("a legacy call in a last message",
     [SAID, {"delta": {}, "message": {"content": "I will", "function_call": CALL["function"]}}], ("I will", "", 1)),
    ("a call in the choice", [SAID, {"delta": {}, "tool_calls": [CALL]}], ("I will", "", 1)),
    ("a call in the choice, beside text", [{**SAID, "tool_calls": [CALL]}], ("I will", "", 1)),
    ("a call in the choice, in pieces",
     [{"delta": {}, "tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}]},
      {"delta": {}, "tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}], ("", "", 1)),
    ("text after reasoning", [THOUGHT, {"delta": {}, "message": {"content": "Hi", "reasoning_content": "hm"}}], ("Hi", "hm", 0)),
    ("text and a call after reasoning",
     [THOUGHT, {"delta": {}, "message": {"content": "Hi", "tool_calls": [CALL]}}], ("Hi", "hm", 1)),
    ("text after reasoning in tags",
     [{"delta": {"content": "<think>hm</think>"}}, {"delta": {}, "message": {"content": "<think>hm</think>Hi"}}], ("Hi", "hm", 0)),
    ("reasoning after text", [SAID, {"delta": {}, "message": {"content": "I will", "reasoning": "hm"}}], ("I will", "hm", 0)),
    ("all of it repeated",
     [THOUGHT, {"delta": {"content": "I will", "tool_calls": [{"index": 0, **CALL}]}},
      {"delta": {}, "message": {"content": "I will", "reasoning_content": "hm", "tool_calls": [AGAIN]}}], ("I will", "hm", 1)),
    ("a call repeated in the choice",
     [{"delta": {"tool_calls": [{"index": 0, **CALL}]}}, {"delta": {}, "tool_calls": [AGAIN]}], ("", "", 1)),
    ("a call repeated at once", [{"delta": {"tool_calls": [CALL]}, "message": {"tool_calls": [AGAIN]}, "tool_calls": [AGAIN]}],
     ("", "", 1)),
]  # fmt: skip


@pytest.mark.parametrize("choices, expect", [e[1:] for e in ELSEWHERE], ids=[e[0] for e in ELSEWHERE])
def test_what_stands_beside_the_deltas_is_taken_once(
    choices: list[dict[str, Any]], expect: tuple[str, str, int]
) -> None:
    """In a last `message` or in the choice itself: what the deltas left out is news, what they said is not."""
    last = {**choices[-1], "finish_reason": "tool_calls"}
    answer = assemble(
        [*(sse({"choices": [{"index": 0, **choice}]}) for choice in [*choices[:-1], last]), sse("[DONE]")]
    )
    text, thought, number = expect
    assert (answer.message["content"] or "", answer.message.get("reasoning_content", "")) == (text, thought)
    assert [(c.name, c.arguments) for c in tool_calls(answer.message)] == [("f", '{"x":1}')] * number


def test_the_legacy_function_call_is_a_call() -> None:
    events = [sse(chunk({"function_call": {"name": "f", "arguments": '{"x"'}})),
              sse(chunk({"function_call": {"arguments": ":1}"}})), sse(chunk({}, "function_call"))]  # fmt: skip
    assert [(c.name, c.arguments) for c in tool_calls(assemble(events).message)] == [("f", '{"x":1}')]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "reasoning_text", "thinking"])
def test_reasoning_has_several_places(key: str) -> None:
    events = [sse(chunk({key: "hm"})), sse(chunk({"content": "x"})), sse(chunk({}, "stop"))]
    assert assemble(events).message == {"role": "assistant", "content": "x", "reasoning_content": "hm"}


TAGGED: list[tuple[str, str, str]] = [
    # content, text, reasoning
    ("<thought>\nhm\n</thought>\n\nHi", "Hi", "\nhm\n"),
    ("◁think▷hm◁/think▷Hi", "Hi", "hm"),
    ("\n◁think▷a ◁/thi b◁/think▷ Hi ◁think▷", "Hi ◁think▷", "a ◁/thi b"),
    ("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi", "Hi", "hm"),
    ("<|start|>assistant<|channel|>analysis<|message|>hm<|start|>assistant<|channel|>final<|message|>Hi", "Hi", "hm"),
    ("<|channel|>analysis<|message|>a<|channel|>analysis<|message|>b<|end|>\n<|channel|>final<|message|>Hi", "Hi", "ab"),
    ("<|channel|>analysis<|message|>a <|en b<|end|><|channel|>commentary<|message|>c<|end|><|channel|>final<|message|>Hi",
     "Hi", "a <|en bc"),
    ("<|channel|>final<|message|>Hi <|end|>", "Hi <|end|>", ""),
    ("<|channel|>analysis<|message|>hm", "", "hm"),
    ("<|channel|>analysis<|message|>hm<|end|>Hi", "Hi", "hm"),
    ("<|channel|>commentary to=functions.ls<|message|>{}", "<|channel|>commentary to=functions.ls<|message|>{}", ""),
    ("<|channel|>other<|message|>Hi", "<|channel|>other<|message|>Hi", ""),
    ("<thoughts>Hi</thoughts>", "<thoughts>Hi</thoughts>", ""),
    ("<|channel>thought\nhm<channel|>Hi", "Hi", "\nhm"),
    ("[THINK]hm[/THINK]Hi", "Hi", "hm"),
    ("[Think] Hi", "[Think] Hi", ""),
    ("<seed:think>hm</seed:think>Hi", "Hi", "hm"),
    ("<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Hi", "Hi", "hm"),
    ("Say <thought>hm</thought>", "Say <thought>hm</thought>", ""),
]  # fmt: skip


@pytest.mark.parametrize("content, text, reasoning", TAGGED)
def test_leading_reasoning_is_told_from_the_answer(content: str, text: str, reasoning: str) -> None:
    """In the tags and channels of any model, however the stream cuts them."""
    for size in range(1, len(content) + 1):
        parts = [content[at : at + size] for at in range(0, len(content), size)]
        message = assemble([sse(chunk({"content": p})) for p in parts] + [sse(chunk({}, "stop"))]).message
        assert (message["content"], message.get("reasoning_content", "")) == (text, reasoning)


def test_a_thousand_channels_are_read() -> None:
    content = "<|channel|>analysis<|message|>x<|end|>" * 3000 + "<|channel|>final<|message|>Hi"
    message = assemble([sse(chunk({"content": content})), sse(chunk({}, "stop"))]).message
    assert (message["content"], message["reasoning_content"]) == ("Hi", "x" * 3000)


DEEP: Any = "hm"
for _ in range(200):
    DEEP = [{"text": DEEP}]


@pytest.mark.parametrize("value, text", [
    ([{"type": "text", "text": "h"}, {"type": "text", "text": "m"}], "hm"), ({"text": "hm"}, "hm"), ({"content": "hm"}, "hm"),
    ([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}], "hm"), (["h", "m"], "hm"), ({"text": ["hm"]}, "hm"),
    ({"summary": [{"type": "summary_text", "text": "hm"}]}, "hm"), ({"effort": "high", "summary": "auto"}, ""), ([], ""), (7, ""), (DEEP, ""),
])  # fmt: skip
@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_may_be_parts_or_an_object(key: str, value: Any, text: str) -> None:
    """In deltas and in a whole message; what holds no text is none."""
    streamed = [sse(chunk({key: value})), sse(chunk({"content": "x"})), sse(chunk({}, "stop"))]
    whole = json.dumps({"choices": [{"message": {"content": "x", key: value}, "finish_reason": "stop"}]}).encode()
    for data in (streamed, [whole]):
        message = assemble(data).message
        assert (message["content"], message.get("reasoning_content", "")) == ("x", text)


@pytest.mark.parametrize("part", [
    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "reasoning", "text": "hm"}, {"thinking": "hm"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}, {"type": "reasoning", "reasoning": {"text": "hm"}},
])  # fmt: skip
def test_a_part_of_the_content_that_is_reasoning_is_no_text(part: dict[str, Any]) -> None:
    events = [sse(chunk({"content": [part, {"type": "text", "text": "x"}]})), sse(chunk({}, "stop"))]
    assert assemble(events).message == {"role": "assistant", "content": "x", "reasoning_content": "hm"}


@pytest.mark.parametrize("last", [
    b"event: done\n\n", b"event: done\ndata:\n\n", b"event: done\ndata: {}\n\n", b"event: done\ndata: [DONE]\n\n",
    b"event:done\r\ndata: bye\r\n\r\n", b'event: done\ndata: {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}\n\n',
])  # fmt: skip
def test_an_event_named_done_is_an_end_mark(last: bytes) -> None:
    """Without a finish reason too; what it holds is read, and the connection need not end."""
    with ScriptedServer([raw([sse(chunk({"content": "Hi"})), last], ending="hang")]) as server:
        reply = asking(server, stall_timeout=30).ask()
    assert (reply.message["content"], reply.complete) == ("Hi", True)
    assert reply.usage == (Usage(3, 1) if b"usage" in last else None)


def test_reasoning_details_are_kept_whole_and_shown_once() -> None:
    """OpenRouter streams each block in fragments and says the same text in `reasoning` too."""
    details = [{"type": "reasoning.text", "index": 0, "text": t, "format": "x"} for t in ("a", "b")]
    details.append({"type": "reasoning.encrypted", "index": 1, "data": "zz"})
    events = [sse(chunk({"reasoning": d.get("text"), "reasoning_details": [d]})) for d in details]
    answer = assemble([*events, sse(chunk({"content": "x"}, "stop"))])
    assert answer.message["reasoning_content"] == "ab"
    assert answer.message["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "ab", "format": "x"},
        {"type": "reasoning.encrypted", "index": 1, "data": "zz"},
    ]


@given(st.text(alphabet="<>/think x\n", max_size=40), st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_think_tags_lose_no_letter(body: str, size: int) -> None:
    """However tags and text are cut, what is shown is what the whole text means; nothing is lost but space."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    parts = assemble([sse(chunk({"content": p})) for p in pieces] + [sse(chunk({}, "stop"))])
    whole = assemble([sse(chunk({"content": body})), sse(chunk({}, "stop"))])
    assert comparable(parts) == comparable(whole)
    if "think>" not in body:
        assert (parts.message["content"] or "") == body


def test_reasoning_of_which_only_the_end_is_marked() -> None:
    """The opening tag stood in the prompt. Text that only speaks of the tag is text."""

    def read(*parts: str) -> tuple[str, str | None]:
        message = assemble([sse(chunk({"content": p})) for p in parts] + [sse(chunk({}, "stop"))]).message
        return message["content"], message.get("reasoning_content")

    assert read("pla", "n</thi", "nk>\n\nHi") == ("Hi", "plan")
    assert read("close it with `</think>`\n") == ("close it with `</think>`\n", None)
    assert read("a </think> tag") == ("a </think> tag", None)


@pytest.mark.parametrize("parts", [["\\ud83d", "\\ude00"], ["\\ud83d\\ude00"]])
def test_a_surrogate_pair_may_be_split_over_deltas(parts: list[str]) -> None:
    data = [b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % p.encode() for p in parts]
    assert assemble([*data, sse(chunk({}, "stop"))]).message["content"] == "\N{GRINNING FACE}"


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    data = b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83db"}}]}\n\n'
    assert assemble([data, sse(chunk({}, "stop"))]).message["content"] == "a\ufffdb"


@pytest.mark.parametrize("parts, wanted", [
    (('{"t":"\ud83c', '\udf0d"}'), '{"t":"\U0001f30d"}'), (('{"t":"\ud83c', 'x"}'), '{"t":"\ufffdx"}'),
])  # fmt: skip
def test_half_a_surrogate_pair_does_not_spoil_the_arguments(parts: tuple[str, str], wanted: str) -> None:
    """What cannot be encoded could neither be kept nor sent back."""
    deltas = [{"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": p}}]} for p in parts]
    events = [f"data: {json.dumps(chunk(delta))}\n\n".encode() for delta in deltas]
    found = tool_calls(assemble([*events, sse(chunk({}, "tool_calls"))]).message)
    assert [c.arguments for c in found] == [wanted]


def test_plain_json_in_answer_to_a_stream_request() -> None:
    """After blank lines too, and with no content type to tell."""
    whole = {"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
             "usage": {"prompt_tokens": 3, "completion_tokens": 1}}  # fmt: skip
    with ScriptedServer([raw("\n\n\n" + json.dumps(whole), "application/octet-stream")]) as server:
        asked = asking(server)
        reply = asked.ask()
    assert (reply.message["content"], reply.usage, asked.shown) == ("Hi", Usage(3, 1), "Hi")


def test_json_that_breaks_off_is_no_answer() -> None:
    """Only a whole value is complete without a finish reason."""
    whole = {"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": None}]}
    cut = raw(json.dumps(whole)[:-3], "application/json")
    with ScriptedServer([cut], repeat_last=True) as server, pytest.raises(APIError) as caught:
        asking(server).ask()
    assert caught.value.kind == "connection"


def test_reasoning_that_no_answer_follows_is_asked_for_once_more() -> None:
    """Nothing of the answer was shown yet; a call or a word after it would have been one."""
    events = [sse(chunk({"reasoning_content": "hm"})), sse(chunk({}, "stop")), sse("[DONE]")]
    with ScriptedServer([raw(events), text("four")]) as server:
        asked = asking(server)
        reply = asked.ask()
    assert (reply.message["content"], reply.complete, asked.codes()) == ("four", True, [])
    with ScriptedServer([raw(events)], repeat_last=True) as server:
        asked = asking(server)
        reply = asked.ask()
    assert (reply.message["reasoning_content"], reply.complete, asked.codes()) == ("hm", True, ["empty_answer"])


BASH: list[dict[str, Any]] = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
LS = '{"name": "bash", "arguments": {"command": "ls"}}'
LEFT = [
    f"<tool_call>\n{LS}\n</tool_call>",
    "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>",
    "<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>",
    '<function=bash>{"command": "ls"}</function>',
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>bash\n",
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="bash">',
    f"[TOOL_CALLS][{LS}]",
    '[TOOL_CALLS]bash[ARGS]{"command": "ls"}',
    '<|python_tag|>{"name": "bash", "parameters": {"command": "ls"}}',
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:0<|tool_call_argument_begin|>{"command": "ls"}',
    '<minimax:tool_call>\n<invoke name="bash">\n<parameter name="command">ls</parameter>',
    '<function_calls>\n<invoke name="bash">\n<parameter name="command">ls</parameter>',
    '<|channel|>commentary to=functions.bash <|constrain|>json<|message|>{"command": "ls"}',
    'commentary to=functions.bash json{"command": "ls"}',
    f"[{LS}]",
    LS,
    "{'name': 'bash', 'arguments': {'command': 'ls'}}",
    '{"type": "tool_use", "id": "x", "name": "bash", "input": {"command": "ls"}}',
    '{"type": "function", "function": {"name": "bash", "arguments": "{}"}}',
]
SHOWN = [
    f"It looks so:\n\n```json\n{LS}\n```\nand nothing else.",
    f"It looks so:\n~~~\n<tool_call>\n{LS}\n</tool_call>\n~~~",
    f"  ````\n```\n<tool_call>{LS}</tool_call>\n```\n  ````\n",
    f"Write `<tool_call>{LS}</tool_call>` there.",
    "Write ``<function=bash>`{} `` and `[TOOL_CALLS][{`, `<|python_tag|>{`, `<minimax:tool_call>`.",
    "A template writes <tool_call> before a call and [TOOL_CALLS] in another.",
    'The file holds {"name": "left-pad", "arguments": ["x"]} and more.',
    "Name the function whose arguments are wrong.",
    '{"name": "bash", "version": "5.2"}',
    "x < y, a[0] and {} are code.",
]


@pytest.mark.parametrize("reason", ["stop", "tool_calls"])
@pytest.mark.parametrize("before", ["", "I will look.\n\n", "Run `ls`:\n```sh\nls\n```\n"])
@pytest.mark.parametrize("left", LEFT)
def test_a_call_written_as_text_is_said_and_not_run(left: str, before: str, reason: str) -> None:
    """In the marks of any model, after prose or alone. The one form that is read where the server says so is in order."""
    run = left == LEFT[0] and not before and reason == "tool_calls"
    with ScriptedServer([text(before + left, finish=reason)]) as server:
        asked = asking(server)
        reply = asked.ask(tools=BASH)
    assert (len(tool_calls(reply.message)), asked.codes()) == ((1, []) if run else (0, ["call_in_text"]))


@pytest.mark.parametrize("key", ["arguments", "parameters"])
def test_a_text_that_is_nothing_but_calls_is_run_where_the_server_says_so(key: str) -> None:
    written = [f'<tool_call>\n{{"name": "bash", "{key}": {{"command": "{c}"}}}}\n</tool_call>' for c in ("ls", "pwd")]
    with ScriptedServer([text("\n".join(written), finish="tool_calls")]) as server:
        asked = asking(server)
        reply = asked.ask(tools=BASH)
    found = [(c.name, c.arguments) for c in tool_calls(reply.message)]
    assert found == [("bash", '{"command":"ls"}'), ("bash", '{"command":"pwd"}')]
    assert (reply.message["content"], asked.codes()) == (None, [])


@pytest.mark.parametrize("shown", SHOWN)
def test_a_call_that_is_only_shown_is_not_remarked_on(shown: str) -> None:
    with ScriptedServer([text(shown)]) as server:
        asked = asking(server)
        asked.ask(tools=BASH)
    assert asked.codes() == []


@pytest.mark.parametrize("left", LEFT)
def test_where_no_tool_was_offered_nothing_was_called(left: str) -> None:
    """No tools, tools that may not be called, and a model that is told of none."""
    with ScriptedServer([text(f"So: {left}")], repeat_last=True) as server:
        asked = asking(server)
        asked.ask()
        asked.ask(tools=BASH, call_tools=False)
        told = asking(server, dialect=Dialect(tools=False))
        told.ask(tools=BASH)
    assert asked.codes() + told.codes() == []


@pytest.mark.parametrize(
    "unit", ["`", "`a ", "``` ", "```\n", "~~~x\n", "{", "{ ", "<tool_call>", "[TOOL_CALLS]a", "to=functions.a"]
)
def test_an_endless_answer_is_looked_through_in_no_time(unit: str) -> None:
    """200,000 letters take a hundredth of a second; what grows with their square would take minutes."""
    said = {"content": "{" + unit * (200_000 // len(unit)) + " {"}
    began = time.process_time()
    remark_on(said, "stop", BASH)
    assert time.process_time() - began < 2


def test_an_answer_that_ends_with_a_call_and_has_none_is_remarked_on() -> None:
    with ScriptedServer(
        [text("I will look.", finish=reason) for reason in ("tool_calls", "tool_use", "stop")]
    ) as server:
        asked = asking(server)
        for _ in range(3):
            asked.ask(tools=BASH)
    said = [e.text for e in asked.events if isinstance(e, Notice)]
    assert said == ["scripted stopped as if to call a tool but sent no call; nothing was run"] * 2


def test_a_fence_that_is_the_whole_answer_is_a_call_in_text() -> None:
    """As a small model on llama.cpp writes it."""
    row = next(r for r in rows("quirks") if r["id"] == 900)
    with ScriptedServer([served(row)]) as server:
        asked = asking(server)
        reply = asked.ask(tools=BASH)
    assert (tool_calls(reply.message), asked.codes()) == ([], ["call_in_text"])


@pytest.mark.parametrize("body", ["", "\n\n", ": ping\n\n: ping\n\n", "data: null\n\n"])
def test_an_answer_without_any_event_is_an_error(body: str) -> None:
    """Tried twice, then a temporary failure: exit 75."""
    with ScriptedServer([raw(body)], repeat_last=True) as server, pytest.raises(APIError) as caught:
        asking(server).ask()
    assert (caught.value.kind, int(caught.value.exit_code), len(server.requests)) == ("empty", 75, 2)


def test_the_last_usage_wins_and_is_not_summed() -> None:
    first = {"usage": {"prompt_tokens": 10, "completion_tokens": 1}}
    last = {"usage": {"prompt_tokens": 10, "completion_tokens": 7}}
    zero = {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}
    events = [sse(chunk({"content": "x"}, **first)), sse(chunk({}, "stop", **last)), sse({"choices": [], **zero})]
    assert assemble(events).usage == Usage(10, 7)


@pytest.mark.parametrize("reason", ["length", "model_length", "ERROR_LIMIT", "model_context_window_exceeded"])
@pytest.mark.parametrize("delta", [{"content": ""}, {"reasoning_content": "hm"}])
def test_an_answer_that_ran_into_the_window_without_text_is_an_overflow(reason: str, delta: dict[str, Any]) -> None:
    full = chunk(delta, reason, usage={"prompt_tokens": 90, "completion_tokens": 0})
    with ScriptedServer([raw([sse(full)])]) as server, pytest.raises(ContextOverflow):
        asking(server).ask()


def test_an_error_after_text_keeps_the_text() -> None:
    """The reply is incomplete, carries the error, and nothing is sent again."""
    broken = sse({"error": {"message": "engine died", "code": 500}})
    with ScriptedServer([raw([sse(chunk({"content": "Hello wor"})), broken]), text("never")]) as server:
        reply = asking(server).ask()
    assert (reply.message["content"], reply.complete, len(server.requests)) == ("Hello wor", False, 1)
    assert isinstance(reply.error, APIError) and reply.error.kind == "server"


MONEY = {"code": 402, "message": "This request requires more credits"}
FULL = "prompt is too long: 9000 tokens > 8192 maximum"
INSIDE: list[tuple[str, Any, str]] = [
    ("an overflow", {"code": 400, "message": FULL}, "overflow"),
    ("an overflow as text", FULL, "overflow"),
    ("a rate", {"code": 429, "message": "slow down"}, "rate_limit"),
    ("a rate in its code", {"code": "429"}, "rate_limit"),
    ("money", MONEY, "billing"),
    ("another failure", {"code": 502, "message": "Provider disconnected"}, "server"),
]


@pytest.mark.parametrize("reason", ["error", "stop", None])
@pytest.mark.parametrize("place", ["choice", "delta", "message"])
@pytest.mark.parametrize("error, kind", [row[1:] for row in INSIDE], ids=[row[0] for row in INSIDE])
def test_an_error_inside_a_choice_is_the_fault(error: Any, kind: str, place: str, reason: str | None) -> None:
    """Whatever the finish reason, and not its own words only: what is done about it follows from them."""
    choice: dict[str, Any] = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": reason}
    choice = {**choice, "error": error} if place == "choice" else {**choice, "delta": {}, place: {"error": error}}
    usage = {"prompt_tokens": 3, "completion_tokens": 0}
    with ScriptedServer([raw([sse({"choices": [choice], "usage": usage}), sse("[DONE]")]), text("ok")]) as server:
        asked = asking(server)
        if kind in ("rate_limit", "server"):
            assert asked.ask().message["content"] == "ok"
            return
        with pytest.raises(APIError) as caught:
            asked.ask()
    assert (caught.value.kind, len(server.requests)) == (kind, 1)
    if isinstance(caught.value, ContextOverflow):
        assert (caught.value.have, caught.value.limit) == (9000, 8192)


def test_an_error_inside_a_choice_of_plain_json_and_after_its_finish_reason() -> None:
    whole = {"choices": [{"message": {"content": ""}, "finish_reason": "error", "error": MONEY}]}
    after = [sse(chunk({}, "error")), sse({"error": MONEY})]
    for served_so in (raw(json.dumps(whole), "application/json"), raw(after)):
        with ScriptedServer([served_so]) as server, pytest.raises(APIError) as caught:
            asking(server).ask()
        assert (caught.value.kind, MONEY["message"] in caught.value.text) == ("billing", True)


WORDS: list[tuple[str, str, str]] = [
    # data, kind, what is shown
    ("prompt is too long: 9000 tokens > 8192 maximum", "overflow", "prompt is too long: 9000 tokens > 8192 maximum"),
    ("[ERROR] Rate limit exceeded", "rate_limit", "[ERROR] Rate limit exceeded"),
    ("Error: 您的余额不足", "billing", "Error: 您的余额不足"),
    ('"Invalid API key provided"', "auth", "Invalid API key provided"),
    ("""b'{"error":"Rate limit exceeded"}'""", "rate_limit", "Rate limit exceeded"),
    ("""b'{"error":{"message":"It isn\\'t paid","code":402}}'""", "billing", "It isn't paid"),
    ("""b"no capacity left" """, "overloaded", "no capacity left"),
    ("{'error': {'message': 'Too many requests', 'param': None}}", "rate_limit", "Too many requests"),
    ("{'error': 'context length exceeded (n_ctx=4096, n_tokens=5000)', 'at': now}", "overflow",
     "{'error': 'context length exceeded (n_ctx=4096, n_tokens=5000)', 'at': now}"),
    ("something went wrong upstream", "server", "something went wrong upstream"),
]  # fmt: skip


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b""])
@pytest.mark.parametrize("begin", [b"", b"data: ping\n\n", sse(chunk({"role": "assistant", "content": ""}))])
@pytest.mark.parametrize("data, kind, shown", WORDS)
def test_words_in_place_of_json_are_what_the_server_said(
    data: str, kind: str, shown: str, begin: bytes, end: bytes
) -> None:
    reply = raw([begin, sse(data), end])
    with ScriptedServer([reply], repeat_last=True) as server, pytest.raises(AgentError) as caught:
        asking(server).ask()
    assert (caught.value.kind, caught.value.text.endswith(": " + shown)) == (kind, True)


def test_words_without_any_framing_and_before_a_break() -> None:
    words = "[ERROR] Rate limit exceeded"
    for reply in (raw(words, "text/plain"), raw(words, "application/json"), raw([sse(words)], ending="cut")):
        with ScriptedServer([reply], repeat_last=True) as server, pytest.raises(APIError) as caught:
            asking(server).ask()
        assert caught.value.kind == "rate_limit"


@pytest.mark.parametrize("cut_off", [
    b'data: {"choices": [{"index": 0, "delta": {"content": "He', b'data: {"choices"', b"data: {", b'data: [{"choices": [',
    b'data: "Hel', b"data: [DO", b'data: busy, please wait\n\ndata: {"choi', b'{"choices": [{"message": {"content": "He',
])  # fmt: skip
def test_json_that_is_cut_is_an_answer_that_broke_off(cut_off: bytes) -> None:
    """And is asked for again."""
    with ScriptedServer([raw([cut_off]), text("whole")]) as server:
        asked = asking(server)
        assert asked.ask().message["content"] == "whole"
    waits = [e.reason for e in asked.events if isinstance(e, Waiting)]
    assert waits == ["The connection failed: the answer broke off before its end"]


@pytest.mark.parametrize("cut_off", [b"dat", b"e", b": ping\n\nda", b": ping\n\nretr"])
def test_a_line_that_is_cut_is_no_text_of_another_server(cut_off: bytes) -> None:
    with ScriptedServer([raw([cut_off]), text("whole")]) as server:
        assert asking(server).ask().message["content"] == "whole"


def test_words_beside_an_answer_are_not_its_failure() -> None:
    events = [
        sse("a new server version is coming"),
        sse(chunk({"content": "Hi"})),
        sse(chunk({}, "stop")),
        sse("[DONE]"),
    ]
    with ScriptedServer([raw(events)]) as server:
        reply = asking(server).ask()
    assert (reply.message["content"], reply.complete) == ("Hi", True)


BODIES: list[tuple[Any, str, str]] = [
    ({"message": "Too many requests, slow down"}, "rate_limit", "Too many requests, slow down"),
    ({"Message": FULL}, "overflow", FULL),
    ({"Error": {"Code": "Throttling", "Message": "Request was denied"}}, "rate_limit", "Request was denied"),
    ({"detail": {"message": FULL}}, "overflow", FULL),
    ({"errorMessage": "The model is currently busy", "errorType": "x"}, "overloaded", "The model is currently busy"),
    ({"status": "error", "message": "Payment required"}, "billing", "Payment required"),
    ({"status": "ERROR", "data": {"why": FULL}}, "overflow", FULL),
    ({"choices": [], "message": "Too many requests"}, "rate_limit", "Too many requests"),
    ({"choices": None, "msg": "something broke"}, "server", "something broke"),
    ({"id": 7, "details": "Invalid API key"}, "auth", "Invalid API key"),
]


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize("body, kind, shown", BODIES, ids=[shown for _, _, shown in BODIES])
def test_what_a_body_without_an_answer_says_is_the_failure(body: Any, kind: str, shown: str, framed: bool) -> None:
    """Under whatever key it stands, in plain JSON or in a stream with its end mark."""
    reply = raw([sse(body), sse("[DONE]")]) if framed else raw(json.dumps(body), "application/json")
    with ScriptedServer([reply], repeat_last=True) as server, pytest.raises(AgentError) as caught:
        asking(server).ask()
    assert (caught.value.kind, caught.value.text.endswith(": " + shown)) == (kind, True)


def test_an_error_beside_the_choices_ends_the_answer() -> None:
    """Groq says there why a stream was stopped early; the usage that stands there too is none."""
    last = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": None}],
        "x_groq": {"id": "r", "error": "over_capacity"},
    }
    found = assemble([sse(chunk({"content": "Hel"})), sse(last), sse("[DONE]")])
    assert (found.message["content"], found.complete) == ("Hel", False)
    for well in ({"usage": {"prompt_tokens": 3}}, {"error": {"code": 0, "message": "ok"}}, {"error": True}):
        fine = {**last, "x_groq": {"id": "r", **well}}
        assert assemble([sse(chunk({"content": "Hello"})), sse(fine), sse(chunk({}, "stop")), sse("[DONE]")]).complete


@pytest.mark.parametrize(
    "around",
    [
        lambda choices: {"code": 20000, "msg": "success", "data": {"choices": choices}},
        lambda choices: {"code": "SUCCESS", "msg": "ok", "result": {"choices": choices}},
        lambda choices: {"error": {"code": 0, "message": "success"}, "choices": choices},
    ],
)
def test_an_envelope_that_says_that_all_is_well(around: Callable[[Any], Any]) -> None:
    """Whatever its code: it holds an answer."""
    found = assemble([sse(around([{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]))])
    assert (found.message["content"], found.complete) == ("Hi", True)


@pytest.mark.parametrize(
    "said",
    [
        {"success": False, "code": 500, "message": "quota exceeded", "data": {"choices": []}},
        {"error_code": 336, "error_msg": "too many tokens", "result": {"choices": []}},
        {"data": {"choices": [{"index": 0, "error": {"message": "bad"}}]}},
        {"error": {"message": "OK", "type": "server_error"}},
        {"error": {"code": 0, "message": "ok", "param": "invalid"}},
    ],
)
def test_an_envelope_without_an_answer_is_the_failure_it_tells(said: dict[str, Any]) -> None:
    """An empty list of choices is none, and a word of success beside a fault is not believed."""
    reader, assembler = EventReader(), Assembler()
    for event in reader.feed(sse(said)) + reader.close():
        assembler.take(event)
    assert assembler.fault is not None


def test_a_finish_reason_in_camel_case() -> None:
    choice = {"index": 0, "delta": {"content": "lo"}, "finish_reason": None, "finishReason": "length"}
    found = assemble([sse({"choices": [choice]})])
    assert (found.message["content"], found.complete, found.truncated) == ("lo", True, True)


def test_marks_of_a_template_are_no_part_of_a_name() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "ls<|channel|>commentary", "arguments": "{}"}}
    found = assemble([sse(chunk({"tool_calls": [call]})), sse(chunk({}, "tool_calls"))])
    assert [call.name for call in tool_calls(found.message)] == ["ls"]


def test_an_error_inside_a_choice_that_says_nothing_is_none() -> None:
    choices = [
        {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop", "error": e} for e in (None, {}, {"code": None})
    ]
    for choice in choices:
        assert assemble([sse({"choices": [choice]})]).complete


# ---- the short way ----

DELTAS = st.fixed_dictionaries(
    {
        "content": st.one_of(
            st.sampled_from(["word ", "", "你好", "<think>", "</think>", "\ud83d", "\ude00", "a\nb", "\x1b[0m"]),
            st.none(),
        )
    },
    optional={"role": st.just("assistant"), "reasoning_content": st.just("hm"), "refusal": st.just("no")},
)
CHOICES = st.fixed_dictionaries(
    {"delta": DELTAS},
    optional={
        "index": st.sampled_from([0, 1, None, "", "0"]),
        "finish_reason": st.sampled_from([None, "stop", "length", ""]),
        "stop_reason": st.sampled_from([None, "length"]),
        "logprobs": st.none(),
        "usage": st.just({"prompt_tokens": 9, "completion_tokens": 1}),
    },
)
USAGES = st.sampled_from([None, {}, {"prompt_tokens": 5, "completion_tokens": 2}])
CHUNKS = st.fixed_dictionaries(
    {"choices": st.lists(CHOICES, max_size=2)},
    optional={
        "id": st.just("x"),
        "model": st.sampled_from(["m", "", None]),
        "usage": USAGES,
        "error": st.sampled_from([None, {"message": "broken"}]),
        "done": st.booleans(),
        "metadata": st.fixed_dictionaries({"usage": USAGES}),
        "prompt_eval_count": st.just(7),
    },
)


@settings(max_examples=300)
@given(st.lists(CHUNKS, max_size=12))
def test_the_short_way_of_plain_chunks_comes_to_the_same(chunks: list[dict[str, Any]]) -> None:
    """With it and without: the same fragments in the same order, the same answer, reason, usage, model and fault."""
    short, long = Assembler(), Assembler()
    seen: list[tuple[str, str]] = []
    wanted: list[tuple[str, str]] = []
    for value in chunks:
        plain = short.plain(value)
        seen += [("text", plain)] if plain else [tuple(delta) for delta in short.take(Event("", b"", value))]
        wanted += [tuple(delta) for delta in long.take(Event("", b"", value))]
    assert seen == wanted
    assert short.finish() == long.finish()
    assert (short.started, short.ended, short.done, short.fault) == (long.started, long.ended, long.done, long.fault)


def test_the_everyday_chunks_of_servers_take_the_short_way() -> None:
    head: dict[str, Any] = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    everyday: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": {"content": "w"}, "finish_reason": None}]},
        {**head, "usage": None, "obfuscation": "ab", "service_tier": "default", "system_fingerprint": "fp",
         "choices": [{"index": 0, "delta": {"content": "w"}, "logprobs": None, "finish_reason": None}]},
        {**head, "provider": "p", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "w"},
                                               "finish_reason": None, "native_finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {"content": "w"}, "stop_reason": None, "finish_reason": None}]},
    ]  # fmt: skip
    assembler = Assembler()
    assembler.take(Event("", b"", everyday[0]))
    assert [assembler.plain(value) for value in everyday] == ["w"] * 4
