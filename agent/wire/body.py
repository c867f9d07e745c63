"""A request in a provider's dialect: the exact bytes that are sent, and the `Sent` that proves them.

Pure. The messages stand in the body as `wire.encode_messages` wrote them, byte for byte; the order of the keys is
fixed, so that two requests of one conversation share their beginning.
"""

from __future__ import annotations

from typing import Any

import orjson

from agent.messages import Request, Sent
from agent.wire import Dialect, encode_messages, prepare_for_wire


def encode_request(request: Request, model: str, dialect: Dialect, cap: int | None = None) -> tuple[bytes, Sent]:
    """The body of a chat-completions request, and what was sent. `cap` (tokens) replaces the request's own output
    limit where that is missing or larger."""
    prepared = prepare_for_wire(request.messages, dialect)
    written = encode_messages(prepared)
    sent = Sent(written, len(prepared), dialect.as_json())
    rest = {k: v for k, v in _parameters(request, dialect, cap).items() if k not in dialect.drop}
    head, tail = orjson.dumps({"model": model}), orjson.dumps(rest)
    return b"".join((head[:-1], b',"messages":', written, b"," + tail[1:] if rest else b"}")), sent


def output_cap(request: Request, cap: int | None) -> int | None:
    """The output limit to send: the smaller of the two that are known."""
    return min((n for n in (request.max_tokens, cap) if n is not None), default=None)


def _parameters(request: Request, dialect: Dialect, cap: int | None) -> dict[str, Any]:
    """Everything but model and messages, in the order it is sent."""
    found: dict[str, Any] = {}
    shown = bool(request.tools) and dialect.tools and (request.call_tools or "tool_choice" not in dialect.drop)
    if shown:
        found["tools"] = list(request.tools)
        if not request.call_tools:
            found["tool_choice"] = "none"
    limit = output_cap(request, cap)
    if limit is not None:
        found[dialect.output_cap] = limit
    if request.temperature is not None:
        found["temperature"] = request.temperature
    if request.response_format is not None:
        found["response_format"] = request.response_format
    found["stream"] = True
    if "stream" not in dialect.drop:
        found["stream_options"] = {"include_usage": True}
    return found
