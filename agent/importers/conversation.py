"""A conversation as it is gathered from a foreign file: messages in the order a strict server wants them.

Foreign files split one answer over several lines, put results far from their calls and reuse ids. The rules here:
pieces of one answer (same `key`, or calls right after its text) become one message; a result goes right behind the
message with its call, the latest open call of that id; whatever says nothing is not a message. Calls are history:
their names are kept as they were and make nothing callable.

Where the other tool had compacted the conversation, `entries` is what it would send now and `earlier` what it folded:
`fold` parts the two, and messages that it kept word for word are added again under `keeping`.

`dropped` counts by kind what stands in the file and in neither. Times stay as they were.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

Json = dict[str, Any]


class Unreadable(Exception):
    """This file gives no conversation: one sentence why, and what to do about it."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.text, self.hint = text, hint


@dataclass
class Conversation:
    """`entries` are session entries without `n`; `id`, `title`, `cwd`, `model`, `started` as the file states them."""

    tool: str
    id: str = ""
    title: str = ""
    cwd: str = ""
    model: str = ""
    started: str = ""
    system: str = ""
    entries: list[Json] = field(default_factory=list)
    earlier: list[Json] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    notices: list[str] = field(default_factory=list)
    _answer: Json | None = None
    _key: Any = None
    _open: dict[str, list[Json]] = field(default_factory=dict)
    _keeping: bool = False

    def drop(self, kind: str, count: int = 1) -> None:
        """Count what is left out; not a second time for what was kept."""
        if not self._keeping:
            self.dropped[kind] += count

    def fold(self) -> None:
        """A compaction of the other tool: what follows replaces everything so far."""
        self.earlier += [entry for entry in self.entries if not entry.get("kept")]
        self.entries.clear()
        self._open.clear()
        self._answer = None

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """What is added inside stands in `earlier` too: the other tool kept it word for word."""
        self._keeping = True
        try:
            yield
        finally:
            self._keeping = False
            self._answer = None

    def user(self, content: Any, at: Any = None, **more: Any) -> None:
        """A user message: text, or a list of text and image parts. Nothing, when it holds nothing."""
        if isinstance(content, list) and all(p["type"] == "text" for p in content):
            content = "\n\n".join(p["text"] for p in content)
        if content if isinstance(content, list) else content.strip():
            self._answer = None
            self._add({"role": "user", "content": content}, at, more)

    def assistant(self, text: str, at: Any = None, *, model: str = "", key: Any = None) -> None:
        """Text of an answer; joined to the one before when that has the same `key` (not None)."""
        if not text.strip():
            return
        if self._answer is not None and key is not None and key == self._key:
            message = self._answer["message"]
            message["content"] = "\n\n".join(filter(None, (message["content"], text)))
            return
        self._begin(text, at, model, key)

    def call(self, id: Any, name: Any, arguments: Any, at: Any = None, *, model: str = "", key: Any = None) -> None:
        """A tool call: part of the answer before it, unless that has results already or another `key`."""
        answer = self._answer
        same = key is not None and key == self._key
        if answer is None or not (same or (key is None and not answer["answered"])):
            answer = self._begin(None, at, model, key)
        id = id if isinstance(id, str) and id else f"call_{len(self.entries)}"
        function = {"name": text_of(name) or "unknown", "arguments": arguments_text(arguments)}
        answer["message"].setdefault("tool_calls", []).append({"id": id, "type": "function", "function": function})
        self._open.setdefault(id, []).append(answer)

    def result(self, id: Any, text: str, at: Any = None, *, name: str = "", ok: bool = True) -> None:
        """What a call gave. A result whose call is not there is dropped and counted."""
        waiting = self._open.get(id if isinstance(id, str) else "")
        if not waiting:
            self.drop("results without a call")
            return
        answer = waiting.pop()
        called = [c for c in answer["message"]["tool_calls"] if c["id"] == id]
        about = {"name": called[-1]["function"]["name"] or name, "ok": ok}
        message = {"role": "tool", "tool_call_id": id, "content": text or "(no output)"}
        place = self._place(answer) + answer["answered"] + 1
        answer["answered"] += 1
        kept = {"kept": True} if self._keeping else {}
        self.entries.insert(place, {"type": "message", "at": moment(at), "message": message, "tool": about, **kept})

    def finish(self) -> Conversation:
        """Every entry complete: without our marks, and with a time (that of its neighbour where the file has none).

        A compaction that left nothing at all (a file cut right there) is not followed.
        """
        if not self.entries:
            self.entries, self.earlier = self.earlier, []
        if not self.earlier:  # a summary whose originals are not here is itself the original
            for entry in self.entries:
                entry.pop("summary", None)
        last = self.started = moment(self.started)
        for entry in (*self.earlier, *self.entries):
            entry.pop("answered", None)
            last = entry["at"] = entry.get("at") or last or "1970-01-01T00:00:00Z"
        self.started = self.started or next((e["at"] for e in (*self.earlier, *self.entries)), "")
        self._answer = None
        return self

    def _begin(self, text: str | None, at: Any, model: str, key: Any) -> Json:
        self._answer = self._add({"role": "assistant", "content": text}, at, {"model": model} if model else {})
        self._answer["answered"] = 0
        self._key = key
        return self._answer

    def _add(self, message: Json, at: Any, more: Json) -> Json:
        more |= {"kept": True} if self._keeping and not more.get("summary") else {}
        entry = {"type": "message", "at": moment(at), "message": message, **more}
        self.entries.append(entry)
        return entry

    def _place(self, wanted: Json) -> int:
        return next(i for i in range(len(self.entries) - 1, -1, -1) if self.entries[i] is wanted)


# ---- values ----


def moment(value: Any) -> str:
    """A time as RFC 3339 in UTC, from text or from seconds or milliseconds since 1970; "" for anything else."""
    try:
        if isinstance(value, bool):
            return ""
        if isinstance(value, int | float):
            value = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
        elif isinstance(value, str) and value:
            value = datetime.fromisoformat(value)
            value = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        else:
            return ""
        return str(value.isoformat(timespec="milliseconds")).replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return ""


def local_moment(text: str) -> str:
    """A local time "2024-08-06 20:10:31" as RFC 3339 in UTC; "" for anything else."""
    try:
        return moment(time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S")))
    except (ValueError, OverflowError):
        return ""


def text_of(value: Any) -> str:
    """The value when it is text, else ""."""
    return value if isinstance(value, str) else ""


def told(value: Any) -> str:
    """Whatever a tool gave, as text: text as it is, text parts joined by line ends, anything else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(filter(None, map(told, value)))
    if isinstance(value, dict):
        for key in ("text", "content", "output"):
            if isinstance(value.get(key), str):
                return str(value[key])
        if isinstance(value.get("content"), list):
            return told(value["content"])
    return as_json(value)


def as_json(value: Any) -> str:
    """JSON text; what orjson has no form for is told as Python shows it."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def arguments_text(arguments: Any) -> str:
    """Arguments of a call as JSON text; text stays as it was written."""
    if isinstance(arguments, str):
        return arguments
    return as_json({} if arguments is None else arguments)


def image(media_type: Any, data: Any) -> Json | None:
    """An image part from base64, or None."""
    if isinstance(data, str) and data and isinstance(media_type, str) and media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}
    return None


def text_part(text: str) -> Json:
    return {"type": "text", "text": text}
