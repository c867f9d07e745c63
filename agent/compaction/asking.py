"""Asking: a checked summary of a head, of the summary model where there is one, else, or if it fails, of the main one.

A model that wrote nothing is asked once more as text with no tools in sight; one for which the request was too long, or
that refused it without a reason that is known, once more with less. What all calls have taken is counted here.

It does not know when or why a context is compacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agent.compaction import plan, summary
from agent.compaction.past import Past
from agent.compaction.room import Job, Material, Room
from agent.messages import CostOf, Model, Schema, Usage
from agent.session import replay

NO_TEXT = {"tool_call", "empty", "incomplete"}
"""What a model is asked once more for, as text with no tools in sight."""


class Asking:
    """The models of one session that write summaries. `used` and `cost` (dollars) are what all calls have taken so far;
    `failed` the answers of the last question that were of no use."""

    def __init__(
        self,
        model: Model,
        summary_model: Model | None,
        instructions: str,
        price: CostOf | None,
        summary_price: CostOf | None,
    ) -> None:
        self._model, self._summary_model = model, summary_model
        self._instructions = instructions
        self._price, self._summary_price = price, summary_price
        self.used: Usage | None = None
        self.cost: float | None = None
        self.failed: list[summary.Answer] = []

    def ask(
        self, context: Material, cut: plan.Fold, room: Room, job: Job, past: Past, tools: Sequence[Schema], window: int
    ) -> summary.Answer:
        """A checked summary of the head, or why there is none; `window` is the main model's. Raises as `summary.ask`."""
        answer, self.failed = summary.Answer(), []
        about = (context, cut, room, job, past, tools)
        if self._summary_model is not None:
            answer = self._ask_one(self._summary_model, None, window, *about)
        if not answer.text:
            self.failed = [answer] if answer.model else []
            head = replay([*context.system, *(plan.by_n(context.body, cut.head))])
            answer = self._ask_one(self._model, head, window, *about)
        return answer

    def _ask_one(
        self,
        model: Model,
        head: Sequence[Any] | None,
        window: int,
        context: Material,
        cut: plan.Fold,
        room: Room,
        job: Job,
        past: Past,
        tools: Sequence[Schema],
    ) -> summary.Answer:
        """One model's answer. `head` is the context up to the cut where this is the model that answered in it."""
        window = getattr(model, "window", None) or window
        if job.reason == "overflow" and model is self._model:
            window = min(window, job.fits)  # what is longer was refused just now
        source, ready = partial(past.source, cut), partial(past.ready, cut, room.record)
        told = [(e.get("n", 0), e["message"]) for e in plan.by_n(context.body, cut.folded) if not e.get("summary")]
        about: dict[str, Any] = {"cap": min(room.written, max(64, cut.size // 2)), "ratio": context.ratio}
        about |= {"earlier": cut.covers[2], "structured": model.structured}
        about["wishes"] = "\n".join(filter(None, (self._instructions, job.wishes)))
        requests = summary.requests_for(head, told, tools, window=window, **about)
        answer, again = summary.ask(model, requests, source, ready), []
        reasons = set(answer.verdict.reasons)
        if head is not None and len(requests[0].messages) == len(head) + 1 and NO_TEXT & reasons:
            again = summary.requests_for(None, told, (), window=window, **about)
        elif "overflow" in reasons or answer.unexplained:
            less = max(400, self._less(window, context, cut))
            again = summary.requests_for(None, told, (), window=less, **about)[-1:]
        if again:
            second = summary.ask(model, again, source, ready)
            answer = replace(second, usage=second.usage.plus(answer.usage) if second.usage else answer.usage)
        self._count(model, answer)
        return answer

    def _less(self, window: int, context: Material, cut: plan.Fold) -> int:
        """Half the window, or half of what was refused where that is less."""
        return min(window, round((context.fixed + cut.size) * context.ratio)) // 2

    def _count(self, model: Model, answer: summary.Answer) -> None:
        if answer.usage:
            price = self._price if model is self._model else self._summary_price
            answer.cost = price(answer.usage) if price else None
            self.used = answer.usage.plus(self.used)
            self.cost = self.cost if answer.cost is None else (self.cost or 0.0) + answer.cost
