"""Finding the text that an edit names, and saying what is near when it is not there.

A line break in the old text matches LF and CRLF alike, nothing else is loose: an edit that had to be guessed is an
edit in the wrong place. The new text takes the line ends of what it replaces.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from agent.tools import textform
from agent.tools.output import visible

_MOST_SHOWN = 3
_MOST_LINES_COMPARED = 20_000
_MOST_COMPARED_WELL = 200
_ALIKE = 0.6
_LONGEST_LINE = 200


class NoEdit(Exception):
    """The edit cannot be made; the text shows what is there instead."""


class Edit(NamedTuple):
    """Replace `old`, which must occur exactly once, by `new`."""

    old: str
    new: str


def apply(text: str, edits: list[Edit]) -> str:
    """`text` after all edits in order; each sees what the ones before it left.

    Raises: `NoEdit`, in which case none is to be taken.
    """
    for place, edit in enumerate(edits, 1):
        label = f"edit {place} of {len(edits)}: " if len(edits) > 1 else ""
        text = _applied(text, edit, label)
    return text


def _applied(text: str, edit: Edit, label: str) -> str:
    if not edit.old:
        raise NoEdit(f"{label}old is empty. To fill or create a file use write_file.")
    if edit.old == edit.new:
        raise NoEdit(f"{label}old and new are the same: there is nothing to change.")
    found = list(_pattern(edit.old).finditer(text))
    if len(found) == 1:
        start, end = found[0].span()
        return text[:start] + _with_line_ends(edit.new, text, start, end) + text[end:]
    raise NoEdit(label + (_many(text, [match.start() for match in found]) if found else _none(text, edit.old)))


def _pattern(old: str) -> re.Pattern[str]:
    return re.compile("\r?\n".join(re.escape(line) for line in old.replace("\r\n", "\n").split("\n")))


def _with_line_ends(new: str, text: str, start: int, end: int) -> str:
    replaced = text[start:end]
    near = replaced if "\n" in replaced else text[text.rfind("\n", 0, start) - 1 : text.find("\n", end) + 1]
    wanted = textform.line_end(near if "\n" in near else text)
    return new.replace("\r\n", "\n").replace("\n", wanted) if wanted == "\r\n" or "\r\n" in new else new


def _many(text: str, starts: list[int]) -> str:
    lines = [text.count("\n", 0, start) + 1 for start in starts[:10]]
    more = ", ..." if len(starts) > 10 else ""
    return (
        f"old occurs {len(starts)} times (lines {', '.join(map(str, lines))}{more}): it must occur once. Add the lines "
        "around the one you mean to old and new."
    )


def _none(text: str, old: str) -> str:
    lines = text.replace("\r\n", "\n").split("\n")
    wanted = old.replace("\r\n", "\n").strip("\n").split("\n")
    same = _same_but_for_space(lines, wanted)
    if same is not None:
        return (
            f"old was not found, but lines {same + 1}-{same + len(wanted)} differ from it only in white space. "
            f"Exactly:\n{_numbered(lines, same, len(wanted))}"
        )
    near = _nearest(lines, wanted)
    if not near:
        return "old was not found, nor anything like it. Read the file again."
    shown = "\n...\n".join(_numbered(lines, start, len(wanted)) for start in near)
    return f"old was not found. The nearest lines (the number and the tab are not part of the file):\n{shown}"


def _numbered(lines: list[str], start: int, count: int) -> str:
    chosen = lines[start : start + min(count, 12)]
    return "\n".join(f"{number}\t{visible(line[:_LONGEST_LINE])}" for number, line in enumerate(chosen, start + 1))


def _same_but_for_space(lines: list[str], wanted: list[str]) -> int | None:
    squeezed = ["".join(line.split()) for line in wanted]
    if not any(squeezed):
        return None
    all_squeezed = ["".join(line.split()) for line in lines]
    starts = (i for i, line in enumerate(all_squeezed) if line == squeezed[0])
    return next((i for i in starts if all_squeezed[i : i + len(squeezed)] == squeezed), None)


def _nearest(lines: list[str], wanted: list[str]) -> list[int]:
    """Where windows as long as `wanted` begin that look most like it, in order of lines; by their longest line."""
    import difflib

    place, longest = max(enumerate(wanted), key=lambda numbered: len(numbered[1].strip()))
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(longest.strip()[:_LONGEST_LINE])
    likely = []
    for number, line in enumerate(lines[:_MOST_LINES_COMPARED]):
        matcher.set_seq1(line.strip()[:_LONGEST_LINE])
        if matcher.real_quick_ratio() > _ALIKE and (bound := matcher.quick_ratio()) > _ALIKE:
            likely.append((-bound, number))
    scored = []
    for _, number in sorted(likely)[:_MOST_COMPARED_WELL]:
        matcher.set_seq1(lines[number].strip()[:_LONGEST_LINE])
        if (score := matcher.ratio()) > _ALIKE:
            scored.append((-score, max(0, number - place)))
    best: list[int] = []
    for _, start in sorted(scored):
        if all(abs(start - other) >= len(wanted) for other in best):
            best.append(start)
    return sorted(best[:_MOST_SHOWN])
