"""Putting streamed tool calls together, in every dialect met.

A nameless fragment belongs to the call whose id it bears, else to its index, else to the last call that is not whole.
Indexes are not to be relied on: a new id with a name on a known index opens a new call (Ollama), and so does another
name after whole arguments, with or without an id (Gemini's compatible mode). Names and ids never get lost to empty
repeats; arguments may be text, an object, null, cumulative, several objects at one index, or padded with `{}`. What is
stated again, in pieces, whole or written in another way, is the same call: none runs twice. Calls are read only when the
answer has ended, so none is ever seen half made.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from agent.wire import clean


class _Open:
    """A call being written."""

    def __init__(self) -> None:
        self.id = self.name = ""
        self.parts: list[str] = []
        self.extra: dict[str, Any] = {}

    @property
    def written(self) -> str:
        return "".join(self.parts)

    def states(self, text: str) -> bool:
        """Whether a whole object is what stands here already, however it is written."""
        return is_object(text) and any(_is_same(text, whole) for whole in (self.written, _grown(self.parts)))


class _Fragment(NamedTuple):
    """What one fragment says of its call: `at` is its index, `position` its place where several came at once."""

    at: int | None
    id: str
    name: str
    text: str
    position: int | None

    def repeats(self, call: _Open) -> bool:
        """Whether it is the whole call once more."""
        return self.name == call.name and call.states(self.text)

    def is_only_text(self) -> bool:
        return bool(self.text and not self.name and not self.id)


class CallsBeingWritten:
    """Collects fragments with `add`; `finish` gives the calls in order."""

    def __init__(self) -> None:
        self._calls: list[_Open] = []
        self._at: dict[int, _Open] = {}
        self._earlier = 0

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, fragments: Any) -> None:
        """Take the `tool_calls` of one delta: a list, one object, or nothing."""
        listed = [fragments] if isinstance(fragments, dict) else fragments if isinstance(fragments, list) else []
        self._earlier = len(self._calls)
        for position, fragment in enumerate(listed):
            if isinstance(fragment, dict):
                self._add(fragment, position if len(listed) > 1 else None)

    def finish(self) -> list[dict[str, Any]]:
        """The calls as a message holds them. Ids that are missing or used twice are made up; a call without a name is
        left out."""
        made: list[dict[str, Any]] = []
        used: set[str] = set()
        for call in self._calls:
            if not call.name:
                continue
            for at, arguments in enumerate(_arguments(call.parts)):
                call_id = call.id if at == 0 and call.id not in used else ""
                used.add(call_id)
                function = {"name": clean(call.name), "arguments": clean(arguments)}
                made.append(
                    {"id": call_id, "type": "function", "function": function, **(call.extra if at == 0 else {})}
                )
        if any(not call["id"] for call in made):
            import secrets

            for one in made:
                one["id"] = one["id"] or f"call_{secrets.token_hex(8)}"
        return made

    def _add(self, fragment: dict[str, Any], position: int | None) -> None:
        function = fragment.get("function")
        function = function if isinstance(function, dict) else fragment
        named, call_id = function.get("name"), fragment.get("id")
        name = named.partition("<|")[0] if isinstance(named, str) else ""  # marks of a template (gpt-oss)
        call_id = str(call_id) if isinstance(call_id, (str, int)) and not isinstance(call_id, bool) else ""
        text = _as_text(function.get("arguments", function.get("input")))
        call = self._find(_Fragment(_number(fragment.get("index")), call_id, name, text, position))
        call.id = call.id or call_id
        call.name = _join_name(call, name)
        if text and not call.states(text):
            call.parts.append(text)
        if isinstance(fragment.get("extra_content"), dict):
            call.extra["extra_content"] = fragment["extra_content"]

    def _find(self, part: _Fragment) -> _Open:
        """The call this fragment goes on with, or a new one."""
        same = next((call for call in reversed(self._calls) if part.id and call.id == part.id), None)
        if same is not None and (part.at is None or not part.name or part.repeats(same)):
            return self._open() if _is_other(same, part.name) else same
        if part.at is not None:
            return self._at_index(part.at, part)
        earlier = (call for call in self._calls[: self._earlier] if not (part.id and call.id))
        repeated = next(filter(part.repeats, earlier), None)
        return repeated or self._after_last(part)

    def _at_index(self, index: int, part: _Fragment) -> _Open:
        known = self._at.get(index)
        if known is None and part.is_only_text() and self._calls and not _objects(self._calls[-1].written):
            self._at[index] = self._calls[-1]  # the arguments stand one index beside their call
            return self._calls[-1]
        another = known and known.id and part.id not in ("", known.id) and _is_new(known, part.name)
        if known is None or another or _is_other(known, part.name):
            known = self._at[index] = self._open()
        return known

    def _after_last(self, part: _Fragment) -> _Open:
        if not self._calls:
            return self._open()
        last = self._calls[-1]
        if part.id:
            return last if not last.id and not part.name else self._open()
        if last.name and _is_new(last, part.name):
            return self._open()
        if part.position is not None and not part.name:
            return self._calls[min(part.position, len(self._calls) - 1)]
        return last

    def _open(self) -> _Open:
        self._calls.append(_Open())
        return self._calls[-1]


def _is_new(call: _Open, name: str) -> bool:
    """A named fragment opens a new call unless `call` is only begun and has the same name."""
    return bool(name) and (name != call.name or bool(_objects(call.written))) and not is_cut(call.written)


def _is_other(call: _Open, name: str) -> bool:
    """Another name after whole arguments is another call, whatever its index and id say."""
    return bool(name and call.name) and name != call.name and bool(_objects(call.written))


def _is_same(text: str, other: str) -> bool:
    """Whether an object and a text are one and the same JSON object."""
    return is_object(other) and len(_objects(other + text)) == 1


def _join_name(call: _Open, name: str) -> str:
    """The name so far with this fragment of it: repeats and cumulative names change nothing, pieces are joined."""
    if not name or name == call.name:
        return call.name
    if not call.name or name.startswith(call.name):
        return name
    return call.name if call.parts else call.name + name


def _as_text(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    try:
        return orjson.dumps(arguments).decode()
    except TypeError:
        return json.dumps(arguments)


def _number(index: Any) -> int | None:
    if isinstance(index, str) and index.isascii() and index.isdigit():
        return int(index)
    return index if isinstance(index, int) and not isinstance(index, bool) else None


def _arguments(parts: list[str]) -> list[str]:
    """The arguments of one index: usually one text; several when different objects stand one after another."""
    written = "".join(parts)
    if not written.strip():
        return ["{}"]
    if is_object(written):
        return [written]
    grown = _grown(parts)
    return [grown] if grown else _unpadded(_objects(written)) or [written]


def _grown(parts: list[str]) -> str:
    """The object that is whole in the last fragment, where each repeats what came before it; else ""."""
    grows = all(later.startswith(earlier) for earlier, later in pairwise(parts))
    return parts[-1] if parts and grows and is_object(parts[-1]) else ""


def _unpadded(objects: list[str]) -> list[str]:
    """Without the `{}` that some servers send before or after the arguments that follow piece by piece."""
    if any(o != "{}" for o in objects):
        objects = objects[1:] if objects[0] == "{}" else objects
        objects = objects[:-1] if objects[-1] == "{}" else objects
    return objects


def _objects(text: str) -> list[str]:
    """The texts of the different JSON objects that stand one after another and are all there is, each perhaps encoded
    twice; [] otherwise."""
    decoder = json.JSONDecoder(strict=False, parse_float=_plain_number)
    found: dict[str, str] = {}
    at = len(text) - len(text.lstrip())
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
            written = text[at:end]
            if isinstance(value, str):
                value, written = decoder.decode(value), value
            key = json.dumps(value, sort_keys=True)
        except (ValueError, RecursionError):
            return []
        if not isinstance(value, dict):
            return []
        found.setdefault(key, written)
        while end < len(text) and text[end].isspace():
            end += 1
        at = end
    return list(found.values())


def _plain_number(digits: str) -> float:
    """1.0 and 1 are one number in JSON."""
    number = float(digits)
    return int(number) if number.is_integer() else number


def is_object(text: str) -> bool:
    """Whether a text is one whole JSON object."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def is_cut(text: str) -> bool:
    """Whether a text is the beginning of a JSON object that has not ended: something is open."""
    depth, quoted, escaped = 0, False, False
    for char in text.lstrip():
        if quoted:
            quoted = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            quoted = True
        elif char in "{[":
            depth += 1
        elif char in "}]":
            depth -= 1
    return text.lstrip().startswith("{") and (quoted or depth > 0)
