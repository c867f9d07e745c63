"""What went wrong, decided once: a refused request -> an error with its class, exit code and advice.

`classify` reads the body first and the status last, since gateways hide an overflow behind 502 and a billing problem
behind 429. Which kind it is, `agent.wire.kinds` decides; what follows from a kind stands here:

    overflow           the prompt does not fit                 output_cap      more output asked than the model gives
    rate_limit         waiting helps                           rate_limit_size one request larger than the rate allows
    quota, billing     a plan's limit, or money                auth, permission
    not_found          model or path                           params          a parameter the server does not take
    field_limit        one field too long                      tool_history    the conversation's shape was refused
    tool_output        the model wrote a bad call              schema          a tool's schema was refused
    media              an image or file                        content_filter  refused for what it says
    overloaded, server, timeout, connection, html (a page instead of an answer), garbled (text instead), empty,
    bad_request
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.errors import AgentError, APIError, AuthError, ContextOverflow, OutputCapTooLarge, TemporaryError
from agent.redact import redact
from agent.wire.refusal import LEAST_SIZE, Reading, read_body
from agent.wire.retry import asked_delay

PARAMETERS = (
    "stream_options", "temperature", "response_format", "tool_choice", "parallel_tool_calls", "max_completion_tokens",
    "max_tokens", "tools", "stream",
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """A refused request: the HTTP status (None when the connection failed), headers with lower-case names, the body as
    bytes or, for an error inside a stream, as a value. `provider` is the target's name; `secrets` are never repeated;
    `near_window` whether our own estimate is close to the window (None: not known); `now` Unix time."""

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = b""
    provider: str = ""
    secrets: Iterable[str] = ()
    near_window: bool | None = None
    now: float = 0.0


def classify(answer: Answer) -> AgentError:
    """The error an answer stands for: an `APIError` (or `AuthError`) with `kind`, `retryable` and `retry_after` set."""
    from agent.wire.kinds import kind_of  # the rules take 10 ms to read: only a refused request pays for them

    reading = read_body(answer.body)
    status = _status(answer.status, reading)
    kind = kind_of(status, reading, answer.provider, answer.near_window)
    delay = asked_delay(answer.headers, reading.typed, reading.text, answer.now)
    if kind == "rate_limit" and (delay or 0) >= 3600:
        kind = "quota"
    said = redact(reading.said or reading.title, answer.secrets)[:400].strip().rstrip(".")
    body = redact(_shown(answer.body), answer.secrets)
    error = _error(kind, said, status, reading, body, passes=delay is not None)
    if isinstance(error, APIError):
        error.retry_after = delay
        error.retryable, error.retries = _retry(kind, status, reading, answer.headers)
    return error


def _status(status: int | None, reading: Reading) -> int | None:
    """The status that counts: a 200's error may carry its own."""
    if status is not None and status >= 400:
        wrapped = status >= 500 and status not in (503, 529)
        return reading.status or status if wrapped else status
    for key in ("http_status_code", "status_code", "http_code", "code", "status"):
        value = reading.typed.get(key)
        value = int(value) if isinstance(value, str) and re.fullmatch(r"[45]\d\d", value) else value
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return reading.status or status


def _retry(kind: str, status: int | None, reading: Reading, headers: Mapping[str, str]) -> tuple[bool, int | None]:
    """Whether a retry may help, and how often (None: the whole ladder)."""
    forced = headers.get("x-should-retry")
    if forced in ("true", "false") and kind not in ("overflow", "output_cap"):
        return forced == "true", None
    if kind == "tool_output" or (kind == "not_found" and "model_not_supported" in reading.codes):
        return True, 1
    if kind == "server":
        once = 1 if "unexpectedly stopped" in reading.text else None
        full = re.search(
            r"system memory|out of memory|cuda[^.]*memory|(?:insufficient|not enough|available) memory|memory (?:guard|limit)|"
            r"prefill[^.]{0,40}memory",
            reading.text,
        )
        return full is None, once
    if kind in ("html", "empty"):
        return (status or 0) >= 500, None
    return kind in _TEMPORARY, None


_TEMPORARY = {"rate_limit", "overloaded", "timeout", "connection"}
_SAYS: dict[str, tuple[str, str]] = {
    "overflow": ("The conversation is larger than the model's window", "Compact it: agent sessions compact ID"),
    "output_cap": ("More output was asked for than the model gives", "Lower --max-tokens"),
    "rate_limit": ("The server asks to slow down", "Wait a little and run the command again"),
    "rate_limit_size": (
        "This request is larger than your rate limit allows in one minute, so waiting does not help",
        "Compact the session, lower --max-tokens, or use a larger tier",
    ),
    "quota": ("Your usage limit at this provider is reached", "Wait until it resets, or use another model with -m"),
    "billing": ("The account at this provider has no credit", "Top it up, or use another provider with -m"),
    "auth": ("The server does not accept the API key", "Check the key; agent doctor shows which variable it came from"),
    "permission": (
        "The server does not allow this request",
        "Check what this key and plan may use, or choose another -m",
    ),
    "not_found": (
        "The server does not know this model or address",
        "Check -m and the base URL: agent doctor, agent models",
    ),
    "params": (
        "The server does not accept a parameter of this request",
        "--debug shows it; agent doctor tests what the server accepts",
    ),
    "field_limit": ("One field of the request is too long for this server", "Shorten that message"),
    "tool_history": (
        "The server rejects the message structure of this conversation",
        "Fork before the entry that it names (agent sessions fork ID --at N); agent doctor tests the server",
    ),
    "tool_output": ("The model wrote a tool call that the server could not read", "Run it again, or use another model"),
    "schema": ("The server refuses a tool's schema", "Try --no-tools, or another model"),
    "media": ("The server cannot take an attached image or file", "Leave it out, or make it smaller"),
    "content_filter": ("The server's content filter refused this", "Rephrase the prompt"),
    "overloaded": ("The server is overloaded or still starting", "Run the command again in a moment"),
    "server": ("The server failed", "Run the command again; --debug shows its answer"),
    "timeout": ("The server took too long", "Run the command again; AGENT_FIRST_BYTE_TIMEOUT sets how long to wait"),
    "connection": ("The connection failed", "Check the base URL and the network: agent doctor"),
    "html": ("A web page came instead of an answer", "Check the base URL (it usually ends in /v1) and the proxy"),
    "garbled": ("The response is not a chat-completions response", "Check the base URL (it usually ends in /v1)"),
    "empty": ("The server answered with nothing", "Check the base URL: agent doctor"),
    "bad_request": ("The server refuses this request", "--debug shows the whole answer"),
}
KINDS = frozenset(_SAYS)


def fault(kind: str, said: str = "", *, hint: str = "") -> APIError:
    """An error of one of the temporary kinds or "html", with its usual sentence; `said` is what the server said."""
    text, advice = _SAYS[kind]
    error = TemporaryError(_sentence(text, None, said), hint or advice, kind=kind)
    error.retryable = kind != "html"
    return error


def _error(kind: str, said: str, status: int | None, reading: Reading, body: str, passes: bool) -> AgentError:
    """The error of a kind; `passes` when the server says for how long, so that it is temporary."""
    text, hint = _SAYS[kind]
    text = _sentence(text, status, said)
    if kind == "overflow":
        return _overflow(text, hint, status, reading, body)
    if kind == "output_cap":
        return OutputCapTooLarge(text, limit=_output_limit(reading.text), status=status, body=body)
    if kind == "auth" or (kind == "permission" and status in (401, 403)):
        refused = AuthError(text, hint)
        refused.kind = kind
        return refused
    temporary = (
        kind in _TEMPORARY
        or (kind == "quota" and passes)
        or (kind in ("server", "html", "empty") and _retry(kind, status, reading, {})[0])
    )
    parameter = parameter_in(reading) if kind in ("params", "bad_request", "tool_history") else None
    return (TemporaryError if temporary else APIError)(
        text, hint, kind=kind, status=status, body=body, parameter=parameter
    )


def _overflow(text: str, hint: str, status: int | None, reading: Reading, body: str) -> ContextOverflow:
    from agent.wire.overflow import read_numbers, unit_of

    unit = "bytes" if reading.page else unit_of(reading.text, reading.codes) if reading.text else "tokens"
    if unit != "tokens":
        return ContextOverflow(text, hint, status=status, body=body)
    typed = {k: v for k, v in reading.typed.items() if isinstance(v, int) and not isinstance(v, bool)}
    found = read_numbers(reading.text, typed)
    error = ContextOverflow(
        text, hint, have=found.have, limit=found.limit, limit_is_input=found.limit_is_input, status=status, body=body
    )
    error.prompt, error.completion = found.prompt, found.completion
    return error


def _output_limit(text: str) -> int | None:
    """The largest output allowed, in tokens, where it is stated."""
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", re.sub(r"\(parameter=[^)]*\)", "", text))
    stated = re.search(r"\[\d+, ?(\d+)\]|\b1 ?[-–~] ?(\d+)|\bbetween \d+ and (\d+)|context length is (\d+)", text)
    if stated:
        return next(int(n) for n in stated.groups() if n)
    beyond = re.search(r"(\d+) \(exclusive\)", text)
    if beyond:
        return int(beyond[1]) - 1
    numbers = {int(n) for n in re.findall(r"(?<![a-z0-9_.\-])(\d+)(?![a-z0-9_\-])|(?<==)(\d+)", text) for n in n if n}
    numbers = {n for n in numbers if n >= LEAST_SIZE} or {n for n in numbers if n > 1}
    return None if not numbers or re.search(r"at least|minimum", text) else min(numbers)


def parameter_in(reading: Reading) -> str | None:
    """The request parameter that a refusal names, or None."""
    for place in (reading.loc, reading.text, reading.codes):
        for name in PARAMETERS:
            if re.search(rf"(?<![\w.]){name}(?![\w])", place.lower()):
                return name
    return None


def _sentence(text: str, status: int | None, said: str) -> str:
    code = f" (HTTP {status})" if status and status >= 400 else ""
    return f"{text}{code}: {said}" if said else f"{text}{code}"


def _shown(body: Any) -> str:
    if isinstance(body, (bytes, bytearray)):
        return bytes(body).decode("utf-8", "replace")
    return body if isinstance(body, str) else repr(body)
