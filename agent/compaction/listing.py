"""Listing: the statements that were chosen, as the text of a record: grouped by kind, in the order of the conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.compaction.inert import defused
from agent.compaction.statements import CALL, CHANGED, COMMAND, ERROR, FACT, READ, USER, Statement

HEADINGS = {
    USER: "### The user said (excerpts, verbatim)",
    CHANGED: "### Files changed",
    READ: "### Files read",
    COMMAND: "### Commands",
    ERROR: "### Errors",
    CALL: "### Calls",
    FACT: "### Facts",
}
NEARBY = 8
"""Statements of messages no farther apart share a line: a number for each would cost as much as a word."""


def listed(chosen: Sequence[Statement]) -> str:
    """The text of a record; "" where nothing was chosen. `chosen` is in order of n."""
    sections = []
    for kind, heading in HEADINGS.items():
        of_kind = [s for s in chosen if s.kind == kind]
        if of_kind and kind in (CHANGED, READ):
            sections.append(f"{heading}\n{', '.join(dict.fromkeys(' '.join(s.text.split()) for s in of_kind))}")
        elif of_kind:
            sections.append("\n".join([heading, *_lines(of_kind)]))
    return defused("\n".join(sections))


def _lines(statements: Sequence[Statement]) -> Iterator[str]:
    """Statements in order of n, those of neighbouring messages on one line."""
    first = last = -NEARBY - 1
    texts: list[str] = []
    for statement in [*statements, None]:
        if texts and (statement is None or not first or statement.n - first > NEARBY):
            mark = "" if not first else f"[{first}] " if first == last else f"[{first}-{last}] "
            yield mark + "; ".join(dict.fromkeys(texts))
            texts = []
        if statement is not None:
            first = statement.n if not texts else first
            last = statement.n
            texts.append(_on_one_line(statement).rstrip("；;。."))


def _on_one_line(statement: Statement) -> str:
    text = statement.text
    if text.isprintable() and "  " not in text:
        return text.strip()
    lines = [text] if statement.kept_first else text.splitlines()
    return " / ".join(filter(None, (" ".join(line.split()) for line in lines)))
