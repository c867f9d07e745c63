"""The entries that a compaction leaves in the session file: of one that was made, and of an attempt that came to nothing.

    {"type": "compaction", "n", "at", "reason": "threshold" | "overflow" | "manual", "strategy", "folded": [first, last],
     "kept", "tokens": {"before", "after_estimate"}, "checks", "guard", "archive", "ms", and of a model's call "model", ...}
    {"type": "attempt", "reason", "outcome": "nothing" | "no_summary" | "failed", "text", the rest as above}

What stands in the session when it is written (`n`, `at`, `archive`) and `ms` (milliseconds) are added there. Pure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from agent.compaction import guards
from agent.compaction.draft import Draft
from agent.compaction.room import Job, Material
from agent.compaction.summary import Answer

NOTHING = "compacting now would not make the context smaller"


class Work(NamedTuple):
    """One run of the ladder: what is asked for, the guards' state, of which context, its size in tokens, and the name of
    the model it is made for."""

    job: Job
    now: guards.State
    context: Material
    before: int
    model: str


def compaction(work: Work, draft: Draft, answer: Answer, counted: float) -> dict[str, Any]:
    """The record of a compaction; `counted` corrects the estimate of its size."""
    numbers = [e.get("n", 0) for e in draft.folded]
    return {
        "reason": work.job.reason,
        "strategy": draft.strategy,
        "folded": [min(numbers), max(numbers)] if numbers else [],
        "kept": len(draft.body),
        **_about(work, answer, round(draft.tokens * counted)),
    }


def attempt(work: Work, answer: Answer, failed: str) -> dict[str, Any]:
    """The record of a model's call of which nothing came. `failed` says what else went wrong."""
    return {
        "type": "attempt",
        "reason": work.job.reason,
        "outcome": "failed" if failed else answer.outcome or "nothing",
        "text": failed or answer.error or NOTHING,
        **_about(work, answer, work.before),
    }


def _about(work: Work, answer: Answer, after: int) -> dict[str, Any]:
    return {
        "tokens": {"before": work.before, "after_estimate": after},
        "checks": answer.verdict.as_json(),
        "guard": guards.remembered(work.now, work.before, work.context.ratio, work.model),
        **answer.about(),
    }
