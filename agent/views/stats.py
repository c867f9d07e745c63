"""What a session's requests came to: the context's size step by step, tokens, cached tokens, cost, compactions.

A *step* is one answer of a model. Its size is what the server reported for the prompt; where it reported nothing, a
running estimate of what the model was sent. Cached tokens are part of the prompt. A compaction's own request counts in
the totals and is no step. What a fork shares with its parent is the parent's and is not counted twice.

Costs are known only where the caller's `price` knows them. Figures in a file are believed only when they are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from agent.log.entries import Entry
from agent.messages import Usage, usage_from_json
from agent.session import Session
from agent.tokens import message_tokens
from agent.views.story import story

Price = Callable[[str, Usage], float | None]
"""Dollars for one request of this model, or None."""


def no_price(model: str, usage: Usage) -> float | None:
    """The price of models that have none known."""
    return None


@dataclass(frozen=True)
class Step:
    """One answer: the prompt it saw (tokens), what it said, what of the prompt was cached; `reported` or estimated."""

    n: int
    at: str
    model: str
    prompt: int
    completion: int
    cached: int | None
    reported: bool
    cost: float | None


KINDS = ("compacted", "undone", "redone")
"""A compaction; one taken back; the taking back taken back."""


@dataclass(frozen=True)
class Fold:
    """What changed the context between steps: it happened behind `after` of them. `kind` is a word of `KINDS`."""

    n: int
    at: str
    after: int
    kind: str
    before: int | None
    left: int | None
    reason: str
    strategy: str
    archive: str


@dataclass
class Totals:
    """Sums; tokens are those that servers reported. `cost` None: not known for any request."""

    sessions: int = 0
    requests: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    compactions: int = 0
    cost: float | None = None

    def add(self, usage: Usage | None, cost: float | None) -> None:
        """One request, with what it reported."""
        self.requests += 1
        if usage is not None:
            self.prompt += usage.prompt
            self.completion += usage.completion
            self.cached += min(usage.cached or 0, usage.prompt)
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost

    def plus(self, other: Totals) -> None:
        """The sum of both, here."""
        for name, value in asdict(other).items():
            mine = getattr(self, name)
            setattr(self, name, value if mine is None else mine if value is None else mine + value)

    def as_json(self) -> dict[str, Any]:
        return {
            "sessions": self.sessions,
            "requests": self.requests,
            "prompt_tokens": self.prompt,
            "cached_tokens": self.cached,
            "completion_tokens": self.completion,
            "compactions": self.compactions,
            "cost_usd": None if self.cost is None else round(self.cost, 6),
        }


@dataclass
class Life:
    """The whole life of a session in figures. `days` by date (UTC)."""

    steps: list[Step] = field(default_factory=list)
    folds: list[Fold] = field(default_factory=list)
    totals: Totals = field(default_factory=lambda: Totals(sessions=1))
    days: dict[str, Totals] = field(default_factory=dict)

    def day(self, at: str) -> Totals:
        return self.days.setdefault(at[:10] or "unknown", Totals())


def life(entries: Iterable[Entry], *, shared: int = 0, price: Price = no_price) -> Life:
    """The figures of a story (see `agent.views.story`). Entries up to number `shared` are a parent's: shown, not
    summed."""
    found, size, saved = Life(), 0, [0]
    for entry in entries:
        if entry["type"] == "compaction":
            before, left = _sizes(entry)
            saved.append(size - (left if left is not None else size))
            size = left if left is not None else size
            _fold(found, entry, before, left, shared, price)
        elif entry["type"] == "attempt":
            _paid(found, entry, shared, price)
        elif entry["type"] == "undo":
            size += -saved[-1] if entry.get("redo") else saved[-1]
            found.folds.append(_made(entry, len(found.steps), None, size))
        elif entry["type"] == "message":
            if entry.get("summary"):
                continue  # the compaction's figure has it already
            if entry["message"]["role"] == "assistant":
                _step(found, entry, size, shared, price)
            size += message_tokens(entry["message"])
    return found


def _step(found: Life, entry: Entry, size: int, shared: int, price: Price) -> None:
    usage, model = usage_from_json(entry.get("usage")), str(entry.get("model") or "")
    cost = price(model, usage) if usage else None
    told = usage or Usage(size)
    at = str(entry.get("at") or "")
    found.steps.append(Step(entry["n"], at, model, told.prompt, told.completion, told.cached, usage is not None, cost))
    if entry["n"] > shared and (usage or "request" in entry):
        for totals in (found.totals, found.day(at)):
            totals.add(usage, cost)


def _fold(found: Life, entry: Entry, before: int | None, left: int | None, shared: int, price: Price) -> None:
    found.folds.append(_made(entry, len(found.steps), before, left))
    if entry["n"] > shared:
        for totals in (found.totals, found.day(str(entry.get("at") or ""))):
            totals.compactions += 1
    _paid(found, entry, shared, price)


def _paid(found: Life, entry: Entry, shared: int, price: Price) -> None:
    """What the summary's request took, whether or not a compaction came of it."""
    usage = usage_from_json(entry.get("usage"))
    if entry["n"] > shared and usage is not None:
        for totals in (found.totals, found.day(str(entry.get("at") or ""))):
            totals.add(usage, price(str(entry.get("model") or ""), usage))


def _made(entry: Entry, after: int, before: int | None, left: int | None) -> Fold:
    words = (str(entry.get(key) or "") for key in ("reason", "strategy", "archive"))
    kind = "compacted" if entry["type"] == "compaction" else "redone" if entry.get("redo") else "undone"
    return Fold(entry["n"], str(entry.get("at") or ""), after, kind, before, left, *words)


def _sizes(entry: Entry) -> tuple[int | None, int | None]:
    tokens = entry.get("tokens")
    tokens = tokens if isinstance(tokens, dict) else {}
    before, left = tokens.get("before"), tokens.get("after_estimate")
    return before if isinstance(before, int) else None, left if isinstance(left, int) else None


# ---- effects ---------------------------------------------------------------------------------------------------------


def life_of(session: Session, price: Price = no_price) -> Life:
    """The figures of a session, archives included."""
    parent = session.meta.get("parent")
    shared = parent.get("n") if isinstance(parent, dict) else None
    return life(story(session), shared=shared if isinstance(shared, int) else 0, price=price)


def lives(store: str, prices: Callable[[Entry], Price]) -> Iterator[tuple[str, Life | None]]:
    """(id, figures) of every session of a store, newest first; None for one that cannot be read.

    `prices` gives the price of a session from its meta.
    """
    from agent.errors import AgentError
    from agent.log.library import listing

    for _, id, _ in listing(store):
        try:
            session = Session.read(store, id)
            yield id, life_of(session, prices(session.meta))
        except AgentError:
            yield id, None
