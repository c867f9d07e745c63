"""What went wrong, decided once: an HTTP answer (or an error inside a 200) -> an error with class, exit code and advice.

`classify` reads the body first and the status last, since gateways hide an overflow behind 502 and a billing problem
behind 429. The rules stand in one list, first match wins; each is for a kind of sentence or a typed code. Kinds:

    overflow           the prompt does not fit                 output_cap      more output asked than the model gives
    rate_limit         waiting helps                           rate_limit_size one request larger than the rate allows
    quota, billing     a plan's limit, or money                auth, permission
    not_found          model or path                           params          a parameter the server does not take
    field_limit        one field too long                      tool_history    the conversation's shape was refused
    tool_output        the model wrote a bad call              schema          a tool's schema was refused
    media              an image or file                        content_filter  refused for what it says
    overloaded, server, timeout, connection, html (a page instead of an answer), empty, bad_request
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.errors import AgentError, APIError, AuthError, ContextOverflow, OutputCapTooLarge, TemporaryError
from agent.overflow import is_overflow, read_numbers, unit_of
from agent.redact import redact
from agent.refusal import Reading, read_body
from agent.retry import asked_delay

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
    reading = read_body(answer.body)
    status = _status(answer.status, reading)
    kind = _kind(status, reading, answer)
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
        return status
    for key in ("http_status_code", "status_code", "http_code", "code", "status"):
        value = reading.typed.get(key)
        value = int(value) if isinstance(value, str) and re.fullmatch(r"[45]\d\d", value) else value
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return status


# ---- the rules ----

_OUT = (
    r"max_(?:completion_|output_|new_)?tokens(?![a-z_])|output tokens?|completion tokens?|maximum tokens you requested|输出长度|max output"
)
_IN = (
    r"\bprompt|\binputs?\b|\bmessages?\b|context[ _](?:length|window|size|limit)|上下文|输入|conversation|\+ ?`?max_|max_seq_len|"
    r"context"
)
_RATE = (
    r"rate.?limit|too many requests|(?:per|/) ?(?:min|minute|hour|day|second|sec)\b|\b[tr]p[mdhs]\b|throttl|频率|频繁|速率|限流|并发|"
    r"too many tokens, please|resource_exhausted|slow down|requests? burst|burst"
)
_RULES: tuple[tuple[str, str, str, str], ...] = (
    # kind, codes, text, text that forbids it
    ("field_limit", r"above_max_length", r"(?:string|array) too long|maximum length \d+, but got", ""),
    ("content_filter", r"content_?filter|data_?inspection|\b1301\b|moderation|content_policy|responsibleai|safety",
     r"content (?:filter|management|policy|moderation)|inappropriate content|considered high risk|敏感|违规内容|不安全|"
     r"flagged|safety (?:system|reasons)|blocked by content|violat\w+ (?:our|the|usage) polic", ""),
    ("media", r"image|media_type", r"\b(?:image|images|media|multimodal|audio|video|mmproj|pdf)\b[^.]*"
     r"(?:exceed|not support|corrupt|invalid|too large|cannot|unsupported|limit|could not|failed)|not support\w* (?:image|audio|video|vision)", r"\btokens\b"),
    ("permission", "", r"extra usage is required|long[- ]context[^.]*(?:not (?:yet )?available|requires? (?:a )?(?:higher )?(?:tier|plan|beta))", ""),
    ("billing", r"insufficient_(?:quota|balance|credit|funds)|billing|arrear|overdue|payment|\b1113\b|\b1008\b|credit",
     r"insufficient (?:balance|funds|credit|quota)|credit balance|more credits|good standing|overdue|欠费|余额不足|充值|arrears|"
     r"payment required|(?:out of|no|enough|purchase) credits|billing (?:hard )?limit|exceeded your (?:current )?quota, please check",
     r"usage limit|retry in \d|retry.?delay|per ?minute"),
    ("quota", r"usage_limit|quota_exceeded|\b13(?:08|09|10)\b|perday", r"usage limit|billing cycle|request allowance|(?:daily|weekly|monthly|hourly|5-hour) (?:\w+ )?(?:limit|quota|allowance)|"
     r"quota (?:has been )?(?:exceeded|exhausted|reached)|per ?day|配额|用量上限|套餐", r"per ?minute"),
    ("overloaded", r"overload|unavailable_error|\b1305\b|serverbusy|server_busy", r"overload|at capacity|no capacity|capacity (?:exceeded|limits?)|unable to handle|(?:server|service|system|model) is (?:currently |too )?busy|"
     r"繁忙|过载|负载过高|loading model|model is (?:still |currently )?loading|no available (?:worker|channel|instance)", ""),
    ("rate_limit", r"rate_?limit|throttl|toomanyrequests|\b130[23]\b|\b1002\b|\b1039\b|resource_exhausted", _RATE, r"context[ _](?:length|window)"),
    ("tool_output", r"tool_use_failed", r"failed to call a function|failed_generation|tool call validation failed", ""),
    ("schema", r"invalid_function_parameters|invalid_tool_schema", r"invalid schema|failed to parse tools|tools\[\d+\]\.function\.parameters|input_schema|json ?schema", r"response_format"),
    ("tool_history", "", r"roles? must alternate|should alternate|successive (?:user|assistant)|preced\w+ message|tool_use.{0,4} (?:ids|block)|tool_result|tool_call_ids? |"
     r"must be (?:followed by|a response to)|prefill|must end with a user|first message|reasoning_content|thought_signature|thinking block|tool call id|"
     r"tool call arguments as json|system message must be|must be at the beginning|last (?:message|role)|no user query|unexpected role|expects? the `?tools=", ""),
    ("bad_request", "", r"batch size|too large to process", ""),
    ("params", r"unsupported_(?:parameter|value)|unknown_parameter|extra_forbidden|unrecognized|invalid_parameter_combination",
     r"unsupported (?:parameter|value)|un(?:recognized|known|expected) (?:request )?(?:argument|field|parameter|name|keyword|key|property)|extra (?:inputs|fields)|"
     r"not permitted|(?:does not|doesn.t|do not) support|(?:is|are) not supported|additional propert|no endpoints found that support|must be 'json_schema'|"
     r"tool choice requires|不支持", r"model is not supported|context|does not support .*(?:tokens|more than)"),
)  # fmt: skip
_COMPILED = tuple((kind, re.compile(c) if c else None, re.compile(t), re.compile(n) if n else None) for kind, c, t, n in _RULES)
_AUTH = re.compile(
    r"api[ _-]?key|unauthori[sz]ed|authenticat|invalid token|no (?:cookie )?auth|user not found|身份验证|无效的令牌|令牌已|鉴权|"
    r"access token|credentials"
)
_GONE = re.compile(
    r"not[ _]found|does not exist|no such|unknown model|invalid model|model_not|model is not supported|不存在|no route|cannot (?:get|post)|"
    r"invalid url|unknown url|notfound|no endpoints|not exist"
)
_MEMORY = re.compile(r"system memory|out of memory|cuda[^.]*memory|insufficient memory|not enough memory")
_TIMEOUT = re.compile(r"time[ds]?[- ]?out|deadline exceeded|超时")


def _kind(status: int | None, reading: Reading, answer: Answer) -> str:
    """The first rule that fits; then the status."""
    text, codes = reading.text, reading.codes
    if reading.page:
        return _page_kind(status)
    if not text and not codes:
        return _empty_kind(status, answer)
    requested = re.search(r"limit:? (\d+)[^.]*requested:? (\d+)", text.replace(",", ""))
    oversized = requested is not None and int(requested[2]) > int(requested[1])
    for kind, in_codes, in_text, unless in _COMPILED:
        if unless is not None and unless.search(f"{text}\n{codes}"):
            continue
        if in_text.search(text) or (in_codes is not None and in_codes.search(codes)):
            large = kind == "rate_limit" and (oversized or "request too large" in text)
            if kind == "params" and _is_output_cap(text):
                continue
            return "rate_limit_size" if large else kind
    return _size_kind(text, codes, answer) or _status_kind(status, reading)


def _size_kind(text: str, codes: str, answer: Answer) -> str | None:
    """Output cap, overflow, or the limit of one field; None for neither."""
    if _is_output_cap(text):
        return "output_cap"
    if "try again later" in text and not re.search(r"\d{3}", text) and answer.provider not in _SAYS_LATER:
        return None
    if "1261" in codes.split() or is_overflow(text, codes):
        if unit_of(text, codes) == "chars" and "characters_too_long" not in codes:
            numbers = [int(n) for n in re.findall(r"\d+", text.replace(",", ""))]
            return "overflow" if max(numbers, default=0) >= 16384 else "field_limit"
        return "overflow"
    return None


_SAYS_LATER = {"novita"}
"""Providers known to answer an overflow with "try again later"."""


def _is_output_cap(text: str) -> bool:
    """Whether a text is about the output alone. "N output tokens, prompt of M characters" is, when M surely fits."""
    chars = re.search(r"requested (\d+) output tokens and your prompt contains (\d+) characters", text)
    if chars:
        return int(chars[2]) * 2 <= int(chars[1])
    text = re.sub(r"[^\n]*(?:see|refer to|visit)[^\n]*https?://\S+", "", text) if "http" in text else text
    return bool(re.search(_OUT, text)) and not re.search(_IN, re.sub(r"parameter=\w+", "", text)) and bool(
        re.search(r"exceed|must|range|too (?:large|high|big)|maximum|greater|cannot|非法|invalid|less|lower|超限|at least|at most|limit|>|larger|超", text)
    )  # fmt: skip


def _page_kind(status: int | None) -> str:
    return {413: "overflow", 429: "rate_limit"}.get(status or 0, "html")


def _empty_kind(status: int | None, answer: Answer) -> str:
    if answer.provider == "cerebras" and status in (400, 413) and answer.near_window is not False:
        return "overflow"
    if status == 413:
        return "overflow"
    named = {401: "auth", 403: "permission", 402: "billing", 429: "rate_limit", 404: "not_found", 407: "auth"}
    return named.get(status or 0, "empty")


def _status_kind(status: int | None, reading: Reading) -> str:
    """What the status says, where no sentence of the body was known."""
    text = f"{reading.text}\n{reading.codes}"
    if _GONE.search(text) and (status in (None, 400, 404, 410, 422) or status == 200):
        return "not_found"
    if status in (401, 407) or (_AUTH.search(text) and (status or 0) < 500 and status not in (404, 429)):
        return "auth"
    if status == 404:
        return "bad_request" if reading.text else "not_found"
    named = {402: "billing", 403: "permission", 405: "not_found", 408: "timeout", 413: "overflow", 429: "rate_limit",
             503: "overloaded", 529: "overloaded", 504: "timeout"}  # fmt: skip
    if status in named:
        return named[status]
    if (status or 0) >= 500 or status == 200 or status is None:
        return "timeout" if _TIMEOUT.search(text) else "server"
    return "bad_request"


def _retry(kind: str, status: int | None, reading: Reading, headers: Mapping[str, str]) -> tuple[bool, int | None]:
    """Whether a retry may help, and how often (None: the whole ladder)."""
    forced = headers.get("x-should-retry")
    if forced in ("true", "false") and kind not in ("overflow", "output_cap"):
        return forced == "true", None
    if kind == "tool_output" or (kind == "not_found" and "model_not_supported" in reading.codes):
        return True, 1
    if kind == "server":
        once = 1 if "unexpectedly stopped" in reading.text else None
        return not _MEMORY.search(reading.text), once
    if kind in ("html", "empty"):
        return (status or 0) >= 500, None
    return kind in ("rate_limit", "overloaded", "timeout", "connection"), None


# ---- the sentences ----

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
    "permission": ("The server does not allow this request", "Check what this key and plan may use, or choose another -m"),
    "not_found": ("The server does not know this model or address", "Check -m and the base URL: agent doctor, agent models"),
    "params": ("The server does not take a parameter of this request", "See --debug; agent doctor tests what it takes"),
    "field_limit": ("One field of the request is too long for this server", "Shorten that message"),
    "tool_history": ("The server refuses the shape of this conversation", "agent doctor tests the server; --fork starts clean"),
    "tool_output": ("The model wrote a tool call that the server could not read", "Run it again, or use another model"),
    "schema": ("The server refuses a tool's schema", "Try --no-tools, or another model"),
    "media": ("The server cannot take an attached image or file", "Leave it out, or make it smaller"),
    "content_filter": ("The server's content filter refused this", "Rephrase the prompt"),
    "overloaded": ("The server is overloaded or still starting", "Run the command again in a moment"),
    "server": ("The server failed", "Run the command again; --debug shows its answer"),
    "timeout": ("The server took too long", "Run the command again; AGENT_FIRST_BYTE_TIMEOUT sets how long to wait"),
    "connection": ("The server cannot be reached", "Check the base URL and the network: agent doctor"),
    "html": ("A web page came instead of an answer", "Check the base URL (it usually ends in /v1) and the proxy"),
    "empty": ("The server answered with nothing", "Check the base URL: agent doctor"),
    "bad_request": ("The server refuses this request", "--debug shows the whole answer"),
}
KINDS = frozenset(_SAYS)
_TEMPORARY = {"rate_limit", "overloaded", "timeout", "connection"}


def fault(kind: str, said: str = "", *, status: int | None = None, hint: str = "", body: str = "") -> APIError:
    """An error of one of the temporary kinds or "html", with its usual sentence; `said` is what the server said."""
    text, advice = _SAYS[kind]
    error = TemporaryError(_sentence(text, status, said), hint or advice, kind=kind, status=status, body=body)
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
    temporary = kind in _TEMPORARY or (kind == "quota" and passes) or (kind in ("server", "html", "empty") and _retry(kind, status, reading, {})[0])
    parameter = parameter_in(reading) if kind in ("params", "bad_request", "tool_history") else None
    return (TemporaryError if temporary else APIError)(
        text, hint, kind=kind, status=status, body=body, parameter=parameter
    )


def _overflow(text: str, hint: str, status: int | None, reading: Reading, body: str) -> ContextOverflow:
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
    stated = re.search(r"\[\d+, ?(\d+)\]|context length is (\d+)", text)
    if stated:
        return int(stated[1] or stated[2])
    numbers = {int(n) for n in re.findall(r"(?<![\w.\-])(\d+)(?![\w\-])|(?<==)(\d+)", text) for n in n if n}
    numbers = {n for n in numbers if n > 1}
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
