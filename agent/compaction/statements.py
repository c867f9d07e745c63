"""Statements: what was said and done in a conversation, cut into the smallest pieces that still say something.

A sentence somebody wrote, a line or a field of a result, a file that was read or changed, a command and how it ended.
Each carries the anchors in it with what they are worth. Text of tools that gives orders to the reader is no statement.
Pure; it does not choose among them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from agent import anchors
from agent.compaction import inert, rules
from agent.compaction.plan import role
from agent.messages import ToolCall, text_of, tool_calls
from agent.tokens import Entry, estimate

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


# ---- cutting messages into statements ----

_SENTENCES = re.compile(rf"[\n。！？；!?;.](?:(?<=\n)\n*|(?<=[。！？；!?;])\s*|(?<=\.)\s+(?=[A-Z\"'({anchors.CJK}]))")
_LINES = re.compile(
    r"[\n\r\t,。！？；.!?;](?:(?<=[\n\r\t])[\n\r\t]*|(?<=[\"\w\]}],)\s*(?=[\"{\[])|(?<=[。！？；])\s*|(?<=[.!?;])\s+(?=[A-Z]))"
)
"""Where a text is cut. Both begin with a plain set of characters: only so does the search run over all others."""
_COMMAS = re.compile(r"[，,]\s*")
_ERROR_LINE = re.compile(
    r"\b(?:error|exception|traceback|fatal|failed|panic|denied|cannot)\b|错误|失败|异常", re.IGNORECASE
)

_ERROR_MARKS = "error exception traceback fatal failed panic denied cannot 错误 失败 异常".split()
"""One of them stands in every line that tells of an error: said first, since it is quick to tell."""

FILE = "file"
AGAIN = 0.3
"""Lines of a file that was read are worth this much of other results: the file can be read again."""
OWN_WORDS = 1.0
"""What a sentence of the user is worth that holds no fact: kept while there is room, the newest first."""
SHORT = 12
"""Bytes: a shorter one ("go on") says nothing by itself."""
GIANT = 120_000
"""Characters: a longer text is not read whole."""
LONG = 160
"""Characters: a longer statement is cut to the parts around its anchors."""
SCANT = 4
"""Lines of a message that is looked at only in passing."""


def _cut(text: str, ends: re.Pattern[str]) -> Iterator[str]:
    """The pieces of a text between `ends`; marks stay with the piece before them, white space and commas go."""
    at = 0
    for match in ends.finditer(text):
        end = match.start()
        yield text[at : end if text[end] in "\n\r\t," else end + 1]
        at = match.end()
    yield text[at:]


def _fields(text: str) -> Iterator[str]:
    """The lines of a result; of one that is JSON its values, each with its key: `phone: 010-8500`."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            yield from _leaves(json.loads(text), "")
            return
        except (ValueError, RecursionError):
            pass
    yield from (line.strip(" ,-*\t") for line in _cut(text, _LINES))


def _leaves(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, str(name))
    elif isinstance(value, list) and not all(isinstance(inner, str | int | float) for inner in value):
        for inner in value:
            yield from _leaves(inner, key)
    elif isinstance(value, str) and "\n" in value:
        yield from (line.strip() for line in _cut(value, _LINES))
    elif value not in (None, "", [], True, False):
        told = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        yield f"{key}: {told}" if key else told


def _around(text: str, found: Sequence[anchors.Anchor]) -> Iterator[tuple[str, list[anchors.Anchor]]]:
    """A long text as windows around its anchors, cut at white space where there is some."""
    window: list[anchors.Anchor] = []
    for anchor in [*found, anchors.Anchor("value", "", len(text) + LONG)]:
        if window and anchor.start + len(anchor.text) - window[0].start > LONG // 2:
            start, end = max(0, window[0].start - 40), window[-1].start + len(window[-1].text) + 20
            start = start if start == 0 else text.find(" ", start, window[0].start) + 1 or start
            stop = text.rfind(" ", window[-1].start + len(window[-1].text), end)
            yield text[start : stop if stop > 0 and end < len(text) else end].strip(), window
            window = []
        window.append(anchor)


def _telling(sentence: str, found: Sequence[anchors.Anchor]) -> tuple[int, int]:
    """Start and end of a sentence without the clauses at either end that hold no anchor ("Oh, it was 1987, wow")."""
    if not found:
        return 0, len(sentence)
    first, last = found[0].start, max(a.start + len(a.text) for a in found)
    start = max((m.end() for m in _COMMAS.finditer(sentence, 0, first)), default=0)
    after = _COMMAS.search(sentence, last)
    return start, after.start() if after else len(sentence)


_CODE = re.compile(r"[{}()\[\];=<>|&\\$#^~]")
CODE_SHARE = 0.08
_STRONG = re.compile(r"://|[Ee]rror|[Ee]xception|\w\{\S|\b[0-9a-f]{10,}\b")


def is_code(line: str) -> bool:
    """Whether a line is code or a dump, by its marks: it can be read again where it came from."""
    return len(_CODE.findall(line)) > CODE_SHARE * len(line)


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


_BLOCK = r'^<(?P<tag>(?:file|stdin)(?:-\d+)?)(?: path="[^"\n]*")?>\n(?P<inside>.*?)(?:\n</(?P=tag)>$'
_ATTACHED = re.compile(_BLOCK + ")", re.DOTALL | re.MULTILINE)
_ATTACHED_OR_CUT = re.compile(_BLOCK + r"|\Z)", re.DOTALL | re.MULTILINE)
"""Files and standard input in a prompt (`agent.cli.prompt.block`): material, not the user's words, and never a rule."""


def _said(n: int, text: str, role: str) -> Iterator[Statement]:
    """The statements of one message's text."""
    whole, text = text, _sampled(text)
    if role in ("tool", FILE):
        yield from _shown(n, text, AGAIN if role == FILE else 1.0)
    elif role == "user" and "</" in text:
        attached = _ATTACHED if text is whole else _ATTACHED_OR_CUT
        yield from _spoken(n, typed := attached.sub("\n", text), USER)
        for block in attached.finditer(text):  # a prompt that is nothing but a file is what the user wants
            yield from _shown(n, block["inside"], 1.0) if typed.strip() else _spoken(n, block["inside"], USER)
    else:
        yield from _spoken(n, text, USER if role == "user" else FACT)


def _sampled(text: str) -> str:
    """A giant text as its head, its tail, and between them the lines that hold something unmistakable."""
    if len(text) <= GIANT:
        return text
    end = GIANT // 3
    return "\n".join([text[:end], _striking(text[end:-end], GIANT // LONG), text[-end:]])


def _striking(text: str, most: int) -> str:
    """The lines of a text that hold something unmistakable, `most` of them; none that is a whole page."""
    lines: list[str] = []
    end = -1
    for match in _STRONG.finditer(text):
        if match.start() < end:
            continue
        start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
        end = len(text) if end < 0 else end
        if end - start <= 4 * LONG:
            lines.append(text[start:end])
        if len(lines) == most:
            break
    return "\n".join(lines)


_QUESTION = re.compile(r"[?？]$|[吗呢]\s*[。？?]?$")
_OPEN = re.compile(
    r"^(?:is|are|was|were|am|do|does|did|can|could|will|would|shall|should|may|might|must|has|have|had|what|which|who|whose"
    r"|when|where|why|how|if|unless|whether|suppose|assuming)\b|什么|哪|怎么|几|多少|谁|是否|是不是|能不能|有没有|如果|要是|假如",
    re.IGNORECASE,
)
"""What begins so, or holds that, is a question or a condition itself."""
_PAIRS = tuple(zip("([{（“「《", ")]}）”」》", strict=True))


def asks(sentence: str) -> bool:
    """Whether a sentence ends as a question does."""
    end = sentence.rstrip()[-8:]
    return (not end.isascii() or end[-1:] == "?") and bool(_QUESTION.search(end))


def _told_and_asked(sentence: str) -> list[str]:
    """What is told and the question after it ("8080, and the other one?") apart; most sentences are one piece."""
    at = max(sentence.rfind(", "), sentence.rfind("，")) if asks(sentence) else 0
    told, asked = sentence[:at].rstrip(), sentence[at + 1 :].strip()
    inside = any(asked.count(opened) != asked.count(closed) for opened, closed in _PAIRS) or asked.count('"') % 2
    whole = not told or inside or (told[-1].isdigit() and asked[:1].isdigit()) or _OPEN.search(told)
    return [sentence] if whole else [told, asked]


def _sentences(text: str, kind: str) -> Iterator[tuple[str, bool]]:
    """(sentence, whether it is a rule of the user)."""
    ruled = kind == USER and rules.may_constrain(text)
    for sentence in filter(None, map(str.strip, _cut(text, _SENTENCES))):
        if ruled and rules.constrains(sentence):
            yield sentence, True
        else:
            yield from ((piece, False) for piece in _told_and_asked(sentence) if piece)


def _spoken(n: int, text: str, kind: str) -> Iterator[Statement]:
    """Statements of what a person or the model said: sentences, or parts of long ones."""
    for sentence, constraint in _sentences(text, kind):
        found = anchors.find(sentence)
        if constraint or len(sentence) <= LONG:
            start, end = (0, len(sentence)) if constraint else _telling(sentence, found)
            sentence = sentence[start:end]
            value = next((a.start - start for a in reversed(found) if a.kind == "value"), 0)
            worth = _worth(found, WORTH[kind])
            if kind == USER and not worth and len(sentence.encode("utf-8", "replace")) > SHORT:
                worth = {anchors.fold(sentence): OWN_WORDS}
            yield Statement(n, kind, sentence, worth, constraint, value)
        else:
            for piece, inside in _around(sentence, found):
                yield Statement(n, kind, piece, _worth(inside, WORTH[kind]))


def _shown(n: int, text: str, factor: float) -> Iterator[Statement]:
    """Statements of what a tool gave back: fields and lines, those that give orders left out."""
    orders, folded = "\\u" in text or inert.may_order(text), text.casefold()
    errors = any(mark in folded for mark in _ERROR_MARKS)
    for line in _fields(text):
        yield from (Statement(n, *told) for told in _stated(line, factor, orders, errors))


@lru_cache(maxsize=8192)
def _stated(line: str, factor: float, orders: bool, errors: bool) -> tuple[tuple[str, str, dict[str, float]], ...]:
    """Kind, text and worth of what a line states. Results show the same lines again and again."""
    if len(line) < 3 or (is_code(line) and not _STRONG.search(line)) or (orders and inert.orders(line)):
        return ()
    found = anchors.find(line)
    kind = ERROR if found and errors and _ERROR_LINE.search(line) else FACT
    pieces = _around(line, found) if len(line) > LONG else [(line, found)] if found else []
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
    out = into or Gathered()
    for step in _steps(entry for entry in entries if not entry.get("summary")):
        results = {str(entry["message"].get("tool_call_id")): entry for entry in step[1:]}
        files = set()
        for entry in step:
            n, text, who = entry.get("n", 0), text_of(entry["message"]), role(entry)
            out.last = max(out.last, n)
            if spare > 0 and who != "user":
                spare -= len(text)
                text = _striking(text, SCANT)
            if who in ("user", "assistant", "tool"):
                out.statements += _said(n, text, FILE if str(entry["message"].get("tool_call_id")) in files else who)
            for call in tool_calls(entry["message"]):
                acts = list(_acts(n, call, results.get(call.id, {})))
                out.statements += acts
                if any(act.kind == READ for act in acts):
                    files.add(call.id)
        if thin and len(out.statements) > most:
            thin(out)
    return out
