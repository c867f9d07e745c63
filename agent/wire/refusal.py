"""What the body of a refused request says, whatever its shape: sentences, codes, numbers.

Servers wrap their words in objects, arrays, JSON inside strings, Python reprs, pages and plain text. `read_body` opens
all of it and sorts the leaves: sentences to match rules on, types and codes, typed numbers by key, and the one sentence
to show. What only quotes the request is left out. Total: anything gives a reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from json import JSONDecoder
from typing import Any

from agent.wire.sse import loads

LEAST_SIZE = 256
"""A smaller number is no size of a context, and no limit of an answer that is not called one."""
LEAST_REPEATED = 12
"""Characters of a text that is looked for in others."""
_READ = 6_000
"""Characters of a refusal that are judged: what is longer quotes something."""
_ENDLESS = re.compile(r"\d{19,}")
"""Digits that count nothing, and of which Python makes no number when there are thousands."""
_REPR = re.compile(r"""b['"]|\{'""")
_OF_WRAPPERS = re.compile(
    r"\(?request[ _]id:? ?[\w\-]+\)?|received model group=.*|available model group fallbacks=.*|"
    r"litellm (?:max retries|retried): \d+(?: times)?,?|"
    r"(?:\b(?:error|status)(?: code)?|\bhttp)\W{0,3}[45]\d\d\b|^[^\w\n]*[45]\d\d\b(?! ?(?:tokens?|字))|"
    r"\b\d{4}-\d\d-\d\dt\d\d:\d\d\S*|\b(?:address|pid|port)=[\w.:]+|\bhttps?://[\w.\-]+:\d+|(?:^|, )message: ",
    re.MULTILINE,
)
"""What gateways and clients put around the words of a server: numbers that count nothing, and labels."""
_STATUS_TOLD = re.compile(
    r"(?:^|error: |exception - )(?:error code: |error, status code: |bad response status code |http )(4\d\d)(?: -|,)|"
    r"^(4\d\d) (?:client error|bad request|not found|unauthorized|forbidden|too many requests)",
    re.MULTILINE,
)
"""The status of a refusal in the words of what wraps it. Any other number in it may be somebody's."""
_STATUSES = {400, 401, 402, 403, 404, 405, 408, 413, 422, 429}
_QUIET_KEYS = {
    "failed_generation", "input", "request_id", "id", "provider_name", "more_info", "documentation_url", "trace",
    "model", "object", "@type", "plan_type", "object_id",
}  # fmt: skip
_CODE_KEYS = {
    "code", "type", "status", "error_code", "error_type", "reason", "title", "http_code", "quotaid",
}  # fmt: skip
_SHOWN_FIRST = (
    "raw", "message", "msg", "error_message", "errormessage", "error_msg", "status_msg", "detail", "details", "error",
    "title",
)  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """What a body says: `text` all its sentences in lower case, one a line; `codes` its types and codes; `typed` its
    numbers and short values by lower-case key; `said` the sentence to show; `loc` names of refused fields."""

    text: str = ""
    codes: str = ""
    typed: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""
    loc: str = ""
    page: bool = False
    title: str = ""
    prose: bool = False
    """The body was plain text, neither JSON nor a page."""
    status: int | None = None
    """The refusal's own status, where a wrapper tells it."""


def read_body(body: Any) -> Reading:
    """Everything a body says, whatever its shape: JSON, JSON inside strings, arrays, a page, an event stream, text."""
    value, text = _parsed(body)
    prose = False
    if value is None:
        if text.lstrip()[:1] == "<":
            if not _is_markup_of_data(text):
                return _read_page(text)
            text = re.sub(r"<[^>]*>", "\n", text).strip()
        value = {"message": text} if text else {}
        prose = isinstance(body, (bytes, bytearray))
    return _read_value(value, prose)


def _parsed(body: Any) -> tuple[Any, str]:
    """The value of a body, however it is wrapped, or None; and its text."""
    if isinstance(body, (bytes, bytearray)):
        text = bytes(body).decode("utf-8", "replace").strip().lstrip("\ufeff")
        value: Any = loads(text.encode()) if text[:1] in ("{", "[", '"') else None
    else:
        value, text = body, body if isinstance(body, str) else ""
    if isinstance(value, str):
        value, text = (loads(value.encode()) if value.lstrip()[:1] in ("{", "[") else None), value
    if value is None and _REPR.match(text):
        return _from_repr(text)
    return value, text


def _read_value(value: Any, prose: bool) -> Reading:
    """What the leaves of a value say: sentences, codes, numbers by their keys."""
    pairs = list(_walk(value, "", 0))
    texts = [t for k, t in pairs if isinstance(t, str) and k not in _CODE_KEYS | {"loc"} and t.strip()]
    codes = " ".join(str(v) for k, v in pairs if k in _CODE_KEYS and not isinstance(v, bool)).lower()
    base = value.get("base_resp") if isinstance(value, dict) else None
    if isinstance(base, dict):  # MiniMax: its numbers mean other things than the same numbers elsewhere
        codes += f" base_resp_{base.get('status_code')}"
    typed = dict(reversed(pairs))  # of one key the first counts
    named = {k: v for k, v in reversed(pairs) if isinstance(v, str) and v.strip()}
    said = next((named[k] for k in _SHOWN_FIRST if k in named), texts[0] if texts else "")
    loc = " ".join(str(v) for k, v in pairs if k in ("loc", "param"))
    titled = [str(v) for k, v in pairs if k == "title"]
    told = _ENDLESS.sub("0", "\n".join(_once([*texts, *titled]))[:_READ].lower())
    stated = _STATUS_TOLD.search(told)
    own = int(stated[1] or stated[2]) if stated else 0
    return Reading(
        _OF_WRAPPERS.sub(" ", told).strip() or told, codes[:_READ], typed, " ".join(said.split()), loc,
        prose=prose, status=own if own in _STATUSES else None,
    )  # fmt: skip


def _once(texts: list[str]) -> list[str]:
    """The texts, each without what another of them says: a wrapper repeats what it wraps."""
    told: list[str] = []
    for text in dict.fromkeys(texts[:50]):
        for other in texts[:50]:
            if LEAST_REPEATED <= len(other) < len(text):
                text = text.replace(other, " ")
        told.append(text)
    return told


def _from_repr(text: str) -> tuple[Any, str]:
    """The value of a Python repr, and the text inside it: bytes that hold JSON, a dict."""
    import ast
    import warnings

    try:
        with warnings.catch_warnings(action="ignore"):
            value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None, text
    if isinstance(value, bytes):
        return loads(value) if value.lstrip()[:1] in (b"{", b"[") else None, value.decode("utf-8", "replace")
    return value if isinstance(value, dict) else None, text


def _walk(value: Any, key: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Every leaf with its key, JSON inside strings opened; what only quotes the request is left out."""
    if depth > 12 or key in _QUIET_KEYS:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _walk(inner, str(name).lower(), depth + 1)
    elif isinstance(value, list):
        for inner in value[:50]:
            yield from _walk(inner, key, depth + 1)
    elif isinstance(value, str) and depth < 6 and (found := _inside(value)) is not None:
        inner, before, after = found
        yield from _walk(inner, key, depth + 1)
        yield key, before
        yield from _walk(after, key, depth + 1)
    elif value is not None:
        yield key, value


def _inside(text: str) -> tuple[dict[str, Any], str, str] | None:
    """The object that stands in a text, as JSON or as a Python repr, and the words before and after it."""
    start, end = text.find("{"), text.rfind("}")
    if not 0 <= start < end:
        return None
    written, inner = text[start : end + 1], None
    if text[max(0, start - 2) : start] in ("b'", 'b"'):
        inner, _ = _from_repr(text[start - 2 : end + 2])
    if inner is None:
        inner = loads(written.encode("utf-8", "replace"))
    if inner is None:
        with suppress(ValueError, RecursionError):
            inner, stop = JSONDecoder(strict=False).raw_decode(text, start)  # more follows it
            end = stop - 1
    if inner is None and _REPR.match(written):
        inner, _ = _from_repr(written)
    return (inner, text[:start], text[end + 1 :]) if inner and isinstance(inner, dict) else None


def _is_markup_of_data(text: str) -> bool:
    """Whether it is XML that carries a message, and no page for people."""
    return not re.search(r"<(?:!doctype html|html|head|body|title|h1|center)\b", text, re.IGNORECASE)


def _read_page(text: str) -> Reading:
    found = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
    title = " ".join(found[1].split()) if found else ""
    return Reading(text=title.lower(), title=title, page=True)
