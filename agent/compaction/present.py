"""Present: whether something stands in a context anyway, told quickly and of thousands of things.

Texts are compared folded (`agent.anchors.fold`), digits with digits in a row. Pure.
"""

from __future__ import annotations

import re
from functools import cached_property

from agent import anchors
from agent.log.entries import pin_line

_DIGITS = re.compile(r"\d+")
_PIECE, _STEP, _FAR, _LONG = 6, 3, 48, 8_000
"""Characters. _PIECE: length of an indexed piece of the context; _STEP: distance between two; _FAR: how much of a text is
looked up in them; _LONG: contexts up to this are searched without an index."""


def _line(text: str) -> str:
    spaced = anchors.spaced(text)
    return spaced.rstrip(";；.。!！ ") or spaced


class Present:
    """A text, folded, and what was asked of it."""

    def __init__(self, text: str) -> None:
        self._as_written = text
        self._text = text = anchors.fold(text)
        starts = range(0, len(text) - _PIECE + 1, _STEP) if len(text) > _LONG else ()
        self._pieces = {text[at : at + _PIECE] for at in starts}
        self._numbers = " ".join(set(_DIGITS.findall(text)))
        self._known: dict[str, bool] = {}

    def holds(self, text: str) -> bool:
        """Whether a folded text stands in it. It may be long: its pieces answer most questions without a search."""
        found = self._known.get(text)
        if found is None:
            where = self._numbers if text.isdecimal() else self._text
            found = self._known[text] = (not self._pieces or self._may_hold(text)) and text in where
        return found

    def quotes(self, text: str) -> bool:
        """Whether a text stands in it word for word, case and white space aside: C is not C++."""
        wanted = _line(text)
        at = self._spaced.find(wanted) if wanted else -1
        while at >= 0:
            after = self._spaced[at + len(wanted) : at + len(wanted) + 1]
            if not after.isalnum() and after not in ("+", "#", "_", "-", ":"):
                return True
            at = self._spaced.find(wanted, at + 1)
        return False

    def tells(self, text: str) -> bool:
        """Whether a text is a line of it, as it is or as a pin is told: no quotation inside of another sentence."""
        wanted = _line(text)
        return bool(wanted) and not self._lines.isdisjoint((wanted, _line(pin_line(text))))

    @cached_property
    def _lines(self) -> set[str]:
        return set(map(_line, self._as_written.splitlines()))

    @cached_property
    def _spaced(self) -> str:
        return anchors.spaced(self._as_written)

    def _may_hold(self, text: str) -> bool:
        """Of any `_STEP` pieces in a row that stand in the context, one was kept."""
        pieces, last = self._pieces, len(text) - _PIECE + 1
        for start in range(0, min(last, _FAR) - _STEP + 1, _STEP):
            for at in range(start, start + _STEP):
                if text[at : at + _PIECE] in pieces:
                    break
            else:
                return False
        return True
