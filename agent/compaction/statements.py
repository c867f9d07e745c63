"""Statements: what was said and done in a conversation, cut into the smallest pieces that still say something.

A sentence somebody wrote, a line or a field of a result, a file that was read or changed, a command and how it ended.
Each carries the anchors in it with what they are worth. Text of tools that gives orders to the reader is no statement.
Pure; it does not choose among them.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from agent import anchors
from agent.compaction import inert, replies, rules
from agent.compaction.cutting import (
    LONG,
    SENTENCES,
    STRONG,
    around,
    clauses,
    cut,
    fields,
    is_code,
    layouts,
    sampled,
    striking,
    telling,
    told_and_asked,
)
from agent.compaction.plan import role
from agent.log.entries import Entry, recalled
from agent.messages import Message, ToolCall, images, text_of, tool_calls
from agent.tokens import estimate

USER, CHANGED, READ, COMMAND, ERROR, CALL, FACT = "user", "changed", "read", "command", "error", "call", "fact"

WORTH = {USER: 1.5, CHANGED: 3.0, ERROR: 2.0, COMMAND: 1.0, READ: 0.7, CALL: 1.0, FACT: 1.0}
"""How much an anchor is worth, by what kind of statement carries it."""


class Statement(NamedTuple):
    """One line of a record. `worth` maps what it states (folded) to how much that is worth."""

    n: int
    kind: str
    text: str
    worth: dict[str, float]
    kept_first: bool = False
    """A constraint or pin of the user."""
    value: int = 0
    """Where the value of a statement like "the port is 8080" begins; 0 when it has none."""

    @property
    def cost(self) -> int:
        return estimate(self.text) + 2


_ERROR_LINE = re.compile(
    r"\b(?:error|exception|\w{1,40}(?:error|exception):|traceback|fatal|fail(?:ed|s|ure)?|panic|denied|cannot|not found|refused"
    r"|timed out|err!)(?!\w)|错误|失败|异常",
    re.IGNORECASE,
)
_ERROR_MARKS = (
    "error exception traceback fatal fail panic denied cannot found refused timed err! 错误 失败 异常".split()
)
"""One of them stands in every line that tells of an error: said first, since it is quick to tell."""

FILE = "file"
AGAIN = 0.3
"""Lines of a file that was read are worth this much of other results: the file can be read again."""
OWN_WORDS = 1.0
"""What a sentence of the user is worth that holds no fact: kept while there is room, the newest first."""
SHORT = 12
"""Bytes: a shorter one ("go on") says nothing by itself."""
ANSWERED = 3.0
"""What a short reply is worth with what it answers, and a line of a list, a table or a block that the user typed."""
LAYOUT = 220
"""Tokens: a longer list is told line by line."""
SCANT = 4
"""Lines of a message that is looked at only in passing."""


# ---- gathering ----


@dataclass
class Gathered:
    """Statements of a session, before any budget. `last` is the largest n seen."""

    statements: list[Statement] = field(default_factory=list)
    last: int = 0

    def of(self, wanted: Callable[[int], bool]) -> Gathered:
        """Those of the messages whose n is wanted."""
        found = [statement for statement in self.statements if wanted(statement.n)]
        return Gathered(found, max((statement.n for statement in found), default=0))


def _worth(found: Iterable[anchors.Anchor], factor: float) -> dict[str, float]:
    worth: dict[str, float] = {}
    for anchor in found:
        key = anchors.fold(anchor.text)
        if key:
            worth[key] = max(worth.get(key, 0.0), anchor.weight * factor)
    return worth


_OPENS = re.compile(r'^<((?:file|stdin)(?:-\d+)?)(?: path="[^"\n]*")?>\n', re.MULTILINE)
_CLOSES = re.compile(r"^</((?:file|stdin)(?:-\d+)?)>$", re.MULTILINE)


def attached(text: str) -> list[tuple[int, str, int]]:
    """Files and standard input in a prompt (`agent.cli.prompt.block`): material, not the user's words, and never a rule. Of
    each where it begins, what is in it, and where it ends. Linear, however many lines look like a tag."""
    closings: dict[str, list[re.Match[str]]] = {}
    for found in _CLOSES.finditer(text):
        closings.setdefault(found[1], []).append(found)
    blocks, at = [], 0
    for opening in _OPENS.finditer(text) if closings else ():
        ends = closings.get(opening[1], [])
        place = bisect_right(ends, opening.end(), key=re.Match.start)
        if opening.start() >= at and place < len(ends):
            at = ends[place].end()
            blocks.append((opening.start(), text[opening.end() : ends[place].start() - 1], at))
    return blocks


def _said(n: int, text: str, role: str) -> Iterator[Statement]:
    """The statements of one message's text."""
    if role in ("tool", FILE):
        yield from _shown(n, sampled(text), AGAIN if role == FILE else 1.0)
    elif role == "user" and (blocks := attached(text)):
        ends = [0, *(end for _, _, end in blocks)]
        outside = (
            text[end:start] for end, start in zip(ends, [*(start for start, _, _ in blocks), len(text)], strict=True)
        )
        yield from _typed(n, typed := sampled("\n".join(outside)))
        for _, inside, _ in blocks:  # a prompt that is nothing but a file is what the user wants
            inside = sampled(inside)
            yield from _shown(n, inside, 1.0) if typed.strip() else _spoken(n, inside, USER)
    elif role == "user":
        yield from _typed(n, sampled(text))
    else:
        yield from _spoken(n, sampled(text), FACT)


def _sentences(text: str, kind: str) -> Iterator[tuple[str, bool]]:
    """(sentence, whether it is a rule of the user)."""
    ruled = kind == USER and rules.may_constrain(text)
    for sentence in filter(None, map(str.strip, cut(text, SENTENCES))):
        if ruled and rules.constrains(sentence):
            yield sentence, True
        else:
            pieces = filter(None, told_and_asked(sentence))
            yield from ((piece, ruled and piece != sentence and rules.constrains(piece)) for piece in pieces)


def _typed(n: int, text: str) -> Iterator[Statement]:
    """Statements of what a user typed. A list, a table or a block stays in one piece, unless rules are in it."""
    for piece, laid_out in layouts(text):
        lines = [line for line in piece.splitlines() if anchors.fold(line)] if laid_out else []
        if lines and estimate(piece) <= LAYOUT and not any(rule for _, rule in _sentences(piece, USER)):
            worth = {anchors.fold(piece): ANSWERED * len(lines)}
            yield Statement(n, USER, piece, worth | _worth(anchors.find(piece), WORTH[USER]))
        else:
            yield from _spoken(n, piece, USER)


def _replied(n: int, before: str, text: str) -> Iterator[Statement]:
    """What a short reply means, with what the model said before it."""
    told, answer = replies.meant(before, text)
    if told and not inert.orders(told):
        pair = f"{told} → {answer}"
        yield Statement(n, USER, pair, {anchors.fold(pair): ANSWERED})


def _pictured(n: int, message: Message) -> Iterator[Statement]:
    """That there were images, which a record cannot show."""
    if found := len(images(message)):
        told = f"({found} image{'s' * (found > 1)} attached)"
        yield Statement(n, USER, told, {f"image {n}": OWN_WORDS})


def _spoken(n: int, text: str, kind: str) -> Iterator[Statement]:
    """Statements of what a person or the model said: sentences, or parts of long ones."""
    for sentence, constraint in _sentences(text, kind):
        found = anchors.find(sentence)
        if constraint or len(sentence) <= LONG:
            start, end = (0, len(sentence)) if constraint else telling(sentence, found)
            sentence = sentence[start:end]
            value = next((a.start - start for a in reversed(found) if a.kind == "value"), 0)
            worth = _worth(found, WORTH[kind])
            if kind == USER and not worth and len(sentence.encode("utf-8", "replace")) > SHORT:
                worth = {anchors.fold(sentence): OWN_WORDS}
            yield Statement(n, kind, sentence, worth, constraint, value)
        elif found or kind != USER:
            for piece, inside in around(sentence, found):
                yield Statement(n, kind, piece, _worth(inside, WORTH[kind]))
        else:
            yield from (Statement(n, USER, piece, {anchors.fold(piece): OWN_WORDS}) for piece in clauses(sentence))


def _shown(n: int, text: str, factor: float) -> Iterator[Statement]:
    """Statements of what a tool gave back: fields and lines, those that give orders left out."""
    orders, folded = "\\u" in text or inert.may_order(text), text.casefold()
    errors = any(mark in folded for mark in _ERROR_MARKS)
    for line in fields(text):
        yield from (Statement(n, *told) for told in _stated(line, factor, orders, errors))


@lru_cache(maxsize=8192)
def _stated(line: str, factor: float, orders: bool, errors: bool) -> tuple[tuple[str, str, dict[str, float]], ...]:
    """Kind, text and worth of what a line states. Results show the same lines again and again."""
    code = is_code(line)
    if len(line) < 3 or (code and not STRONG.search(line)) or (orders and inert.orders(line)):
        return ()
    found = anchors.find(line)
    kind = ERROR if found and errors and not code and _ERROR_LINE.search(line) else FACT
    pieces = around(line, found) if len(line) > LONG else [(line, found)] if found else []
    return tuple((kind, piece, _worth(inside, WORTH[kind] * factor)) for piece, inside in pieces)


_PATH_KEYS = ("path", "file_path", "filename", "file", "target_file", "absolute_path", "notebook_path")
_COMMAND_KEYS = ("command", "cmd", "script")
_CHANGES = re.compile(r"write|edit|create|replace|insert|patch|update|delete|move|rename|append|save", re.IGNORECASE)
_EXIT = re.compile(r"exit(?:ed)?(?: with)?[ _]?(?:code|status)?[:= ]*(-?\d+)", re.IGNORECASE)


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _acts(n: int, call: ToolCall, result: Entry) -> Iterator[Statement]:
    """What one call did: files and commands, from its arguments and from what is known of its result."""
    given = _arguments(call.arguments)
    about = result.get("tool")
    about = about if isinstance(about, dict) else {}
    files = about.get("files")
    path = next((given[key] for key in _PATH_KEYS if isinstance(given.get(key), str)), "")
    command = next((given[key] for key in _COMMAND_KEYS if isinstance(given.get(key), str)), "")
    if isinstance(files, dict):
        for kind in (CHANGED, READ):
            names = files.get(kind)
            yield from (
                _file(n, kind, name) for name in (names if isinstance(names, list) else ()) if isinstance(name, str)
            )
    elif path:
        changed = _CHANGES.search(call.name) or given.get("command") in ("create", "str_replace", "insert")
        yield _file(n, CHANGED if changed else READ, path)
    if command and not path:
        yield _command(n, command, about, text_of(result.get("message", {})))
    elif given and not path and not files:
        told = ", ".join(f"{key}: {value}" for key, value in given.items() if isinstance(value, str | int | float))
        if 0 < len(told) <= LONG:
            yield Statement(n, CALL, f"{call.name} {told}", _worth(anchors.find(told), WORTH[CALL]))


def _file(n: int, kind: str, path: str) -> Statement:
    return Statement(n, kind, path, {path: 2.0 * WORTH[kind]})


def _command(n: int, command: str, about: dict[str, Any], output: str) -> Statement:
    code = about.get("exit_code")
    if not isinstance(code, int):
        told = _EXIT.search(output[:200]) or _EXIT.search(output[-200:])
        code = int(told[1]) if told else None
    line = " ".join(command.split())
    line = line if len(line) <= LONG else line[: LONG - 1] + "…"
    told_code = "" if code is None else f" → exit {code}"
    worth = _worth(anchors.find(line), WORTH[COMMAND]) | {f"{line} {code}": 2.0 if code else 0.5}
    return Statement(n, COMMAND, f"`{line}`{told_code}", worth)


def _steps(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Each message that is no result, with the results that follow it."""
    step: list[Entry] = []
    for entry in entries:
        if step and role(entry) != "tool":
            yield step
            step = []
        step.append(entry)
    if step:
        yield step


Thin = Callable[[Gathered], None]


def pinned(pins: Iterable[str]) -> list[Statement]:
    """What the user pinned, as statements of no message."""
    return [Statement(0, USER, pin, {pin: 9.0}, True) for pin in pins]


def gather(
    entries: Iterable[Entry],
    into: Gathered | None = None,
    thin: Thin | None = None,
    most: int = 0,
    spare: int = 0,
) -> Gathered:
    """Every statement of the given message entries (originals, in order of n; summaries are passed over), put `into`
    what was gathered of those before them.

    `thin` is called each time there are more than `most` statements, to leave the best of them. Of the first `spare`
    characters that were not typed by the user only the lines are read that hold something unmistakable.
    """
    out, before = into or Gathered(), ""
    for step in _steps(entry for entry in entries if not entry.get("summary")):
        results = {str(entry["message"].get("tool_call_id")): entry for entry in step[1:]}
        files = set()
        for entry in step:
            n, text, who = entry.get("n", 0), text_of(entry["message"]), role(entry)
            out.last = max(out.last, n)
            if spare > 0 and who != "user":
                spare -= len(text)
                text = striking(text, SCANT)
            if who == "user":
                out.statements += [*_replied(n, before, text), *_pictured(n, entry["message"])]
            if who in ("user", "assistant"):
                before = text if who == "assistant" else ""
            if who in ("user", "assistant") or (who == "tool" and not recalled(entry)):
                out.statements += _said(n, text, FILE if str(entry["message"].get("tool_call_id")) in files else who)
            for call in tool_calls(entry["message"]):
                acts = list(_acts(n, call, results.get(call.id, {})))
                out.statements += acts
                if any(act.kind == READ for act in acts):
                    files.add(call.id)
        if thin and len(out.statements) > most:
            thin(out)
    return out
