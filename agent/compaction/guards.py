"""When a compaction would be in vain: the rules that keep a run from compacting for ever.

The process exits after every turn, so what they need stands in the session file, in the last compaction record
(`guard`) and in the first size that the server reported after it. Judged on *reported* sizes where there are any, so
that a summary that looked small and was not counts as a failure. Pure; overflow answers are not asked here: what the
server refuses must be made smaller.

- No compaction without growth since the last one.
- After two in a row that gained less than MIN_GAIN, or after two in a row whose next size stayed over the trigger,
  none until the context has grown by GROWTH.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from agent.log.entries import Entry
from agent.tokens import prompt_of, same_model

MIN_GAIN = 0.15
GROWTH = 1.15
AFTER_OUTAGE = 1.08
MOST = 2


class State(NamedTuple):
    """What the last compaction came to. `base` is the size after it, reported where known; `grown` whether anything
    was said since; `strikes` and `row` count small gains and sizes still over the trigger, the last one included.
    """

    base: int = 0
    grown: bool = True
    strikes: int = 0
    row: int = 0


def last_record(entries: Sequence[Entry]) -> Entry | None:
    """The compaction record of this generation, or that of an attempt since: one that gained nothing. One whose call
    failed says nothing of what there is to gain."""
    tried = (e for e in reversed(entries) if not _unanswered(e))
    of_its_own = (e for e in tried if e.get("reason") != "manual" or e.get("type") == "compaction")
    return next((e for e in of_its_own if e.get("type") in ("compaction", "attempt")), None)


def _unanswered(entry: Entry) -> bool:
    """Whether this is an attempt of which no answer came."""
    reasons = _dict(entry.get("checks")).get("reasons")
    return entry.get("type") == "attempt" and isinstance(reasons, list) and "call_failed" in reasons


def resting(entries: Sequence[Entry], size: int) -> bool:
    """Whether the last summary call failed, and the context has hardly grown since: an outage is not asked at every
    request whether it is over."""
    made = max((i for i, e in enumerate(entries) if e.get("type") == "compaction"), default=-1)
    failed = [e for e in entries[made + 1 :] if _unanswered(e) and e.get("reason") == "threshold"]
    return bool(failed) and size < AFTER_OUTAGE * _int(_dict(failed[-1].get("tokens")).get("before"))


def state(meta: Entry, entries: Sequence[Entry], trigger: int) -> State:
    """The state of the guards for the next proactive compaction."""
    record = last_record(entries)
    if record is None:
        return State()
    made = record.get("n") or 0
    since = [e for e in entries if e.get("type") == "message" and e.get("n", 0) > made and not e.get("summary")]
    tokens, guard = _dict(record.get("tokens")), _dict(record.get("guard"))
    base = next(filter(None, _prompts(meta, since)), _int(tokens.get("after_estimate")))
    small = base > (1 - MIN_GAIN) * _int(tokens.get("before"))
    return State(
        base,
        bool(since),
        _int(guard.get("strikes")) + 1 if small else 0,
        _int(guard.get("row")) + 1 if base >= trigger else 0,
    )


def taken(meta: Entry, entries: Sequence[Entry], model: str = "") -> int:
    """The largest prompt, in tokens, that the server (of this model, where one is named) has reported in this generation: so
    much it takes.

    The usage of a compaction record is no prompt's: it may be the sum of several requests.
    """
    return max(_prompts(meta, entries, model), default=0)


def _prompts(meta: Entry, entries: Sequence[Entry], model: str = "") -> Iterator[int]:
    """The prompt sizes that were reported in this generation, in their order."""
    for entry in entries:
        if entry.get("type") == "message" and not (model and not same_model(entry.get("model"), model)):
            yield prompt_of(meta, entry)


def refusal(now: State, size: int, window: int) -> str:
    """Why a proactive compaction at `size` tokens would be in vain, or "" when it may be tried.

    What has grown past the window since the last one may always be tried; what a server took although it was larger
    than the window we know of is no reason.
    """
    if not now.grown:
        return "nothing was added since the last compaction"
    if now.base < window <= size:
        return ""
    if latched(now) and size < GROWTH * now.base:
        return f"the last {MOST} compactions gained too little; the next one waits until the context has grown"
    if now.row and size < 1.05 * now.base:
        return "the context has hardly grown since the last compaction"
    return ""


def latched(now: State) -> bool:
    """Whether proactive compactions rest until the context has grown: the one refusal that a person should hear of."""
    return max(now.strikes, now.row) >= MOST


def remembered(now: State, size: int, ratio: float, model: str) -> dict[str, Any]:
    """The `guard` of a new record; counters start again once the context has grown past them. `ratio` is what this
    model's server reports for one estimated token."""
    grown = size >= GROWTH * now.base
    return {
        "strikes": 0 if grown and now.strikes >= MOST else now.strikes,
        "row": 0 if grown and now.row >= MOST else now.row,
        "ratio": round(ratio, 3),
        "model": model,
    }


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0
