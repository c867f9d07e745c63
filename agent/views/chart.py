"""A session's context, drawn: in characters for a terminal, as SVG for a page.

One bar a step (several steps, when there are more than columns: the largest of them), cached tokens below, the rest of
the prompt above; a line at the trigger and one at the window where they are near enough to be in the picture; a mark
before the first step after a compaction. In characters the two parts differ by glyph, so colour only helps.

Widths are columns of a terminal: what is wide (CJK, emoji) counts two.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from agent.views.stats import Fold, Step

HEIGHT = 12
"""Rows of bars."""
NEAR = 5
"""A line is drawn when the largest bar reaches this part (1/5) of it."""
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_CACHED, _WINDOW, _TRIGGER = "░", "─", "╌"
_COLOURS = {_WINDOW: "31", _TRIGGER: "33", _CACHED: "2", "▼": "33", "▲": "36"}


class Lines(NamedTuple):
    """The levels to draw, in tokens; None: not known, or switched off."""

    window: int | None = None
    trigger: int | None = None
    source: str = ""


def columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    unseen = sum(unicodedata.combining(char) != 0 or unicodedata.category(char) in ("Cf", "Mn") for char in text)
    return len(text) + wide - unseen


def fit(text: str, width: int) -> str:
    """The text cut to `width` columns, with an ellipsis where something went."""
    if columns(text) <= width:
        return text
    kept = ""
    for char in text:
        if columns(kept + char) > width - 1:
            break
        kept += char
    return f"{kept}…" if width > 0 else ""


# ---- what is drawn ----


def bars(steps: Sequence[Step], most: int) -> list[tuple[int, int]]:
    """(prompt, cached) for each bar, at most `most` of them: each the largest of its steps."""
    count = min(len(steps), max(1, most))
    groups = [steps[len(steps) * i // count : len(steps) * (i + 1) // count] for i in range(count)]
    tallest = [max(group, key=lambda step: step.prompt) for group in groups]
    return [(step.prompt, min(step.cached or 0, step.prompt)) for step in tallest]


def scale(steps: Sequence[Step], lines: Lines) -> tuple[int, list[tuple[str, int]]]:
    """The top of the picture, in tokens, and the lines that are in it as (name, level)."""
    largest = max((step.prompt for step in steps), default=0) or 1
    named = (("trigger", lines.trigger), ("window", lines.window))
    shown = [(name, level) for name, level in named if level and largest * NEAR >= level]
    return max([largest, *(level for _, level in shown)]), shown


def mark(fold: Fold) -> str:
    """What points at a compaction: up where one was taken back."""
    return "▲" if fold.kind == "undone" else "▼"


# ---- in characters ----


def draw(steps: Sequence[Step], folds: Sequence[Fold], lines: Lines, width: int, *, colour: bool = False) -> list[str]:
    """The picture, at most `width` columns wide (40 at least), line by line, without line ends."""
    top, shown = scale(steps, lines)
    labels = _labels(top, shown)
    gutter = max(map(columns, labels.values())) + 2
    room = max(40, width) - gutter
    each = max(1, min(4, room // max(1, len(steps))))
    found = bars(steps, room // each)
    span = len(found) * each
    rows = []
    for row in range(HEIGHT - 1, -1, -1):
        ground = next((_WINDOW if name == "window" else _TRIGGER for name, at in shown if _row(at, top) == row), " ")
        cells = "".join(_column(prompt, cached, row, top, ground, each) for prompt, cached in found)
        label = labels.get(row, "")
        rows.append(f"{' ' * (gutter - 2 - columns(label))}{label} ┤{cells}{ground * min(2, room - span)}")
    rows.append(f"{' ' * (gutter - 1)}└{'─' * span}")
    marks = _marks(folds, len(steps), len(found), each)
    if marks.strip():
        rows.append(" " * gutter + marks)
    last = str(len(steps))
    rows.append(" " * gutter + "1" + (last.rjust(span - 1) if span > len(last) else ""))
    return [_painted(row.rstrip()) for row in rows] if colour else [row.rstrip() for row in rows]


def _row(tokens: int, top: int) -> int:
    """The row in which a level lies, 0 the lowest."""
    return min(HEIGHT - 1, tokens * HEIGHT // top)


def _labels(top: int, shown: Sequence[tuple[str, int]]) -> dict[int, str]:
    """What stands at the left of each row; of two that fall together, the line's name wins."""
    labels = {0: "0", HEIGHT - 1: f"{top:,}"}
    return labels | {_row(level, top): f"{name} {level:,}" for name, level in shown}


def _column(prompt: int, cached: int, row: int, top: int, ground: str, each: int) -> str:
    """One bar's cell in a row; a blank column parts it from the next where there is room."""
    eighths = max(0, min(8, round(8 * (prompt * HEIGHT / top - row))))
    if row == 0 and prompt:
        eighths = max(1, eighths)
    glyph = _CACHED if eighths == 8 and cached * HEIGHT >= (row + 0.5) * top else _EIGHTHS[eighths]
    glyph = ground if eighths == 0 else glyph
    return glyph * (each - 1) + ground if each > 1 else glyph


def _marks(folds: Sequence[Fold], steps: int, count: int, each: int) -> str:
    """Under the first bar after each compaction; one behind the last bar where nothing followed."""
    marks = [" "] * (count * each + 1)
    for fold in folds:
        marks[min(count, fold.after * count // max(1, steps)) * each] = mark(fold)
    return "".join(marks)


def _painted(row: str) -> str:
    for glyph, code in _COLOURS.items():
        if glyph in row and "└" not in row:
            run = "".join(f"\x1b[{code}m{part}\x1b[0m" if part[0] == glyph else part for part in _runs(row, glyph))
            row = run
    return row


def _runs(row: str, glyph: str) -> list[str]:
    """The row cut into runs of `glyph` and of everything else."""
    runs: list[str] = []
    for char in row:
        if runs and (runs[-1][0] == glyph) == (char == glyph):
            runs[-1] += char
        else:
            runs.append(char)
    return runs


# ---- as SVG ----

_WIDE, _TALL, _LEFT, _FOOT = 860, 220, 96, 26


def svg(steps: Sequence[Step], folds: Sequence[Fold], lines: Lines) -> str:
    """The picture as one SVG element; colours are the page's (`--bar`, `--cached`, `--trigger`, `--window`)."""
    top, shown = scale(steps, lines)
    room = _WIDE - _LEFT - 8
    found = bars(steps, room // 2)
    each = min(40.0, room / max(1, len(found)))
    inside = min(each * 0.8, 28)
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDE} {_TALL + _FOOT}" role="img" '
        f'aria-label="size of the context, {len(steps)} steps, up to {top:,} tokens">'
    ]
    for at, (prompt, cached) in enumerate(found):
        x, tall, low = _LEFT + at * each, _height(prompt, top), _height(cached, top)
        about = f"{prompt:,} tokens" + (f", {cached:,} cached" if cached else "")
        parts.append(f"<g><title>{html.escape(about)}</title>{_rect('bar', x, tall - low, inside, low)}")
        parts.append(f"{_rect('cached', x, low, inside, 0)}</g>")
    for name, level in shown:
        y = _TALL - _height(level, top)
        parts.append(f'<line class="{name}" x1="{_LEFT - 4}" x2="{_WIDE}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for y, label in _spread([(_height(v, top), t) for v, t in _ticks(top, shown)]):
        parts.append(f'<text x="{_LEFT - 8}" y="{_TALL - y + 4:.1f}" text-anchor="end">{html.escape(label)}</text>')
    for fold in folds:
        x = _LEFT + fold.after * len(found) / max(1, len(steps)) * each - (each - inside) / 2
        name = "undone" if fold.kind == "undone" else "fold"
        parts.append(f'<a href="#e{fold.n}"><title>{fold.kind}: entry {fold.n}</title><path class="{name}" ')
        parts.append(f'd="M{x:.1f} 0V{_TALL}"/><text class="{name}" x="{x:.1f}" y="{_TALL + 18}">')
        parts.append(f"{mark(fold)}</text></a>")
    return "".join(parts) + "</svg>"


def _height(tokens: int, top: int) -> float:
    return (_TALL - 12) * tokens / top


def _rect(name: str, x: float, tall: float, wide: float, above: float) -> str:
    return f'<rect class="{name}" x="{x:.1f}" y="{_TALL - above - tall:.1f}" width="{wide:.1f}" height="{tall:.1f}"/>'


def _ticks(top: int, shown: Sequence[tuple[str, int]]) -> list[tuple[int, str]]:
    named = {level: f"{name} {level:,}" for name, level in shown}
    return sorted((named | {0: "0"} | ({} if top in named else {top: f"{top:,}"})).items())


def _spread(labels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Labels from the lowest up, none nearer than a line to the one below it."""
    placed: list[tuple[float, str]] = []
    for y, label in labels:
        placed.append((max(y, placed[-1][0] + 14) if placed else y, label))
    return placed
