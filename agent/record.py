"""The record: what code, not a model, carries through every compaction.

Made each time anew from the originals of the whole life of a session, so that the tenth record knows what the first one
knew. The originals are cut into *statements* (a message the user typed, a sentence, a line, a field of a result); each
is worth what its anchors are worth, and the record is the best of them that fit a budget of tokens: what the user said
weighs most, then changed files, errors, what recurs, then the rest; what stands elsewhere in the context is worth
nothing; a later statement of the same thing replaces an earlier one. Constraints and pins are kept before all else.

Every word in it is a word of the originals. It is data: text that looks like a role tag is defused, and text of tools
that gives orders is left out. It does not know when or why a context is compacted. Pure.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agent import anchors
from agent.messages import text_of, tool_calls
from agent.tokens import estimate

Entry = dict[str, Any]

USER, CHANGED, READ, COMMAND, ERROR, CALL, FACT = "user", "changed", "read", "command", "error", "call", "fact"

HEADINGS = {
    USER: "### The user said (verbatim)",
    CHANGED: "### Files changed",
    READ: "### Files read",
    COMMAND: "### Commands",
    ERROR: "### Errors",
    CALL: "### Calls",
    FACT: "### Facts",
}

WORTH = {USER: 1.5, CHANGED: 3.0, ERROR: 2.0, COMMAND: 1.0, READ: 0.7, FACT: 1.0}
"""How much an anchor is worth, by what kind of statement carries it."""

PINNED_SHARE = 0.6
"""At most this share of the budget goes to pins and constraints."""
FIRST_SHARE = 0.2
"""At most this share goes to the first prompt."""


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


# ---- text that must not act ----

ROLE_TAGS = re.compile(
    r"<(?=\|[^|\n]{1,40}\|>)|<(?=/?(?:system|assistant|user|human|developer|tool_call|tool_response|function_calls?|s)>)"
    r"|\[(?=/?INST\])|^(?=(?:system|assistant|human|user|developer)\s*:)",
    re.IGNORECASE | re.MULTILINE,
)
_ORDERS = re.compile(
    r"(?:ignore|disregard|forget|override)\b.{0,30}\b(?:previous|prior|above|earlier|all|your)\b.{0,20}"
    r"(?:instruction|prompt|rule|message|context)|system prompt|you (?:are|must) now|new instructions?:"
    r"|<\|[^|\n]{1,40}\|>|</?(?:system|assistant|user|human)>|\[/?INST\]"
    r"|(?:忽略|无视|忘记|忘掉).{0,8}(?:之前|以上|上面|先前|所有|前面).{0,8}(?:指令|指示|提示|规则|要求|内容)|系统提示词",
    re.IGNORECASE,
)


def defused(text: str) -> str:
    """The text with role tags and chat-template marks made harmless; everything else verbatim."""
    return ROLE_TAGS.sub(lambda match: {"<": "‹", "[": "〔"}.get(match.group(), "· "), text)


# ---- cutting messages into statements ----

_CONSTRAINT = re.compile(
    r"(?<!\bi )(?<!'ve )(?<!\bhe )(?<!\bshe )(?<!\bit )(?<!\bthey )(?<!\bhave )(?<!\bhad )"
    r"\b(?:never|always|do not|don'?t|avoid|remember)\b"
    r"|\b(?:must(?: not|n't)?|only use|make sure|from now on|forbidden|keep in mind|under no circumstances|without asking)\b"
    r"|(?<![要需用])不要|(?<![怪舍恨了])不得(?![不了])|不准|不许|别[再动改碰删用]|禁止|必须|务必|切勿|记住|记下|记一下|牢记|一律|以后都",
    re.IGNORECASE,
)
_SENTENCES = re.compile(r"\n+|(?<=[。！？；!?;])\s*|(?<=\.)\s+(?=[A-Z\"'(])")
_LINES = re.compile(r"[\n\r\t]+|(?<=[\"\w\]}]),\s*(?=[\"{\[])|(?<=[。！？；])\s*|(?<=[.!?;])\s+(?=[A-Z])")
_COMMAS = re.compile(r"[，,]\s*")
_ERROR_LINE = re.compile(
    r"\b(?:error|exception|traceback|fatal|failed|panic|denied|cannot)\b|错误|失败|异常", re.IGNORECASE
)
_QUESTION = re.compile(r"[?？]\s*$|[吗呢]\s*[。？?]?$")
_WORDS = re.compile(rf"[A-Za-z][a-z]{{3,}}|[{anchors.CJK}]{{2,}}")
_VARIES = re.compile(r"[A-Za-z0-9_]*\d[A-Za-z0-9_.:/-]*")

FADING = 0.5
"""Each further fact of one statement counts for this much less: a line of code is full of names and says little."""
OVERHEAD = 8
"""Tokens a statement is charged beyond its own: a scrap that is cheap is not for that reason worth having."""
LONG = 160
"""Characters: a longer statement is cut to the parts around its anchors."""


def _fields(text: str) -> Iterator[str]:
    """The lines of a result; of one that is JSON its values, each with its key: `phone: 010-8500`."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            yield from _leaves(json.loads(text), "")
            return
        except (ValueError, RecursionError):
            pass
    yield from (line.strip(" ,-*\t") for line in _LINES.split(text))


def _leaves(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, str(name))
    elif isinstance(value, list) and not all(isinstance(inner, str | int | float) for inner in value):
        for inner in value:
            yield from _leaves(inner, key)
    elif isinstance(value, str) and "\n" in value:
        yield from (line.strip() for line in _LINES.split(value))
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
    """Start and end of a sentence without the clauses at either end that hold no anchor ("Oh well, it was 1987, wow")."""
    if not found:
        return 0, len(sentence)
    first, last = found[0].start, max(a.start + len(a.text) for a in found)
    start = max((m.end() for m in _COMMAS.finditer(sentence, 0, first)), default=0)
    after = _COMMAS.search(sentence, last)
    return start, after.start() if after else len(sentence)


# ---- gathering ----


@dataclass
class Gathered:
    """All statements of a session, before any budget. `last` is the largest n seen."""

    statements: list[Statement] = field(default_factory=list)
    last: int = 0


def _worth(found: Iterable[anchors.Anchor], factor: float) -> dict[str, float]:
    worth: dict[str, float] = {}
    for anchor in found:
        key = anchors.fold(anchor.text)
        if key:
            worth[key] = max(worth.get(key, 0.0), anchor.weight * factor)
    return worth


def _spoken(n: int, text: str, kind: str) -> Iterator[Statement]:
    """Statements of what a person or the model said: sentences, or parts of long ones."""
    for sentence in _SENTENCES.split(text):
        sentence = sentence.strip()
        if not sentence:
            continue
        found = anchors.find(sentence)
        constraint = kind == USER and bool(_CONSTRAINT.search(sentence))
        if constraint or len(sentence) <= LONG:
            start, end = (0, len(sentence)) if constraint else _telling(sentence, found)
            sentence = sentence[start:end]
            value = next((a.start - start for a in reversed(found) if a.kind == "value"), 0)
            yield Statement(n, kind, sentence, _worth(found, WORTH[kind]), constraint, value)
        else:
            for piece, inside in _around(sentence, found):
                yield Statement(n, kind, piece, _worth(inside, WORTH[kind]))


def _shown(n: int, text: str) -> Iterator[Statement]:
    """Statements of what a tool gave back: fields and lines, those that give orders left out."""
    for line in _fields(text):
        if len(line) < 3 or _ORDERS.search(line):
            continue
        found = anchors.find(line)
        if not found:
            continue
        kind = ERROR if _ERROR_LINE.search(line) else FACT
        if len(line) <= LONG:
            yield Statement(n, kind, line, _worth(found, WORTH[kind]))
        else:
            for piece, inside in _around(line, found):
                yield Statement(n, kind, piece, _worth(inside, WORTH[kind]))


_PATH_KEYS = ("path", "file_path", "filename", "file", "target_file", "absolute_path", "notebook_path")
_COMMAND_KEYS = ("command", "cmd", "script")
_CHANGES = re.compile(r"write|edit|create|replace|insert|patch|update|delete|move|rename|append|save", re.IGNORECASE)
_EXIT = re.compile(r"exit(?:ed)?(?: with)?[ _]?(?:code|status)?[:= ]*(-?\d+)", re.IGNORECASE)


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _acts(entry: Entry, results: dict[str, Entry]) -> Iterator[Statement]:
    """Files and commands, from the calls of an assistant message and what is known of their results."""
    n = entry.get("n", 0)
    for call in tool_calls(entry["message"]):
        given = _arguments(call.arguments)
        result = results.get(call.id, {})
        about = result.get("tool", {})
        files = about.get("files")
        if isinstance(files, dict):
            yield from (Statement(n, CHANGED, path, {path: 6.0}) for path in files.get("changed", ()))
            yield from (Statement(n, READ, path, {path: 1.5}) for path in files.get("read", ()))
        path = next((given[k] for k in _PATH_KEYS if isinstance(given.get(k), str)), "")
        if path and not isinstance(files, dict):
            changed = bool(_CHANGES.search(call.name)) or given.get("command") in ("create", "str_replace", "insert")
            yield Statement(n, CHANGED if changed else READ, path, {path: 6.0 if changed else 1.5})
        command = next((given[k] for k in _COMMAND_KEYS if isinstance(given.get(k), str)), "")
        if command and not any(k in given for k in _PATH_KEYS):
            yield _command(n, command, about, text_of(result.get("message", {})))
        elif given and not files and not path:
            told = ", ".join(f"{key}: {value}" for key, value in given.items() if isinstance(value, str | int | float))
            if told and len(told) <= LONG:
                yield Statement(n, CALL, f"{call.name} {told}", _worth(anchors.find(told), WORTH[FACT]))


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


def gather(entries: Iterable[Entry], pins: Iterable[str] = ()) -> Gathered:
    """Every statement of the given message entries (originals, in order of n; summaries are passed over)."""
    kept = [e for e in entries if not e.get("summary") and isinstance(e.get("message"), dict)]
    results = {e["message"].get("tool_call_id"): e for e in kept if e["message"].get("role") == "tool"}
    out = Gathered([Statement(0, USER, pin, {pin: 9.0}, True) for pin in pins])
    for entry in kept:
        n, role, text = entry.get("n", 0), entry["message"].get("role"), text_of(entry["message"])
        out.last = max(out.last, n)
        if role == "user":
            out.statements += _spoken(n, text, USER)
        elif role == "assistant":
            out.statements += _spoken(n, text, FACT)
            out.statements += _acts(entry, results)
        elif role == "tool":
            out.statements += _shown(n, text)
    return out


# ---- choosing ----

_CODE = re.compile(r"[{}()\[\];=<>|&\\$#^~]")
CODE_SHARE = 0.08
"""Of the characters of a line: beyond it the line is code or a dump, which can be read again where it came from."""


def _seen(statements: Iterable[Statement]) -> dict[str, float]:
    """For each thing that is stated, how much its spread makes it worth: what comes back matters, most of all what one
    side said and another took up; what is everywhere says little."""
    voices: dict[str, set[tuple[str, int]]] = {}
    for statement in statements:
        for key in statement.worth:
            voices.setdefault(key, set()).add((statement.kind, statement.n))
    spread = {}
    for key, found in voices.items():
        messages = len({n for _, n in found})
        kinds = len({kind for kind, _ in found})
        spread[key] = (1.0 + 0.5 * (kinds - 1)) * (1.3 if 1 < messages <= 12 else 1.0) / (1.0 + messages // 40)
    return spread


def _shape(statement: Statement) -> str:
    """What a statement looks like whatever it says: of what was said the part before its value ("the port is #"), of
    what tools gave back everything that holds no digit."""
    if statement.kind == USER and statement.value:
        return statement.text[: statement.value] + "#"
    return _VARIES.sub("#", statement.text)


def _priced(gathered: Gathered) -> list[tuple[Statement, dict[str, float]]]:
    """The statements with their worth corrected for repetition, spread, recency, and later corrections."""
    shaped = [_shape(statement) for statement in gathered.statements]
    shapes = Counter(shaped)
    latest = {shape: index for index, shape in enumerate(shaped)}
    spread = _seen(gathered.statements)
    priced = []
    for index, (statement, shape) in enumerate(zip(gathered.statements, shaped, strict=True)):
        factor = 0.5 + 0.5 * statement.n / max(1, gathered.last)
        if statement.kind in (FACT, ERROR):
            if shapes[shape] > 2:
                factor /= shapes[shape] ** 0.5
            if len(_CODE.findall(statement.text)) > CODE_SHARE * len(statement.text):
                factor *= 0.3
        if latest[shape] != index and "#" in shape:
            factor *= 0.5
        if _QUESTION.search(statement.text):
            factor *= 0.4
        priced.append((statement, {key: value * factor * spread[key] for key, value in statement.worth.items()}))
    return priced


def matter(gathered: Gathered, most: int = 12) -> list[str]:
    """The facts that matter most, folded for comparison: what a summary is checked against."""
    best: Counter[str] = Counter()
    for statement, worth in _priced(gathered):
        if statement.kind in (USER, CHANGED, ERROR):
            for key, value in worth.items():
                best[key] = max(best[key], value)  # type: ignore[assignment]
    return [key for key, _ in best.most_common(most)]


def compose(gathered: Gathered, budget: int, present: str = "") -> str:
    """The record: the statements worth most within `budget` tokens, grouped, in order of n. "" when there is no room.

    What occurs in `present` (text that stands in the context anyway) is worth nothing, except for constraints.
    """
    there = anchors.fold(present)
    chosen: dict[int, Statement] = {}
    left = budget
    told: set[str] = set()
    priced = _priced(gathered)

    def take(index: int) -> None:
        nonlocal left
        statement = priced[index][0]
        chosen[index] = statement
        told.update(priced[index][1])
        left -= statement.cost

    left -= 8
    bound = int(budget * PINNED_SHARE)
    for index in range(len(priced) - 1, -1, -1):
        statement = priced[index][0]
        same = anchors.fold(statement.text)
        if statement.kept_first and statement.cost <= bound and same not in there and same not in told:
            bound -= statement.cost
            told.add(same)
            take(index)
    first = next((i for i, (s, _) in enumerate(priced) if s.kind == USER and s.n), None)
    if first is not None and first not in chosen and priced[first][0].cost <= left * FIRST_SHARE:
        take(first)

    def gain(index: int) -> float:
        statement, worth = priced[index]
        fresh = sorted((value for key, value in worth.items() if key not in told and key not in there), reverse=True)
        new = sum(value * FADING**place for place, value in enumerate(fresh))
        return new / (statement.cost + OVERHEAD)

    heap = [(-gain(i), i) for i in range(len(priced)) if i not in chosen]
    heapq.heapify(heap)
    while heap and left > 6:
        old, index = heapq.heappop(heap)
        if old >= 0:
            break
        if priced[index][0].cost > left:
            continue
        now = gain(index)
        if now > 0 and heap and -now > heap[0][0] + 1e-9:
            heapq.heappush(heap, (-now, index))
        elif now > 0:
            take(index)
    return _rendered([chosen[i] for i in sorted(chosen)])


NEARBY = 8
"""Statements of messages no farther apart share a line: a number for each would cost as much as a word."""


def _rendered(chosen: list[Statement]) -> str:
    sections = []
    for kind, heading in HEADINGS.items():
        of_kind = [s for s in chosen if s.kind == kind]
        if of_kind and kind in (CHANGED, READ):
            sections.append(f"{heading}\n{', '.join(dict.fromkeys(s.text for s in of_kind))}")
        elif of_kind:
            sections.append("\n".join([heading, *_lines(of_kind)]))
    return defused("\n".join(sections))


def _lines(statements: Sequence[Statement]) -> Iterator[str]:
    """Statements in order of n, those of neighbouring messages on one line."""
    first = last = -NEARBY - 1
    texts: list[str] = []
    for statement in [*statements, None]:
        if texts and (statement is None or statement.n - first > NEARBY):
            mark = "" if not first else f"[{first}] " if first == last else f"[{first}-{last}] "
            yield mark + "; ".join(dict.fromkeys(texts))
            texts = []
        if statement is not None:
            first = statement.n if not texts else first
            last = statement.n
            texts.append(" ".join(statement.text.split()).rstrip("；;。"))
