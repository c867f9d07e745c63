"""Bytes from files and programs, made fit for a model and safe for a terminal.

The policy for stored results: UTF-8 with U+FFFD for bytes that are not text; CRLF and a lone CR become LF; colour and
cursor sequences are dropped, as they say nothing to a model; every other control character, and the marks that turn
the direction of text, are written as escapes (`\\x1b`, `\\u202e`). LF and TAB stay. So no result holds anything a
terminal would act on.

A long text keeps its head and its tail. Sizes are tokens by `agent.tokens.estimate`, which errs high.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|\x1b[()][0-9A-B]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_HEAD_SHARE = 0.4


def visible(text: str) -> str:
    """`text` with every character that a terminal would act on written as an escape; LF and TAB stay."""
    return _CONTROL.sub(lambda found: _escape(found[0]), text)


def one_line(text: str, longest: int = 120) -> str:
    """`text` as one visible line of at most `longest` characters, for people."""
    line = visible(text.strip().replace("\n", " ⏎ ").replace("\t", " "))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def readable(raw: bytes) -> str:
    """Output of a program as the model gets it (policy above)."""
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return visible(_SEQUENCE.sub("", text))


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def head_and_tail(text: str, cap: int, left_out: Callable[[int, int], str]) -> tuple[str, bool]:
    """`text` within `cap` tokens, and whether it was cut.

    The middle is replaced by a line that `left_out(characters, lines)` writes. The cuts are at line ends where one is
    near.
    """
    from agent.tokens import estimate

    if estimate(text) <= cap:
        return text, False
    room = max(1, cap - estimate(left_out(len(text), text.count("\n"))) - 2)
    head = text[: _fitting(text, int(room * _HEAD_SHARE), estimate)]
    head = head[: _line_end(head)]
    backwards = _fitting(text[: len(head) - 1 : -1], room - estimate(head), estimate)
    tail = text[len(text) - backwards :] if backwards else ""
    tail = tail[_line_start(tail) :]
    middle = text[len(head) : len(text) - len(tail)]
    return f"{head.rstrip(chr(10))}\n{left_out(len(middle), middle.count(chr(10)))}\n{tail}", True


def _fitting(text: str, cap: int, estimate: Callable[[str], int]) -> int:
    """How many characters of the start of `text` fit in `cap` tokens."""
    low, high = 0, min(len(text), cap * 25)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimate(text[:middle]) <= cap else (low, middle - 1)
    return low


def _line_end(head: str) -> int:
    end = head.rfind("\n") + 1
    return end if end > len(head) * 0.7 else len(head)


def _line_start(tail: str) -> int:
    start = tail.find("\n") + 1
    return start if 0 < start < len(tail) * 0.3 else 0
