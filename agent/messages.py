"""The values that modules hand to each other: messages, requests, replies, usage, and the `Model` protocol.

A *message* is an OpenAI chat message: a plain dict, kept as it was parsed. Everything else here is a small frozen
record. No I/O, no decisions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

Message = dict[str, Any]
Schema = dict[str, Any]


class Usage(NamedTuple):
    """Tokens as the server reported them for one request.

    `prompt` counts the whole prompt, cached tokens included; `cached` is the part of it that a prompt cache served, or
    None when the server does not say.
    """

    prompt: int
    completion: int = 0
    cached: int | None = None

    def plus(self, other: Usage | None) -> Usage:
        """What both took together; what one does not say is left out of the sum."""
        if other is None:
            return self
        known = [n for n in (self.cached, other.cached) if n is not None]
        return Usage(self.prompt + other.prompt, self.completion + other.completion, sum(known) if known else None)

    def as_json(self) -> dict[str, int]:
        """The form in a session file: absent rather than null."""
        found = {"prompt_tokens": self.prompt, "completion_tokens": self.completion}
        if self.cached is not None:
            found["cached_tokens"] = self.cached
        return found


CostOf = Callable[[Usage], float | None]
"""What a request costs in dollars, or None where that is not known."""


MOST_TOKENS = 10**12
"""What says that it took more is no usage."""


def usage_from_json(stored: Any) -> Usage | None:
    """Read what `Usage.as_json` wrote; None for anything that is not a usage."""
    if not isinstance(stored, dict):
        return None
    prompt = _count(stored.get("prompt_tokens"))
    completion, cached = _count(stored.get("completion_tokens")), _count(stored.get("cached_tokens"))
    return None if prompt is None else Usage(prompt, completion or 0, cached)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value <= MOST_TOKENS else None


class ToolCall(NamedTuple):
    """One call the model asked for; `arguments` is the JSON text as the model wrote it, not checked."""

    id: str
    name: str
    arguments: str


def tool_calls(message: Message) -> list[ToolCall]:
    """The calls of an assistant message, in order; [] when it asks for none. Total: damaged calls become empty text."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return []
    found = []
    for call in calls:
        if isinstance(call, dict):
            function = call.get("function")
            function = function if isinstance(function, dict) else {}
            named = (call.get("id"), function.get("name"), function.get("arguments"))
            found.append(ToolCall(*map(_text, named)))
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def text_of(message: Message) -> str:
    """The text of a message: its content, or the text parts of a list of parts joined by newlines. Never None."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (p.get("text") for p in content if isinstance(p, dict))
        return "\n".join(part for part in parts if isinstance(part, str))
    return ""


def images(message: Message) -> list[Any]:
    """The parts of a message that are no text."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, dict) and part.get("type") not in ("text", None)]


def nothing() -> None:
    """Do nothing."""


class Request(NamedTuple):
    """One model call, before it is put into a provider's dialect.

    `max_tokens` caps the answer (tokens); None leaves it to the server. `purpose` is "task" for the user's own
    requests and "summary" for the one request a compaction makes.
    """

    messages: Sequence[Message]
    tools: Sequence[Schema] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    response_format: dict[str, Any] | None = None
    purpose: str = "task"
    call_tools: bool = True
    """False: the tools are shown (so that the cached prefix stays) but none may be called."""
    meanwhile: Callable[[], object] = nothing
    """What is done while the server thinks: called once all is sent, again when it is sent again. Raises nothing."""


class Sent:
    """What went over the wire for one request: enough to show it again and prove it.

    `sha256` is over the bytes of the request's `messages` array (see `agent.wire`); `count` its length; `dialect` the
    non-default rules under which it was prepared. The bytes are digested when somebody asks: for a long conversation
    that takes longer than to send it, and there is time while the server thinks.
    """

    def __init__(self, written: bytes, count: int, dialect: dict[str, Any] | None = None) -> None:
        self.count, self.dialect = count, dialect or {}
        self._written = written

    @cached_property
    def sha256(self) -> str:
        """In hex."""
        digest = hashlib.sha256(self._written).hexdigest()
        self._written = b""
        return digest


class Reply(NamedTuple):
    """One answer of a model.

    `complete` is False when the stream ended without a finish reason: then `error` says why (it may be a
    KeyboardInterrupt) and `message` holds what had come. Open tool calls of an incomplete reply are already removed.
    `truncated` when the answer was cut by a token limit: its tool calls stay in the message, as they were written, so
    that each can be answered; `cut_calls` counts them, and none may run.
    """

    message: Message
    finish_reason: str | None
    usage: Usage | None
    model: str
    sent: Sent
    complete: bool = True
    truncated: bool = False
    cut_calls: int = 0
    error: BaseException | None = None
    seconds: float = 0.0


class Delta(NamedTuple):
    """A fragment of a streamed answer: `kind` is "text" or "reasoning"."""

    kind: str
    text: str


class Model(Protocol):
    """What the loop and a compaction need of a model; `agent.client.ChatClient` is one."""

    @property
    def name(self) -> str:
        """The model's name, as usage is reported under."""
        ...

    @property
    def takes_tools(self) -> bool:
        """Whether tools may be offered to it."""
        ...

    @property
    def structured(self) -> str:
        """How its server holds an answer to a `response_format`: "sampling" (the prompt stays as it is), "prompt" (the
        schema joins the beginning of the prompt, so that a cached one is of no use), "" (not known to)."""
        ...

    def complete(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        """Make one request and return its answer.

        Raises: `ContextOverflow`, `OutputCapTooLarge`, `AuthError`, `APIError`, `TemporaryError` before any text was
        streamed. Once text was streamed nothing is raised: the reply is incomplete and carries the error.
        """
        ...
