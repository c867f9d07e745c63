"""A real llama.cpp server on loopback, through the real client: text, usage, cache, tools, formats, overflow."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.client import ChatClient
from agent.compaction import Compactor, summary
from agent.errors import ContextOverflow
from agent.events import Event
from agent.messages import Delta, Reply, Request, tool_calls
from agent.session import Session
from agent.tokens import limits_for
from agent.wire import Dialect
from agent.wire.memory import Memory
from agent.wire.providers import Target

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench import llama

WINDOW = 2048
TALK = ("user", "assistant")
TOOLS = [{
    "type": "function",
    "function": {"name": "ls", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}},
}]  # fmt: skip


@pytest.fixture(scope="module")
def server(model_file: str) -> Iterator[str]:
    """The base URL of a server with a window of 2,048 tokens."""
    running = llama.serve(model_file, WINDOW, llama.TEMPLATE)
    yield f"{running.listening_address}/v1"
    del running


class Asking:
    def __init__(self, url: str, dialect: Dialect | None = None, **more: Any) -> None:
        self.events: list[Event] = []
        self.deltas: list[Delta] = []
        self.memory = Memory()
        target = Target("", url, "local", dialect=dialect or Dialect(alternate=True))
        self.client = ChatClient(target, emit=self.events.append, memory=self.memory, environ={}, **more)

    def ask(self, prompt: str, **more: Any) -> Any:
        messages = more.pop("messages", [{"role": "user", "content": prompt}])
        return self.client.complete(Request(messages, **{"max_tokens": 24, **more}), self.deltas.append)


@pytest.fixture
def asking(server: str) -> Iterator[Asking]:
    made = Asking(server)
    yield made
    made.client.close()


def test_text_streams_and_is_counted(asking: Asking) -> None:
    """And the second request of a conversation is served from the cache: the prefix is the same to the byte."""
    first = asking.ask("Name three colours.", temperature=0.0)
    assert first.complete and first.message["content"] == "".join(d.text for d in asking.deltas)
    assert len(asking.deltas) > 3
    talk = [
        {"role": "user", "content": "Name three colours."},
        first.message,
        {"role": "user", "content": "And three more."},
    ]
    second = asking.ask("", messages=talk)
    assert second.usage.prompt > first.usage.prompt > 0
    assert second.usage.cached >= first.usage.prompt - 1


def test_an_answer_cut_by_its_limit_is_truncated(asking: Asking) -> None:
    reply = asking.ask("Count from one to a hundred in words.", max_tokens=5)
    assert (reply.finish_reason, reply.truncated, reply.usage.completion) == ("length", True, 5)


def test_the_window_is_asked_for_and_an_overflow_is_exact(asking: Asking) -> None:
    """Typed numbers of the server, learned for next time."""
    assert asking.client.ask_window() == WINDOW
    with pytest.raises(ContextOverflow) as caught:
        asking.ask("word " * 4000)
    assert caught.value.limit == WINDOW
    assert caught.value.have is not None and caught.value.have > 4000
    assert asking.memory.of(asking.client.target.base_url, "local")["window"] == WINDOW


def test_a_response_format_is_obeyed(asking: Asking) -> None:
    """The server holds the toy to a schema."""
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    reply = asking.ask("Say yes.", response_format=wanted, max_tokens=16)
    assert isinstance(json.loads(reply.message["content"])["ok"], bool)


def test_a_tool_result_goes_back_to_a_template_with_tools(asking: Asking) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}
    talk = [
        {"role": "user", "content": "List the files."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "a.txt", "tool_call_id": "c1"},
    ]
    answer = asking.ask("", messages=talk, tools=TOOLS, max_tokens=8)
    assert answer.finish_reason in ("stop", "length", "tool_calls")
    assert all(c.name == "ls" for c in tool_calls(answer.message))


def test_any_shape_of_conversation_is_accepted(asking: Asking) -> None:
    """Orphans, empty turns, two users, a late system message: prepared, a real template takes them."""
    talk = [
        {"role": "tool", "content": "orphan", "tool_call_id": "x"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "one"},
        {"role": "user", "content": "two \ud83d"},
        {"role": "system", "content": "late"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "ls", "arguments": "{"}}]},
        {"role": "user", "content": "go on"},
    ]
    assert asking.ask("", messages=talk, tools=TOOLS).complete


def test_a_real_model_calls_a_tool(asking: Asking) -> None:
    """Shown how, even a toy asks for a tool: the server's own parser makes a call of it, and the client reads it."""
    messages: list[dict[str, Any]] = []
    for at, path in enumerate(["src", "docs", "bin"]):
        function = {"name": "ls", "arguments": json.dumps({"path": path})}
        messages += [
            {"role": "user", "content": f"List {path}."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{at}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{at}", "content": f"{path}/one"},
            {"role": "assistant", "content": f"There is {path}/one."},
        ]
    reply = asking.ask("", messages=[*messages, {"role": "user", "content": "List tests."}], tools=TOOLS, max_tokens=64)
    [call] = tool_calls(reply.message)
    assert (call.name, reply.finish_reason, list(json.loads(call.arguments))) == ("ls", "tool_calls", ["path"])
    assert call.id


class Watched:
    """The real client, with its replies kept to look at."""

    def __init__(self, client: ChatClient) -> None:
        self.client = client
        self.replies: list[tuple[str, Reply]] = []

    @property
    def name(self) -> str:
        return self.client.name

    @property
    def takes_tools(self) -> bool:
        return self.client.takes_tools

    @property
    def structured(self) -> str:
        return self.client.structured

    def complete(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        reply = self.client.complete(request, on_delta)
        self.replies.append((request.purpose, reply))
        return reply


def test_the_summary_call_is_served_from_the_cache(asking: Asking) -> None:
    """It repeats the conversation to the byte and puts its instruction last: only that has to be read anew."""
    session = Session.ephemeral({"cwd": "/", "model": "local"})
    say = [
        ("system", "You are brief."),
        *[(r, f"{r} says: river {i} is long and wide.") for i in range(12) for r in TALK],
    ]
    for role, words in say:
        session.append({"type": "message", "message": {"role": role, "content": words}})
    model = Watched(asking.client)
    asked = model.complete(Request(session.view(), TOOLS, max_tokens=8), asking.deltas.append)
    Compactor(session, model, limits_for(WINDOW, "server"), TOOLS, asking.events.append).now()
    asking.client.close()
    purpose, answer = model.replies[1]
    assert purpose == "summary"
    assert asked.usage and answer.usage and answer.usage.cached is not None
    fresh = answer.usage.prompt - answer.usage.cached
    assert answer.usage.cached > 200
    assert fresh < answer.usage.prompt / 2, answer.usage


def test_a_summary_held_to_a_schema_is_served_from_the_cache_too(server: str) -> None:
    """The server's sampler keeps to the schema, and the prompt stays as it was: shown tools, not called, and all."""
    asking = Asking(server, summary_format="json")
    head = [{"role": r, "content": f"{r} says: river {i} is long and wide."} for i in range(12) for r in TALK]
    asked = asking.ask("", messages=head[:-1], tools=TOOLS, max_tokens=8)
    structured = asking.client.structured
    (request,) = summary.requests_for(head, [], TOOLS, window=WINDOW, cap=200, structured=structured)
    answer = asking.client.complete(request, asking.deltas.append)
    asking.client.close()
    assert re.match(r'\{\s*"Goal": \[\s*"', str(answer.message["content"]))
    assert asked.usage.prompt and answer.usage and (answer.usage.cached or 0) >= asked.usage.prompt - 8
