"""Cutting: a text into the smallest pieces that still say something.

Sentences of what somebody wrote, lines and fields of what a tool gave back, windows around the facts of what is long. It
does not know who says it, nor what it is worth. Pure; linear in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from agent import anchors

SENTENCES = re.compile(rf"[\n。！？；!?;.](?:(?<=\n)\n*|(?<=[。！？；!?;])\s*|(?<=\.)\s+(?=[A-Z\"'({anchors.CJK}]))")
LINES = re.compile(
    r"[\n\r\t,。！？；.!?;](?:(?<=[\n\r\t])[\n\r\t]*|(?<=[\"\w\]}],)\s*(?=[\"{\[])|(?<=[。！？；])\s*|(?<=[.!?;])\s+(?=[A-Z]))"
)
"""Where a text is cut. Both begin with a plain set of characters: only so does the search run over all others."""
_COMMAS = re.compile(r"[，,]\s*")
GIANT = 120_000
"""Characters: a longer text is not read whole."""
LONG = 160
"""Characters: a longer statement is cut to the parts around its anchors."""


def cut(text: str, ends: re.Pattern[str]) -> Iterator[str]:
    """The pieces of a text between `ends`; marks stay with the piece before them, white space and commas go."""
    at = 0
    for match in ends.finditer(text):
        end = match.start()
        yield text[at : end if text[end] in "\n\r\t," else end + 1]
        at = match.end()
    yield text[at:]


def fields(text: str) -> Iterator[str]:
    """The lines of a result; of one that is JSON its values, each with its key: `phone: 010-8500`."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            yield from _leaves(json.loads(text), "")
            return
        except (ValueError, RecursionError):
            pass
    yield from (line.strip(" ,-*\t") for line in cut(text, LINES))


def _leaves(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, str(name))
    elif isinstance(value, list) and not all(isinstance(inner, str | int | float) for inner in value):
        for inner in value:
            yield from _leaves(inner, key)
    elif isinstance(value, str) and "\n" in value:
        yield from (line.strip() for line in cut(value, LINES))
    elif value not in (None, "", [], True, False):
        told = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        yield f"{key}: {told}" if key else told


def around(text: str, found: Sequence[anchors.Anchor]) -> Iterator[tuple[str, list[anchors.Anchor]]]:
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


_TURNS = re.compile(
    r"^(?:if|when|unless|once|as soon as|without|for|in|on|no|unlike|except|wenn|falls|sobald|ohne|unter|für|si|quand|sans|pour"
    r"|cuando|sin|para|если|когда)\b|如果|要是|假如|不是|而是|错"
    r"|\b(?:wrong|not|instead|rather than|except|unless|nicht|pas|sondern)\b|n['’]t\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,，、:：](?=\s|[^\x00-\x7f])|\s(?=(?:and|but|so|because|which|und|aber|weil|et|mais|y|pero)\s)")


def clauses(sentence: str) -> Iterator[str]:
    """A sentence as pieces of at most LONG characters, cut where clauses begin, else at white space, else anywhere."""
    at = 0
    while len(sentence) - at > LONG:
        ends = [match.end() for match in _CLAUSE.finditer(sentence, at + 1, at + LONG)]
        end = ends[-1] if ends else sentence.rfind(" ", at + 1, at + LONG)
        end = end if end > at else at + LONG
        yield sentence[at:end].strip(" ,，、")
        at = end
    yield sentence[at:].strip()


LAYOUT = re.compile(
    r"^[ \t]*```[^\n]*\n(?:(?![ \t]*```).*\n)*[ \t]*```[ \t]*$"
    r"|(?:^\|[^\n]*\|[ \t]*(?:\n|\Z)){2,}"
    r"|(?:^[ \t]*(?:[-*+]|\d{1,3}[.)]) [^\n]+(?:\n[ \t]+[^\s\d*+-][^\n]*)*(?:\n|\Z)){2,}",
    re.MULTILINE,
)


_LAID = re.compile(r"\n[ \t]*(?:```|[-*+|]|\d)")
"""How a line begins that may be part of one: said first, since it is quick to tell."""


def layouts(text: str) -> Iterator[tuple[str, bool]]:
    """(piece, whether it is laid out): fenced blocks, tables and lists, whose lines say little apart, and what is between."""
    at, text = 0, text.replace("\r\n", "\n")
    for match in LAYOUT.finditer(text) if _LAID.search(text) else ():
        yield text[at : match.start()], False
        yield match.group().strip(), True
        at = match.end()
    yield text[at:], False


def telling(sentence: str, found: Sequence[anchors.Anchor]) -> tuple[int, int]:
    """Start and end of a sentence without the clauses at either end that hold no anchor ("Oh, it was 1987, wow"). One that
    hangs on a condition or takes something back stays whole."""
    if not found or _TURNS.search(sentence):
        return 0, len(sentence)
    first, last = found[0].start, max(a.start + len(a.text) for a in found)
    start = max((m.end() for m in _COMMAS.finditer(sentence, 0, first)), default=0)
    after = _COMMAS.search(sentence, last)
    return start, after.start() if after else len(sentence)


_CODE = re.compile(r"[{}()\[\];=<>|&\\$#^~]")
_SOURCE = re.compile(
    r"\s*(?:export|public|private|static|async|const|let|var|function|import|return|throw|await|this\.\w+)\b.*[;{]\s*$"
)
CODE_SHARE = 0.08
STRONG = re.compile(r"://|[Ee]rror|[Ee]xception|\w\{\S|\b[0-9a-f]{10,}\b")


def is_code(line: str) -> bool:
    """Whether a line is code or a dump, by its marks: it can be read again where it came from. A row of a table is none."""
    if line[-1:] in ";{" and _SOURCE.match(line):
        return True
    marks = len(_CODE.findall(line))
    bars = line.count("|") if marks else 0
    return marks - (bars if bars > 1 else 0) > max(2, CODE_SHARE * len(line))


def sampled(text: str) -> str:
    """A giant text as its head, its tail, and between them the lines that hold something unmistakable."""
    if len(text) <= GIANT:
        return text
    end = GIANT // 3
    return "\n".join([text[:end], striking(text[end:-end], GIANT // LONG), text[-end:]])


def striking(text: str, most: int) -> str:
    """The lines of a text that hold something unmistakable, `most` of them; none that is a whole page."""
    lines: list[str] = []
    end = -1
    for match in STRONG.finditer(text):
        if match.start() < end:
            continue
        start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
        end = len(text) if end < 0 else end
        if end - start <= 4 * LONG:
            lines.append(text[start:end])
        if len(lines) == most:
            break
    return "\n".join(lines)


# ---- questions ----

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


def told_and_asked(sentence: str) -> list[str]:
    """What is told and the question after it ("8080, and the other one?") apart; most sentences are one piece."""
    at = max(sentence.rfind(", "), sentence.rfind("，")) if asks(sentence) else 0
    if at < 1:
        return [sentence]
    told, asked = sentence[:at].rstrip(), sentence[at + 1 :].strip()
    inside = any(asked.count(opened) != asked.count(closed) for opened, closed in _PAIRS) or asked.count('"') % 2
    whole = inside or (told[-1].isdigit() and asked[:1].isdigit()) or _OPEN.search(told)
    return [sentence] if whole else [told, asked]
