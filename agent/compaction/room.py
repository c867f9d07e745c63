"""Room: what a compaction is to achieve, and how a compacted context is shared out.

Fixed cost (system message, tools) comes off first; then the record and the summary get their parts, and the tail what
is left, up to its own limit. Sizes are estimates; `ratio` turns them into tokens of the model at hand. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from agent.compaction import plan
from agent.compaction.summary import summary_cap
from agent.log.entries import Entry
from agent.messages import Message, Schema
from agent.tokens import Limits, count, estimate_messages, standing, tool_tokens

FRAME_TOKENS = 90
AIM = 0.7
"""Of the goal: a fold that only just meets it is soon followed by the next."""
RECORD_SHARES = ((4_000, 0.95), (50_000, 0.25))
"""Of the first 4,000 tokens of room nearly all go to the record, of what is beyond a quarter: facts first, then tails. What
a summary takes beside it comes of what AIM leaves of the goal."""
SUMMARY_SHARE = 0.15
COUNTED = 20_000
"""Windows up to so many tokens are so small that the last thing to fit in them is counted, not estimated."""


Weigh = Callable[[Iterable[Message]], int]


class Job(NamedTuple):
    """What is wanted of one compaction, in tokens: aim for `goal`. What is kept is cut only where there is more than `most`,
    and then to `ceiling`."""

    reason: str
    goal: int
    ceiling: int
    most: int
    keep: int | None = None
    strategy: str | None = None
    wishes: str = ""
    ask: bool = True
    must: bool = False
    """The context does not fit: anything smaller is welcome."""
    crop: bool = True
    """What is itself too long may be cut."""
    fall_back: bool = True
    """Without a summary that passes the record goes in by itself."""
    fits: int = 0
    """What is larger may not be sent; 0 where the context may be as it is."""


class Material(NamedTuple):
    """The context at one moment. Sizes are estimates (`whole`: of the body); times `ratio` they are tokens of this
    model."""

    system: tuple[Entry, ...]
    body: tuple[Entry, ...]
    others: tuple[Entry, ...]
    fixed: int
    ratio: float
    whole: int

    def tokens(self, body: Sequence[Entry]) -> int:
        return round((self.fixed + (self.whole if body is self.body else plan.size(body))) * self.ratio)


class Room(NamedTuple):
    """How a compacted context is shared out, in estimated tokens."""

    record: int
    written: int
    keep: int
    wide: int


def material(entries: Sequence[Entry], tools: Sequence[Schema], ratio: float) -> Material:
    """Sort the entries of a session: system message first, what can be compacted, and what is only carried along."""
    live = standing(entries)
    lead = 1 if live and plan.role(live[0]) == "system" and not live[0].get("summary") else 0
    others = tuple(e for e in entries if e.get("type") not in ("message", "compaction", "attempt", "undo", "failed"))
    fixed = tool_tokens(tools) + plan.size(live[:lead])
    body = tuple(live[lead:])
    return Material(tuple(live[:lead]), body, others, fixed, ratio, plan.size(body))


def record_share(room: int) -> int:
    """Tokens of the record, by RECORD_SHARES."""
    tokens, left = 0.0, room
    for span, share in RECORD_SHARES:
        tokens += min(left, span) * share
        left = max(0, left - span)
    return int(tokens)


def share_out(limits: Limits, job: Job, context: Material) -> Room:
    """Fixed cost first, then the record and the summary, and the tail gets the rest, up to its own limit.

    Where hardly anything is left the record still gets a fifth of the window (at most 600).
    """
    room = max(0, int(job.goal * AIM / context.ratio) - context.fixed)
    kept_facts = max(record_share(room), min(600, limits.window // 5))
    kept_facts = min(kept_facts, max(80, context.whole * 2 // 5))
    written = int(min(summary_cap(limits.window), max(64, room * SUMMARY_SHARE)))
    wide = max(0, room - kept_facts - FRAME_TOKENS)
    keep = min(max(0, wide - written), int(limits.keep / context.ratio))
    return Room(kept_facts, written, keep if job.keep is None else int(job.keep / context.ratio), wide)


def holds_a_summary(context: Material, room: Room, window: int) -> bool:
    """Whether a written summary could stand beside the fixed parts and what stays at least (estimates err high)."""
    kept = plan.size(plan.last(context.body).kept)
    return context.fixed + kept + room.written <= window


def roomy(window: int) -> int:
    """The largest context, in tokens, beside which there is room for an answer."""
    return window - max(256, window // 16)


def leaves_room(limits: Limits, size: int) -> bool:
    """Whether there is room for an answer beside a context of this size."""
    return size <= roomy(limits.window)


def weighing(context: Material, learnt_from: Sequence[Entry], tools: Sequence[Schema], window: int) -> Weigh:
    """How the tokens of messages and tools are found where a few decide: counted, and corrected by `context.ratio`.

    The count of the entries it was learnt from tells how much of the ratio is the estimate's error, and how much the
    model's own tokenizer. Where they are gone only a large difference is believed.
    """
    if window > COUNTED or context.whole > 4 * COUNTED:
        return lambda messages: round(estimate_messages(messages, tools) * context.ratio)
    sample = [e["message"] for e in (*context.system, *learnt_from)]
    scale = context.ratio * estimate_messages(sample, tools) / max(1, estimate_messages(sample, tools, count))
    if context.ratio == 1.0 or (not learnt_from and 0.75 < scale < 1.33):
        scale = 1.0
    return lambda messages: round(estimate_messages(messages, tools, count) * scale)
