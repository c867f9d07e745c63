"""The lines of a session file: bytes <-> entries, what is damage, and what the model sees of them.

The format itself is specified in `agent.session`. This module is the pure half of it: nothing here opens a file.

Reading is strict and fast: a line is one JSON object with a `type`, and a `message` entry carries a message with a
role. orjson parses; the standard library is asked only about a line that orjson refuses, because it also reads lone
surrogates. Entries are the parsed dicts themselves: unknown types and keys are kept and come back at a rewrite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from agent.messages import Message, tool_calls

Entry = dict[str, Any]

BOM = b"\xef\xbb\xbf"
INTERRUPTED = "interrupted, outcome unknown: the run ended before a result was saved. Check before repeating the call."
"""The view's answer to a call whose result was never saved."""

KNOWN_TYPES = frozenset({"meta", "message", "compaction", "attempt", "undo", "failed", "pin"})


def pin_line(text: str) -> str:
    """How the model is told a pin with the prompt that it came with."""
    return f"Keep to this for the whole session: {text}"


def recalled(entry: Entry) -> bool:
    """Whether it is a result of `recall`: it quotes what stands in the session anyway."""
    about = entry.get("tool")
    return isinstance(about, dict) and about.get("name") == "recall"


class Line(NamedTuple):
    """One line of a file: `number` from 1, `offset` in bytes, `raw` without its LF; `entry`, or why it has none."""

    number: int
    offset: int
    raw: bytes
    entry: Entry | None
    fault: str
    terminated: bool


def parse(line: bytes) -> Any:
    """The JSON value of one line. Raises ValueError for anything that is not exactly one value in UTF-8.

    Lone surrogates written as escapes are read, and kept; NaN and Infinity are not JSON.
    """
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        import json

        try:
            return json.loads(line.decode("utf-8"), parse_constant=_refuse)
        except (ValueError, RecursionError):
            raise ValueError(_reason(line, str(error))) from None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _reason(line: bytes, parser: str) -> str:
    """Why a line is bad, in a person's words."""
    if b"\0" in line:
        return "it holds NUL bytes (a crash of the machine leaves them)"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 at byte {error.start + 1} of the line"
    return f"it is not JSON ({parser.split(': line 1')[0]})"


def encode(entry: Entry) -> bytes:
    """One line, newline included. What orjson refuses (lone surrogates, huge integers) is written as ASCII escapes."""
    try:
        return orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        import json

        return json.dumps(entry, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def fault_of(value: Any) -> str:
    """Why a parsed line is not an entry, or ""."""
    if type(value) is not dict:
        return "it is not a JSON object"
    kind = value.get("type")
    if type(kind) is not str:
        return "it has no type"
    if kind == "message":
        message = value.get("message")
        if type(message) is not dict or type(message.get("role")) is not str:
            return "it is a message without a role"
    n = value.get("n")
    if n is not None and (type(n) is not int or n < 0):
        return "its n is not a number"
    return ""


def decode(lines: Iterable[bytes]) -> list[Entry] | None:
    """All entries of sound, terminated lines, as fast as they can be parsed; None when any line needs a closer look."""
    try:
        values = list(map(orjson.loads, lines))
    except orjson.JSONDecodeError:
        return None
    return None if any(map(fault_of, values)) else values


def scan(lines: Iterable[bytes]) -> Iterator[Line]:
    """Every line with its place and its fault, one at a time: what `decode` does not say. Blank lines are left out."""
    offset = 0
    for number, line in enumerate(lines, 1):
        terminated = line.endswith(b"\n")
        raw = line[:-1] if terminated else line
        text = raw.removeprefix(BOM) if number == 1 else raw
        if text.strip(b" \t\r"):
            entry, fault = _judge(text)
            yield Line(number, offset, raw, entry, fault, terminated)
        offset += len(line)


def _judge(text: bytes) -> tuple[Entry | None, str]:
    try:
        value = parse(text)
    except ValueError as error:
        return None, str(error)
    fault = fault_of(value)
    return (None, fault) if fault else (value, "")


def number(entries: Sequence[Entry], top: int = 0) -> int:
    """Give every entry without `n` the next one by its place, or one above all where that is another's; return the largest
    `n` of all (at least `top`)."""
    used: set[int | None] = {entry.get("n") for entry in entries}
    highest = max([top, *filter(None, used)])
    if None not in used:  # as it nearly always is
        return highest
    for entry in entries:
        n = entry.get("n")
        if n is None:
            n = entry["n"] = highest + 1 if top + 1 in used else top + 1
            used.add(n)
        top, highest = max(top, n), max(highest, n)
    return top


def unnumbered(entries: Sequence[Entry]) -> int:
    """How many entries have no number where others have one: lines that were put in by hand."""
    lacking = [entry.get("n") for entry in entries].count(None)
    return lacking if lacking < len(entries) else 0


def largest_request(entries: Iterable[Entry], least: int = 0) -> int:
    """The largest `request.k` among the entries, or `least`."""
    for entry in entries:
        request = entry.get("request")
        if type(request) is dict and type(request.get("k")) is int and request["k"] > least:
            least = request["k"]
    return least


# ---- what the model sees ---------------------------------------------------------------------------------------------


def replay(entries: Sequence[Entry]) -> list[Message]:
    """The conversation of these entries: the messages themselves, in file order, made whole. Pure; nothing is copied.

    - a prompt whose turn failed without any answer is left out (entry `failed`);
    - a call whose result was never saved is answered right after the results its message does have;
    - a result that answers no call of the assistant message before it is left out.

    What is left out stays in the file. Calls are paired by place and id, one message at a time: ids may repeat over a
    session's life.
    """
    left_out = failed_prompts(entries)
    messages = [e["message"] for e in entries if e["type"] == "message" and e.get("n") not in left_out]
    view: list[Message] = []
    at, end = 0, len(messages)
    while at < end:
        message = messages[at]
        at += 1
        if message["role"] == "tool":
            continue  # answers nothing
        view.append(message)
        if "tool_calls" in message and message["role"] == "assistant":
            stop = at
            while stop < end and messages[stop]["role"] != "assistant":
                stop += 1
            view += _answered(message, messages[at:stop])
            at = stop
    return view


def failed_prompts(entries: Sequence[Entry]) -> set[Any]:
    """The `n` of prompts that a `failed` entry names and that no assistant message followed before it."""
    found = set()
    waiting: dict[Any, bool] = {}
    if any(e["type"] == "failed" for e in entries):
        for entry in entries:
            if entry["type"] == "message":
                if entry["message"]["role"] == "assistant" and not entry.get("summary"):
                    waiting.clear()
                elif entry["message"]["role"] == "user":
                    waiting[entry.get("n")] = True
            elif entry["type"] == "failed" and isinstance(n := entry.get("prompt"), int) and n in waiting:
                found.add(n)
    return found


def _answered(message: Message, following: list[Message]) -> list[Message]:
    """What follows a message with calls: its results first, the missing ones filled in, then everything else."""
    calls = [call.id for call in tool_calls(message)]
    if calls == [_answers(later) if later["role"] == "tool" else None for later in following]:
        return following  # as it nearly always is
    open_calls = Counter(calls)
    results, others = [], []
    for later in following:
        if later["role"] != "tool":
            others.append(later)
        elif open_calls[_answers(later)] > 0:
            open_calls[_answers(later)] -= 1
            results.append(later)
    for call in calls:
        if open_calls[call] > 0:
            open_calls[call] -= 1
            results.append({"role": "tool", "tool_call_id": call, "content": INTERRUPTED})
    return results + others


def _answers(result: Message) -> str:
    """The id a tool message names; a damaged one is "", as `tool_calls` has it for a damaged call."""
    found = result.get("tool_call_id")
    return found if isinstance(found, str) else ""
