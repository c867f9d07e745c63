"""Anchors: the hard facts in a text that a summary may not lose and code can find.

Paths, URLs, error names and codes, versions, hashes, dates, numbers with their units, quoted names, identifiers and
proper names, in English and Chinese alike. `find` gives them in order of appearance with a weight: how much a reader
would miss one that is gone. A statement ("port is 8080", "首都是北京", `"phone": "010-8500"`) gives a *value* even
where that is a plain word. Pure and total; it knows nothing of messages.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple


class Anchor(NamedTuple):
    """`text` as it stands in the source; `start` is its offset there, in characters."""

    kind: str
    text: str
    start: int

    @property
    def weight(self) -> float:
        return WEIGHTS[self.kind]


WEIGHTS = {
    "url": 3.0,
    "path": 3.0,
    "error": 3.0,
    "hash": 3.0,
    "quantity": 2.5,
    "date": 2.5,
    "version": 2.5,
    "code": 3.0,
    "quoted": 2.0,
    "identifier": 2.0,
    "name": 1.5,
    "value": 2.0,
}

CJK = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"

_UNITS = (
    r"ms|s|sec(?:ond)?s?|min(?:ute)?s?|h|hours?|days?|weeks?|months?|years?|[kKMGT]i?B|bytes?|[kcm]?m|k?g|[kMG]?Hz|px"
    r"|EUR|USD|GBP|CNY|JPY|dollars?|euros?|percent|tokens?|lines?|times|people|users?|rows?"
)
_KINDS = (
    ("url", r"\b(?:https?|ftp|ssh|git)://[^\s<>\"'`（）【】，。；)\]}]+|\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"),
    ("code", r"\b\w{2,12}\{[^{}\n]{3,80}\}"),  # flag{...}: a word that wraps a secret
    (
        "hash",
        r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
        r"|\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,64}\b",
    ),
    (
        "path",
        r"(?<![\w/])(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]+)+/?|\b[A-Za-z]:\\[\w\\.-]+"
        r"|\b[\w.@-]{1,120}(?:/[\w.@+-]+)+|\b[\w-]{1,120}(?:\.[\w-]{1,120}){0,12}\.[a-z][a-z0-9]{0,5}\b(?!\()",
    ),
    ("error", r"\b[A-Z]\w*(?:Error|Exception|Warning|Fault)\b|\b(?:E[A-Z]{3,}|SIG[A-Z]{2,})\b"),
    (
        "date",
        r"\b\d{4}[-/.年]\d{1,2}[-/.月]\d{1,2}日?(?:[T ]\d{1,2}:\d{2}(?::\d{2})?)?|\b\d{1,2}[-/.]\d{1,2}[-/.]\d{4}\b"
        r"|\b\d{1,2}:\d{2}(?::\d{2})?\b"
        r"|\b\d{1,2}月\d{1,2}[日号]",
    ),
    ("version", r"\bv?\d+\.\d+(?:\.\d+)*(?:(?:a|b|rc|[-+])[\w.]+)?\b(?!%)"),
    ("code", r"\b[A-Z]{2,}[-_]?\d{2,}[\w-]*|\b(?=[A-Z0-9]*\d)(?=\d*[A-Z])[A-Z0-9]{5,12}\b|#\d{2,}"),
    (
        "identifier",
        r"\b[A-Za-z]\w*_\w+|\b[A-Za-z]?[a-z]+(?:[A-Z][a-z0-9]+)+"
        r"|\b[A-Za-z]{1,60}(?:-[A-Za-z0-9]{1,60}){0,12}-\d[\w-]*|(?<![\w-])--[a-z][a-z-]{2,}|\b[A-Za-z]+\d\w*",
    ),
    (
        "quantity",
        rf"[$¥€£]?\b\d[\d,]*(?:\.\d+)?(?:-\d[\d-]*)?(?:%|[A-Za-zµ]{{1,4}}\b|\s?[{CJK}]{{1,3}}|\s(?:{_UNITS})\b)?",
    ),
    (
        "quoted",
        r"`[^`\n]{2,80}`|《[^》\n]{1,40}》|「[^」\n]{1,40}」|『[^』\n]{1,40}』|【[^】\n]{1,40}】|“[^”\n]{1,60}”"
        r"|(?<!\w)\"[^\"\n]{2,60}\"(?!\w)",
    ),
    (
        "name",
        rf"\b[A-Z][a-z]+(?: (?:of |the |de |and )?[A-Z][a-z]+)+|[{CJK}]{{1,8}}(?:·[{CJK}]{{1,10}})+"
        r"|\b[A-Z]{3,}\b|(?<=[a-z,] )[A-Z][a-z]{2,}\b",
    ),
)
_ANY = "|".join(f"(?P<{kind}{i}>{pattern})" for i, (kind, pattern) in enumerate(_KINDS))
_PLAIN = r"[a-z]+(?:[\s,;!?)]|\.(?:\s|$)|$)"
_DOTTED = rf"(?![{CJK}](?![{CJK}]{{0,7}}·))"
_ANCHOR = re.compile(rf"(?<!\w)(?!{_PLAIN})(?=[^\s,;:!?()\[\]{{}}<>=，。、；：！？（）]){_DOTTED}(?:{_ANY})", re.ASCII)
"""No anchor starts inside a word, with a mark, with a plain word, or with a Chinese character unless it is a dotted name:
said once in front, it saves trying every kind."""
_GROUPS = {f"{kind}{i}": kind for i, (kind, _) in enumerate(_KINDS)}

_CHANGED = r"(?:set|chang\w+|renam\w+|switch\w+|mov\w+)\b[^.\n]{1,40}? to\b"
_BEING = r"(?:is|are|was|were)(?: (?:called|named|now))?\b|(?:should|must|will|to) be\b|(?:called|named|uses?)\b"
_AFTER = rf"(?<=[{CJK}\w》」”]"
_STATES = (
    *":=：",
    *(f"{re.escape(mark)}(?:{_BEING}|{_CHANGED})" for mark in " \t\n(\"'“‘."),
    *(f"{word[0]}{_AFTER}{word[0]}){word[1:]}" for word in "是 为 叫做? 改为 改成 换成 用的是 来自".split()),
    *(f"{verb}{_AFTER}{verb})于" for verb in "生位属来自业住源"),
)
"""What stands between a thing and its value. Each begins with a plain character: only so does the search run over what
holds none of them."""
_VALUE = re.compile(
    rf"(?:{'|'.join(_STATES)})(?:\*\*)?[ \t]*(?:\*\*)?[\"'“「《]?([^\s*,，。；;！!?？\"'”」》{{}}\[\]()（）]{{2,24}})",
    re.ASCII,
)
_HOLLOW = re.compile(
    r"什么|怎么|哪|多少|不是|[吗呢]$|^(?:一[个种件]|我|你|他|她|它|谁|这|那|很|最|非常|因为|自己)"
    r"|^(?:the|an?|not|it|that|this|in|on|to|null|None|true|false)$|^[/\\]|^\W*$"
)
"""What follows and is no value."""
_SAYS_NOTHING = re.compile(
    r"^(?:您|不错|特别[好多的]|比较[好多大小高低贵]|觉得|如何|如此|可以|有些|有点|否|让[我你他她人]|醒服务|太[好棒贵大小多少难高低远近美]"
    r"|更[好大多高加有偏喜适能]|会[不在有让去来给是感觉想]|能[不带让给在去来看够]|要[不去来看找到先把给载]|个[很非好不美聪]"
    r"|一.(?:很|非常|特别|十分|比较|值得|不错))"
    r"|^(?:at|of|for|from|with|as|by|if|and|or|but|so|my|your|our|his|her|its|their|very|really|about|more|most|also|just"
    r"|too|well|how|what|why|when|where|who|which|some|any|many|much|only|still|please|something|definitely|indeed|made)$"
)
"""The same after a verb ("is really", 是不错的): a judgement, or the beginning of a clause. After a colon it may be a name."""


PIECE = 2_000
"""Characters that are looked at together: some patterns take time with the square of a word without end."""


def find(text: str) -> list[Anchor]:
    """The anchors of a text, in order of appearance, without overlaps (values may overlap the rest)."""
    if len(text) <= PIECE:
        return _find(text)
    starts = range(0, len(text), PIECE)
    return [a._replace(start=a.start + at) for at in starts for a in _find(text[at : at + PIECE])]


def _find(text: str) -> list[Anchor]:
    found = []
    for match in _ANCHOR.finditer(text):
        kind = _GROUPS[match.lastgroup or ""]
        piece = match.group().rstrip(".,:;-")
        if len(piece) > 1 or piece.isdigit():
            found.append(Anchor(kind, piece, match.start()))
    for match in _VALUE.finditer(f" {text}"):  # so that a text may begin with a verb
        said = match[0][0] not in ":=："
        if not _HOLLOW.search(match[1]) and not (said and _SAYS_NOTHING.search(match[1])):
            found.append(Anchor("value", match[1], match.start(1) - 1))
    return found


# ---- comparing ----

_DROPPED = re.compile(r"[^\w]+")
_ASCII_DROPPED = {code: None for code in range(128) if not (chr(code).isalnum() or chr(code) == "_")}


def fold(text: str) -> str:
    """A text for comparison: NFKC, case, white space and punctuation folded away."""
    if text.isascii():
        return text.lower().translate(_ASCII_DROPPED)
    return _DROPPED.sub("", unicodedata.normalize("NFKC", text).casefold())


def spaced(text: str) -> str:
    """A text for comparison where every mark matters: only case and white space folded away."""
    return " ".join(text.casefold().split())


def missing(anchors: Iterable[str], text: str) -> list[str]:
    """Those of `anchors` that do not occur in `text`, after folding."""
    folded = fold(text)
    return [anchor for anchor in anchors if fold(anchor) not in folded]
