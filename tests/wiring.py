"""What the tests of the wire share: a client on a scripted server whose clock, sleep and dice are in the test's
hand."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from server import ScriptedServer

from agent.client import ChatClient
from agent.events import Event, Notice, Waiting
from agent.messages import Delta, Reply, Request
from agent.wire import Dialect
from agent.wire.providers import Target

DATA = os.path.join(os.path.dirname(__file__), "data", "wire")
KEY = "sk-test-0123456789abcdef"


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a corpus file."""
    with open(os.path.join(DATA, f"{name}.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file.read().split("\n") if line]


def body_of(row: dict[str, Any]) -> bytes:
    body = row["body"]
    return (body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)).encode()


@dataclass
class Asking:
    """A client and everything it showed. Time passes only when the client sleeps."""

    client: ChatClient = field(init=False)
    events: list[Event] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)
    debug: list[str] = field(default_factory=list)

    def ask(self, prompt: str = "hello", **more: Any) -> Reply:
        messages = more.pop("messages", [{"role": "user", "content": prompt}])
        return self.client.complete(Request(messages, **more), self.deltas.append)

    def codes(self) -> list[str]:
        """The codes of the notices, in order."""
        return [e.code for e in self.events if isinstance(e, Notice)]

    def waits(self) -> list[float]:
        return [e.seconds for e in self.events if isinstance(e, Waiting)]

    @property
    def shown(self) -> str:
        return "".join(d.text for d in self.deltas if d.kind == "text")


def asking(
    server: ScriptedServer,
    *,
    provider: str = "",
    model: str = "scripted",
    dialect: Dialect | None = None,
    **options: Any,
) -> Asking:
    """A client on this server. Its dice always show 0 and its sleep only adds up."""
    made = Asking()
    target = Target(provider, server.url, model, KEY, dialect or Dialect())
    settings: dict[str, Any] = {"sleep": made.slept.append, "dice": lambda: 0.0, "environ": {}, **options}
    made.client = ChatClient(target, emit=made.events.append, debug=made.debug.append, **settings)
    server.at_exit.append(made.client.close)
    return made
