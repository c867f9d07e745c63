"""The exact request in each dialect, as golden files. AGENT_TEST_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import json
import os

import orjson
import pytest
from wiring import DATA

from agent.messages import Request
from agent.wire import Dialect, digest, encode_messages, prepare_for_wire
from agent.wire.body import encode_request, output_cap
from agent.wire.providers import TABLE

TOOLS = [{"type": "function", "function": {"name": "ls", "description": "List.", "parameters": {"type": "object"}}}]
TALK = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "列出文件"},
    {"role": "assistant", "content": None, "reasoning_content": "two calls", "reasoning_details": [{"type": "reasoning.text", "text": "x"}],
     "tool_calls": [
         {"id": "call_abc123", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'},
          "extra_content": {"google": {"thought_signature": "c2ln"}}},
         {"id": "call_abc124", "type": "function", "function": {"name": "ls", "arguments": ""}}]},
    {"role": "tool", "content": "a\nb", "tool_call_id": "call_abc123"},
    {"role": "user", "content": "stop"},
    {"role": "user", "content": "which is newer?"},
]  # fmt: skip
REQUEST = Request(TALK, TOOLS, max_tokens=256, temperature=0.0)
UPDATE = bool(os.environ.get("AGENT_TEST_UPDATE_GOLDEN"))
DIALECTS = {
    "plain": Dialect(),
    **{p.name: p.dialect for p in TABLE if p.dialect != Dialect()},
    "no-tools": Dialect(tools=False, silent_content="empty", drop=("temperature", "stream_options")),
    "developer": Dialect(system="developer"),
    "folded": Dialect(system="fold", alternate=True, silent_content="omit"),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_a_request_in_this_dialect(name: str) -> None:
    body, sent = encode_request(REQUEST, "a-model", DIALECTS[name])
    path = os.path.join(DATA, "golden", f"{name}.json")
    if UPDATE:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(json.loads(body), ensure_ascii=False, indent=1) + "\n")
    with open(path, encoding="utf-8") as file:
        assert json.loads(body) == json.loads(file.read())
    assert Dialect.from_json(sent.dialect) == DIALECTS[name]


def test_the_messages_stand_in_the_body_byte_for_byte() -> None:
    """What the digest proves is what was sent."""
    body, sent = encode_request(REQUEST, "a-model", Dialect())
    prepared = prepare_for_wire(TALK)
    assert body.startswith(b'{"model":"a-model","messages":' + encode_messages(prepared) + b',"tools":')
    assert (sent.sha256, sent.count) == (digest(prepared), len(prepared))
    assert orjson.loads(body)["messages"] == prepared


def test_the_smaller_output_limit_is_sent() -> None:
    assert [output_cap(Request([], max_tokens=n), cap) for n, cap in ((9, None), (None, 5), (9, 5), (4, 5), (None, None))] == [
        9, 5, 5, 4, None,
    ]  # fmt: skip
