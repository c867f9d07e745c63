"""The one place that turns a conversation into the messages a server accepts.

`prepare_for_wire` is total and idempotent: for any list of anything it returns messages that a strict server takes
(one leading system message, a user message first, every call answered right after it, unique ids, arguments that are
JSON objects, nothing empty, no lone surrogates, no foreign keys). What is already valid comes back unchanged, and a
longer conversation keeps the prepared form of its beginning, so that prompt caches hit. A `Dialect` says where a
provider wants it otherwise. `encode_messages` is the canonical form: its bytes are sent, and their digest proves them.

Does not know: HTTP, sessions, tokens.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from agent.messages import Message

FILTERED = (
    "content_filter", "refusal", "safety", "recitation", "sensitive", "block", "prohibited", "guardrail", "toxic",
)  # fmt: skip
"""Marks of a finish reason, in lower case, that says a filter ended the answer."""
UNKNOWN_OUTCOME = "interrupted, outcome unknown: check before repeating it"
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_ID_ALNUM9 = re.compile(r"[A-Za-z0-9]{9}")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SKIP_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}


class Dialect(NamedTuple):
    """How a provider departs from plain chat completions. The defaults suit an unknown server."""

    output_cap: str = "max_tokens"
    """Name of the request's output limit: "max_tokens" or "max_completion_tokens"."""
    system: str = "system"
    """"system", "developer", or "fold" (into the first user message)."""
    reasoning: str = "drop"
    """Reasoning sent back: "drop", "calls" (with each message that calls tools), "always", "inline" (<think> tags)."""
    signatures: bool = False
    """Gemini: thought signatures ride on tool calls and must come back; a call without one gets the official pass."""
    details: bool = False
    """OpenRouter: `reasoning_details` is sent back unchanged."""
    ids: str = "any"
    """"any" (letters, digits, _ and -, at most 40) or "alnum9" (exactly nine letters or digits)."""
    alternate: bool = False
    """Roles must alternate user/assistant, the tool flow not counted."""
    silent_content: str = "null"
    """Content of a message that only calls tools: "null", "empty" or "omit"."""
    tools: bool = True
    """False: calls and results are told as text."""
    images: bool = True
    """False: of images before the last prompt only is told that they were there."""
    drop: tuple[str, ...] = ()
    """Request parameters this server refuses."""

    def as_json(self) -> dict[str, Any]:
        """Only what differs from the default."""
        changed = {name: value for name, value in self._asdict().items() if value != self._field_defaults[name]}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()}

    @staticmethod
    def from_json(stored: Any) -> Dialect:
        """Read what `as_json` wrote; unknown or ill-typed entries are ignored."""
        found: dict[str, Any] = {}
        for name, default in Dialect._field_defaults.items():
            value = stored.get(name) if isinstance(stored, dict) else None
            if name == "drop":
                if isinstance(value, (list, tuple)):
                    found["drop"] = tuple(v for v in value if isinstance(v, str))
            elif type(value) is type(default):
                found[name] = value
        return Dialect(**found)


def prepare_for_wire(messages: Iterable[Any], dialect: Dialect | None = None) -> list[Message]:
    """The messages as this dialect's server takes them. Total; never changes its input."""
    dialect = dialect or Dialect()
    read = [m for m in map(_read, messages) if m is not None]
    system = [m["content"] for m in read if m["role"] == "system"]
    talk = _pair([m for m in read if m["role"] != "system"], dialect)
    if not dialect.images:
        talk = _unseen(talk)
    if not dialect.tools:
        talk = [_as_text(m) for m in talk]
    if not talk or talk[0]["role"] != "user":
        talk.insert(0, _user("(the conversation begins here)"))
    if dialect.alternate:
        talk = _alternate(talk)
    if talk[-1]["role"] == "assistant":
        talk.append(_user("(go on)"))
    if not system:
        return talk
    pinned = "\n\n".join(system)
    if dialect.system == "fold":
        return [_prefixed(talk[0], pinned), *talk[1:]]
    return [{"role": "developer" if dialect.system == "developer" else "system", "content": pinned}, *talk]


def encode_messages(prepared: Sequence[Message]) -> bytes:
    """The canonical bytes of a prepared list: compact JSON, keys in the order they have."""
    return orjson.dumps(list(prepared))


def digest(prepared: Sequence[Message]) -> str:
    """SHA-256, in hex, of the canonical bytes."""
    return hashlib.sha256(encode_messages(prepared)).hexdigest()


def clean(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def with_images(messages: Sequence[Message]) -> list[int]:
    """Places of the messages before the last prompt that show something beside text."""
    last = max((at for at, m in enumerate(messages) if m["role"] == "user"), default=0)
    return [at for at, m in enumerate(messages[:last]) if isinstance(m.get("content"), list)]


def _unseen(talk: list[Message]) -> list[Message]:
    shown = list(talk)
    for at in with_images(talk):
        told = [part.get("text") or "[an image that this model cannot be shown]" for part in talk[at]["content"]]
        shown[at] = {**talk[at], "content": "\n".join(told)}
    return shown


def _read(message: Any) -> Message | None:
    """One message with a known role, clean content and its calls as they are; None when it says nothing."""
    if not isinstance(message, dict):
        return _user(_flat(message)) if _flat(message).strip() else None
    role = _ROLES.get(str(message.get("role")), "user")
    content = _read_content(message.get("content"), role)
    if role == "tool":
        return {"role": "tool", "content": content or "(no output)", "tool_call_id": message.get("tool_call_id")}
    if role != "assistant":
        return {"role": role, "content": content} if content else None
    calls = message.get("tool_calls")
    calls = [c for c in calls if isinstance(c, dict)] if isinstance(calls, list) else []
    if not content and not calls:
        return None
    found: Message = {"role": role, "content": content, "calls": calls}
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str):
            found.setdefault("thought", clean(message[key]))
    if isinstance(message.get("reasoning_details"), list):
        found["details"] = message["reasoning_details"]
    return found


def _read_content(content: Any, role: str) -> Any:
    """Text, or (for a user) a list of parts; "" when there is nothing but space."""
    if isinstance(content, list) and role == "user":
        parts = [p for p in map(_part, content) if p]
        if any(p["type"] != "text" for p in parts):
            return parts
    text = _flat(content)
    return "" if text.isspace() else text


def _part(part: Any) -> dict[str, Any] | None:
    """A content part a server knows: an image by URL, or text; None when it holds nothing."""
    if isinstance(part, dict) and part.get("type") == "image_url":
        image = part.get("image_url")
        if isinstance(image, dict) and isinstance(image.get("url"), str):
            kept = {k: clean(v) for k, v in image.items() if k in ("url", "detail") and isinstance(v, str)}
            return {"type": "image_url", "image_url": kept}
    text = _flat(part)
    return {"type": "text", "text": text} if text.strip() else None


def _flat(value: Any) -> str:
    """Any content as clean text."""
    if isinstance(value, str):
        return clean(value)
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_flat, value)))
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return clean(value["text"])
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError, RecursionError):
        return clean(str(value))


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _prefixed(message: Message, text: str) -> Message:
    content = message["content"]
    if isinstance(content, list):
        return {**message, "content": [{"type": "text", "text": text}, *content]}
    return {**message, "content": f"{text}\n\n{content}"}


def _pair(messages: Sequence[Message], dialect: Dialect) -> list[Message]:
    """Each call followed by its result, in order of the calls; results without a call are dropped."""
    used: set[str] = set()
    paired: list[Message] = []
    for at, message in enumerate(messages):
        if message["role"] == "user":
            paired.append(message)
        elif message["role"] == "assistant":
            results = _results_after(messages, at) if message["calls"] else []
            calls = [_call(c, used, dialect) for c in message["calls"]]
            paired.append(_assistant(message, calls, dialect))
            for call, given in zip(calls, message["calls"], strict=True):
                paired.append({"role": "tool", "content": _take(results, given.get("id")), "tool_call_id": call["id"]})
    return paired


def _results_after(messages: Sequence[Message], at: int) -> list[Message]:
    """The tool results that stand between this assistant message and the next one."""
    found = []
    for place in range(at + 1, len(messages)):
        message = messages[place]
        if message["role"] == "assistant":
            break
        if message["role"] == "tool":
            found.append(message)
    return found


def _take(results: list[Message], call_id: Any) -> str:
    """Remove and return the first result for this id (a result without an id answers the first call that asks)."""
    for at, result in enumerate(results):
        if result["tool_call_id"] == call_id or result["tool_call_id"] in (None, ""):
            return str(results.pop(at)["content"])
    return UNKNOWN_OUTCOME


def _assistant(message: Message, calls: list[dict[str, Any]], dialect: Dialect) -> Message:
    """An assistant message with the keys this dialect wants, and no others."""
    text, thought = message["content"], message.get("thought", "")
    if dialect.reasoning == "inline" and thought:
        text = f"<think>{thought}</think>\n\n{text}"
    made: Message = {"role": "assistant"}
    if text or dialect.silent_content == "null":
        made["content"] = text or None
    elif dialect.silent_content == "empty":
        made["content"] = ""
    if (dialect.reasoning == "always" and thought) or (dialect.reasoning == "calls" and calls):
        made["reasoning_content"] = thought
    if dialect.details and message.get("details"):
        made["reasoning_details"] = _json_clean(message["details"])
    if calls:
        made["tool_calls"] = calls
    return made


def _call(call: dict[str, Any], used: set[str], dialect: Dialect) -> dict[str, Any]:
    """One tool call in the only form a server takes; its id is kept where it can be, and noted in `used`."""
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name = re.sub(r"[^A-Za-z0-9_-]", "_", clean(_flat(function.get("name"))))[:64] or "unknown"
    made = {
        "id": _unique_id(call.get("id"), used, dialect.ids),
        "type": "function",
        "function": {"name": name, "arguments": arguments_object(function.get("arguments"))},
    }
    if dialect.signatures:
        extra = call.get("extra_content")
        made["extra_content"] = _json_clean(extra) if isinstance(extra, dict) and extra else _SKIP_SIGNATURE
    return made


def _unique_id(wanted: Any, used: set[str], form: str) -> str:
    """`wanted` if it is in the provider's form and new, else an id made from it and from the number of ids so far."""
    pattern = _ID_ALNUM9 if form == "alnum9" else _ID
    found = wanted if isinstance(wanted, str) and pattern.fullmatch(wanted) else ""
    salt = len(used)
    while not found or found in used:
        seed = f"{salt}:{wanted if isinstance(wanted, str) else ''}".encode("utf-8", "replace")
        made = hashlib.sha256(seed).hexdigest()
        found = made[:9] if form == "alnum9" else f"call_{made[:16]}"
        salt += 1
    used.add(found)
    return found


def arguments_object(arguments: Any) -> str:
    """Arguments as the text of a JSON object: as written where they are one, {} for nothing, else {"raw": ...}."""
    if isinstance(arguments, str):
        value = _loads(arguments)
        if isinstance(value, dict) and not _SURROGATE_ESCAPE.search(arguments):
            return clean(arguments)
        if isinstance(value, str):
            inner = _loads(value)
            value = inner if isinstance(inner, dict) else None
        if value is None:
            value = {"raw": arguments} if arguments.strip() not in ("", "null") else {}
    else:
        value = arguments if arguments is not None else {}
    value = _json_clean(value)
    return orjson.dumps(value if isinstance(value, dict) else {"raw": value}).decode()


def _loads(text: str) -> Any:
    """The JSON value of a text, None when it is none; surrogate escapes are read leniently."""
    try:
        return orjson.loads(text)
    except ValueError:
        if not _SURROGATE_ESCAPE.search(text):
            return None
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json_clean(value: Any, depth: int = 0) -> Any:
    """The value with clean strings and text keys, and text for what JSON does not have."""
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return value
    if isinstance(value, float) and value - value == 0:
        return value
    if isinstance(value, dict) and depth < 100:
        return {clean(str(k)): _json_clean(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and depth < 100:
        return [_json_clean(v, depth + 1) for v in value]
    return clean(str(value))


def _as_text(message: Message) -> Message:
    """Calls and results told as text, for a server that takes no tools."""
    if message["role"] == "tool":
        return _user(f"[result of {message['tool_call_id']}]\n{message['content']}")
    if not message.get("tool_calls"):
        return message
    told = [f"[call {c['id']}: {c['function']['name']} {c['function']['arguments']}]" for c in message["tool_calls"]]
    return {"role": "assistant", "content": "\n".join([*filter(None, [message.get("content")]), *told])}


def _alternate(talk: Sequence[Message]) -> list[Message]:
    """Neighbours of one role merged; where the tool flow parts two user messages, a short answer between them."""
    done: list[Message] = []
    last = "assistant"  # the last role as a template sees it that skips the tool flow
    for message in talk:
        flow = message["role"] == "tool" or bool(message.get("tool_calls"))
        before = done[-1] if done else None
        if before and before["role"] == message["role"] and message["role"] != "tool" and not before.get("tool_calls"):
            done[-1] = _merged(before, message)
            if flow and last == "assistant":
                last = "user"
            continue
        if not flow and message["role"] == last == "user":
            done.append({"role": "assistant", "content": "(interrupted)"})
        done.append(message)
        last = last if flow else message["role"]
    return done


def _merged(first: Message, second: Message) -> Message:
    """Two messages of one role as one, with the second's calls."""
    one, two = first.get("content"), second.get("content")
    if isinstance(one, str) and isinstance(two, str):
        joined: Any = f"{one}\n\n{two}" if one and two else one or two
    elif isinstance(one, list) or isinstance(two, list):
        joined = [*_parts(one), *_parts(two)]
    else:
        joined = one or two
    return {**first, **second, "content": joined}


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
