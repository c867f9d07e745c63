"""What a run can show. Events are for eyes and for `--json`; they are never the path to disk.

`emit` is a plain function `Event -> None`; `agent.render` has one for people, `agent.jsonlines` one for machines. Sizes are tokens,
times seconds. They are named tuples: a dozen dataclasses would cost every start some 5 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from agent.messages import Delta, Message, Usage


class SessionOpened(NamedTuple):
    id: str
    path: str
    resumed: bool
    messages: int
    model: str
    cwd: str
    tools: list[str]
    window: int
    window_source: str
    sandbox: str = "none"
    parent: str | None = None
    forked: bool = False
    """By this run: it is a copy of `parent`."""


class Budget(NamedTuple):
    """How full the context is: `estimated` before the first request, reported after each answer."""

    used: int
    window: int
    source: str
    estimated: bool
    model: str


class Streamed(NamedTuple):
    delta: Delta


class Answered(NamedTuple):
    """A whole assistant message, as it went to disk."""

    message: Message
    n: int
    usage: Usage | None
    finish_reason: str | None
    complete: bool
    model: str


class ToolStarted(NamedTuple):
    call_id: str
    name: str
    summary: str
    """One line for people: the command, the path."""


class ToolFinished(NamedTuple):
    call_id: str
    name: str
    ok: bool
    seconds: float
    text: str
    denied: bool = False
    detail: dict[str, Any] = {}  # noqa: RUF012  read only


class Compacting(NamedTuple):
    """A compaction starts: why, and what it will fold."""

    reason: str
    messages: int
    tokens: int
    window: int


class Compacted(NamedTuple):
    """A compaction is on disk: `record` is the compaction entry of the session file."""

    record: dict[str, Any]
    messages_before: int
    messages_after: int
    archive: str
    cost: float | None = None


class NotCompacted(NamedTuple):
    """Nothing was changed: `why` is "nothing" (to compact), "no_summary" or "failed"; `text` explains it. `usage` and
    `cost` (dollars) are of the model that was asked in vain."""

    why: str
    text: str
    usage: Usage | None = None
    cost: float | None = None


class Waiting(NamedTuple):
    """A retry is due in `seconds`."""

    seconds: float
    attempt: int
    attempts: int
    reason: str


class Notice(NamedTuple):
    """One line for people: `level` is "info" or "warning"; `code` a stable word."""

    level: str
    code: str
    text: str


class TurnFinished(NamedTuple):
    id: str
    steps: int
    usage: Usage | None
    """The last step's: what the context is now."""
    total: Usage
    """Summed over the turn's steps."""
    finish_reason: str | None
    seconds: float
    """How long the model took for its answers."""
    answer: str
    denials: list[dict[str, Any]] = []  # noqa: RUF012  read only
    window: int = 0
    summaries: Usage | None = None
    """Summed over the summary calls of its compactions."""
    cost: float | None = None
    """Dollars, of steps and summaries."""


Event = (
    SessionOpened
    | Budget
    | Streamed
    | Answered
    | ToolStarted
    | ToolFinished
    | Compacting
    | Compacted
    | NotCompacted
    | Waiting
    | Notice
    | TurnFinished
)
Emit = Callable[[Event], None]
