"""Bytes of an answer -> its events, whatever frames them.

Server-sent events in every form met: lines ended by LF, CRLF or CR alone, a BOM, comments, several data lines, several
events without a blank line between them, no space after the colon, `data: null`, `error:` lines, a last event without
its blank line. An answer that begins with `{` or
`[` is JSON: one value, several one after another, or an array; what stands after them is ignored. Lines are split on
bytes, so no character is ever cut; only "\\n" and "\\r" end a line (U+2028 and U+0085 do not).

Does not know what an event means.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import orjson

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_FIELDS = (b"data", b"event", b"id", b"retry")
_JSON_BEGUN = re.compile(r"""\s*(?:\{(?!')|"|\[\s*(?:[\[{"\d]|$))""")
_KEPT = 6_000


class Event(NamedTuple):
    """One event: its name ("" when it has none) and its data. `value` is None when the data is not JSON."""

    name: str
    data: bytes
    value: Any


class EventReader:
    """Feed it bytes in any pieces; it gives the events that are complete.

    `comments` counts heartbeats, `damaged` the events that were not JSON, `html` is true for a page, `stray` is the
    first line that belongs to no event, `words` the sentences that came as data in place of JSON; "" where the last of
    it was JSON that was cut.
    """

    def __init__(self) -> None:
        self.comments = 0
        self.damaged = 0
        self.html = False
        self.stray = b""
        self.words = ""
        self.body = b""
        self._mode = ""
        self._rest = b""
        self._name = ""
        self._data: list[bytes] = []

    def whole(self, piece: bytes) -> Any:
        """The value of a piece that is one whole event without a name, as nearly all are; None for any other, which is
        then `feed`'s to read."""
        if not (piece.startswith(b"data: {") and piece.endswith(b"}\n\n") and self._mode == "events"):
            return None
        data = piece[6:-2]
        if self._rest or self._data or self._name or b"\n" in data or b"\r" in data:
            return None
        try:
            return orjson.loads(data)
        except ValueError:
            return None

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completes."""
        self._rest += piece
        if self._mode == "events":
            return self._lines()
        if self._mode == "" and not self._sniff():
            return []
        return self._lines() if self._mode == "events" else []

    def close(self) -> list[Event]:
        """The events that the end of the answer completes."""
        if self._mode in ("json", "html", ""):
            self.body, self._rest = self._rest, b""
            values = self._values(self.body) if self._mode == "json" else []
            if self.damaged and not values:
                self._note(self.body.decode("utf-8", "replace"))
            return [Event("", b"", value) for value in values]
        events = self._lines(final=True)
        if self._rest:
            events += self._line(self._rest)
            self._rest = b""
        return events + self._dispatch()

    def _sniff(self) -> bool:
        """Decide the framing from the first bytes; False while there are too few."""
        start = self._rest
        if _BOM.startswith(start[:3]) and len(start) < 3:
            return False
        if start.startswith(_BOM):
            self._rest = start = start[3:]
        first = start.lstrip()[:1]
        if not first:
            return False
        self._mode = "json" if first in b"{[" else "html" if first == b"<" else "events"
        self.html = self._mode == "html"
        return True

    def _lines(self, final: bool = False) -> list[Event]:
        """Read the complete lines. A CR at the end of the bytes waits: an LF may follow it."""
        buffer = self._rest
        if b"\r" not in buffer:
            *lines, self._rest = buffer.split(b"\n")
        else:
            held = b"\r" if buffer.endswith(b"\r") and not final else b""
            *lines, rest = _LINE_END.split(buffer[: len(buffer) - len(held)])
            self._rest = rest + held
        events: list[Event] = []
        for line in lines:
            if not line:
                if self._data or self._name:
                    events += self._dispatch()
            elif line.startswith(b"data: "):
                self._data.append(line[6:])
            else:
                events += self._line(line)
        return events

    def _line(self, line: bytes) -> list[Event]:
        """Take a line that is not blank; some are events by themselves."""
        if line.startswith(b":"):
            self.comments += 1
            return []
        if line.startswith((b"{", b"[")) and not self._data:
            return [self._event("", line)]
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace").strip()
        elif field == b"error":
            return [self._event("error", value)]
        elif not any(known.startswith(field) for known in _FIELDS):  # the last line may be cut
            self.stray = self.stray or line
        return []

    def _dispatch(self) -> list[Event]:
        """The event that a blank line, or the end, closes; several where each line is one by itself."""
        lines, name = self._data, self._name
        self._data, self._name = [], ""
        data = b"\n".join(lines)
        if data.strip() in (b"", b"null"):
            return [Event(name, b"", None)] if name.lower() == "done" else []
        if len(lines) > 1 and loads(data) is None:
            return [self._event(name, line) for line in lines if line.strip() not in (b"", b"null")]
        if b"}{" in data and loads(data) is None:
            return [Event(name, b"", value) for value in self._values(data)] or [self._event(name, data)]
        return [self._event(name, data)]

    def _event(self, name: str, data: bytes) -> Event:
        if data[:1] == b"{":
            value = loads(data)
            if value is None:
                self.damaged += 1
                self._note(data.decode("utf-8", "replace"))
            return Event(name, data, value)
        while data.startswith(b"data:"):  # a proxy that framed it twice
            data = data[5:].lstrip()
        value = loads(data)
        if value is None:
            if data.strip().upper() == b"[DONE]":
                return Event("[DONE]", data, None)
            self.damaged += 1
        if value is None or isinstance(value, str):
            self._note(value or data.decode("utf-8", "replace"))
        return Event(name, data, value)

    def _note(self, text: str) -> None:
        """Keep the words that stand in place of JSON."""
        if _JSON_BEGUN.match(text):
            self.words = ""
        elif not _is_one_word(text[:_KEPT]):
            self.words = f"{self.words}\n{text}".strip()[:_KEPT]

    def _values(self, data: bytes) -> list[Any]:
        """The JSON objects that stand one after another; an array of objects is its elements."""
        text = data.decode("utf-8", "replace").lstrip("\ufeff")
        decoder = json.JSONDecoder(strict=False)
        found: list[Any] = []
        at = _skip(text, 0)
        while at < len(text) and text[at] in "{[":
            try:
                value, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                self.damaged += 1
                break
            found += [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]
            at = _skip(text, at)
        return found


def _is_one_word(text: str) -> bool:
    """Whether a text says nothing: a heartbeat, or the half of an end mark."""
    words = re.findall(r"\w+", text)
    return not words or (len(words) == 1 and words[0].isascii() and words[0].isalpha())


def loads(data: bytes) -> Any:
    """JSON read leniently: lone surrogates, raw control characters and broken UTF-8 are let through; else None."""
    try:
        return orjson.loads(data)
    except ValueError:
        pass
    try:
        return json.loads(data.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at
