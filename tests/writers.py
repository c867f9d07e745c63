"""Models that only write summaries, and sessions to compact: what the tests of compaction share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.compaction import Compactor
from agent.compaction.form import HEADINGS
from agent.events import Compacted, Compacting, Event, NotCompacted
from agent.messages import Delta, Message, Reply, Request, Schema, Sent, Usage, text_of
from agent.session import Session
from agent.tokens import Limits, limits_for

READ: Schema = {
    "type": "function",
    "function": {"name": "read_file", "description": "Read.", "parameters": {"type": "object", "properties": {}}},
}


def sections(facts: str = "none", goal: str = "Make the report work for the people who read it.") -> str:
    """A summary with every heading."""
    filled = {"Goal": goal, "Facts and decisions": facts}
    return "\n".join(f"## {name}\n- {filled.get(name, 'none')}" for name in HEADINGS)


def reply(text: str | None, finish: str | None = "stop", *, calls: int = 0, **more: Any) -> Reply:
    message: Message = {"role": "assistant", "content": text}
    if calls:
        call = {"type": "function", "function": {"name": "read_file", "arguments": "{}"}}
        message["tool_calls"] = [{"id": f"c{i}", **call} for i in range(calls)]
    return Reply(message, finish, Usage(100, 20, 80), "writer", Sent(b"", 0), **more)


Script = Sequence[Reply | BaseException] | Callable[[Request], Reply]


@dataclass
class Writer:
    """Answers with the replies of its script in order (the last repeats), raises those that are exceptions."""

    script: Script
    name: str = "writer"
    takes_tools: bool = True
    structured: str = ""
    window: int | None = None
    requests: list[Request] = field(default_factory=list)

    def complete(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        self.requests.append(request)
        if callable(self.script):
            return self.script(request)
        answer = self.script[min(len(self.requests), len(self.script)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer


@dataclass
class Talk:
    """A session in memory with its compactor, and what both showed."""

    session: Session
    model: Writer
    limits: Limits
    tools: Sequence[Schema] = ()
    events: list[Event] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def compactor(self) -> Compactor:
        """A compactor as a new process would make it: it knows nothing but the session."""
        return Compactor(self.session, self.model, self.limits, self.tools, self.events.append, **self.more)

    def say(self, role: str, text: str, **entry: Any) -> dict[str, Any]:
        message = {"role": role, "content": text}
        return self.session.append({"type": "message", "message": message, **entry})

    def answer(self, text: str, prompt_tokens: int | None = None) -> None:
        """An assistant's answer, with the usage that the server reported."""
        more: dict[str, Any] = {"model": self.model.name, "request": {"k": self.session.next_request()}}
        if prompt_tokens is not None:
            more["usage"] = Usage(prompt_tokens, 10).as_json()
        self.say("assistant", text, **more)

    def act(self, path: str, result: str, name: str = "read_file", **about: Any) -> None:
        """One step: a call and its result."""
        id = f"call_{len(self.session.entries)}"
        function = {"name": name, "arguments": f'{{"path": "{path}"}}'}
        call = {"id": id, "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        self.session.append({"type": "message", "message": message})
        result_message = {"role": "tool", "tool_call_id": id, "content": result}
        self.session.append({"type": "message", "message": result_message, "tool": {"name": name, "ok": True, **about}})

    def texts(self) -> list[str]:
        return [text_of(message) for message in self.session.view()]

    def whole(self) -> str:
        return "\n".join(self.texts())

    def told(self) -> list[str]:
        """The events of compaction by name, the unsuccessful ones with their reason."""
        names = []
        for event in self.events:
            if isinstance(event, NotCompacted):
                names.append(f"NotCompacted {event.why}")
            elif isinstance(event, Compacting | Compacted):
                names.append(type(event).__name__)
        return names

    def record(self) -> dict[str, Any]:
        return next(e.record for e in reversed(self.events) if isinstance(e, Compacted))


def talk(model: Writer | None = None, window: int = 4000, system: str = "You help.", **more: Any) -> Talk:
    """A new session in memory with a system message."""
    tools = more.pop("tools", ())
    limits = limits_for(window, "flag", compact_at=more.pop("compact_at", None))
    made = Talk(Session.ephemeral({"model": "writer"}), model or Writer([reply(sections())]), limits, tools, more=more)
    if system:
        made.say("system", system)
    return made


def chatter(made: Talk, turns: int, words: int = 90) -> None:
    """Small talk, two messages a turn, about `words` words each."""
    for turn in range(turns):
        made.say("user", f"Question {turn}: " + "what do you make of it all then " * (words // 7))
        made.answer("Well, one could say this or that about it, " * (words // 9))
