"""Answers in another API's events, streamed and whole, as ordinary messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.messages import Usage, tool_calls
from agent.wire.sse import EventReader
from agent.wire.stream import Assembled, Assembler

CALL = ("ls", {"p": "."})


def assemble(*events: Any) -> Assembled:
    """What comes of these values, one JSON line each."""
    reader, assembler = EventReader(), Assembler()
    for event in reader.feed("\n".join(json.dumps(e) for e in events).encode()) + reader.close():
        assembler.take(event)
    return assembler.finish()


ANSWERS: list[tuple[str, list[Any], Usage | None]] = [
    ("an Anthropic message", [{
        "type": "message", "role": "assistant", "model": "c", "stop_reason": "tool_use",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hi"},
                    {"type": "tool_use", "id": "t1", "name": "ls", "input": {"p": "."}}],
        "usage": {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 20}}], Usage(25, 2, 20)),
    ("a response of OpenAI", [{
        "object": "response", "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hi"}]},
                   {"type": "function_call", "call_id": "t1", "name": "ls", "arguments": '{"p": "."}'}],
        "usage": {"input_tokens": 25, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 20}}}], Usage(25, 2, 20)),
    ("a stream of Ollama", [
        {"model": "m", "message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": False},
        {"model": "m", "message": {"role": "assistant", "content": "Hi"}, "done": False},
        {"model": "m", "message": {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "ls", "arguments": {"p": "."}}}]},
         "done": False},
        {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop",
         "prompt_eval_count": 25, "eval_count": 2}], Usage(25, 2)),
    ("an array of Gemini", [[
        {"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}, {"text": "Hi"}]}}]},
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "ls", "args": {"p": "."}}}]}, "finishReason": "STOP"}],
         "usageMetadata": {"promptTokenCount": 25, "candidatesTokenCount": 2, "cachedContentTokenCount": 20}}]], Usage(25, 2, 20)),
    ("Gemini in an envelope", [{"response": {
        "candidates": [{"content": {"parts": [{"text": "Hi"}, {"functionCall": {"name": "ls", "args": {"p": "."}}}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 25, "candidatesTokenCount": 2}}}], Usage(25, 2)),
    ("a stream of Cohere", [
        {"type": "content-delta", "delta": {"message": {"content": {"text": "Hi"}}}},
        {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": {"id": "t1", "function": {"name": "ls", "arguments": ""}}}}},
        {"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": {"function": {"arguments": '{"p": "."}'}}}}},
        {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL", "usage": {"tokens": {"input_tokens": 25, "output_tokens": 2}}}}],
     Usage(25, 2)),
    ("Bedrock's events", [
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Hi"}}},
        {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t1", "name": "ls"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": '{"p": "."}'}}}},
        {"messageStop": {"stopReason": "tool_use"}},
        {"metadata": {"usage": {"inputTokens": 5, "outputTokens": 2, "cacheReadInputTokens": 20}}}], Usage(25, 2, 20)),
    ("a chunk in a gateway's envelope", [{"data": {"choices": [{"message": {
        "content": "Hi", "tool_calls": [{"id": "t1", "function": {"name": "ls", "arguments": '{"p": "."}'}}]}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 25, "completion_tokens": 2}}}], Usage(25, 2)),
]  # fmt: skip


@pytest.mark.parametrize("events, usage", [a[1:] for a in ANSWERS], ids=[a[0] for a in ANSWERS])
def test_text_call_and_usage_are_the_same_whoever_tells_them(events: list[Any], usage: Usage | None) -> None:
    answer = assemble(*events)
    assert answer.message["content"] == "Hi"
    assert [(c.name, json.loads(c.arguments)) for c in tool_calls(answer.message)] == [CALL]
    assert (answer.complete, answer.usage) == (True, usage)
    assert answer.message.get("reasoning_content", "hm") == "hm"


KEYS = ["type", "delta", "message", "content", "candidates", "contentBlockDelta", "metadata", "done", "output", "index", "item",
        "content_block", "response", "usage", "choices", "parts", "tool_calls", "error", "text", "role"]  # fmt: skip
WORDS = ["message_start", "content_block_start", "content_block_delta", "message_delta", "message", "content-delta", "tool_use",
         "response.output_item.added", "response.completed", "message-end", "text"]  # fmt: skip
EVENT = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 5) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), EVENT, max_size=5), max_size=5))
@settings(max_examples=500, deadline=None)
def test_any_event_in_any_shape_gives_a_message(events: list[Any]) -> None:
    """Known words in unknown places: never an exception, always a message."""
    answer = assemble(*events)
    assert answer.message["role"] == "assistant"
    assert isinstance(answer.message["content"], (str, type(None)))
