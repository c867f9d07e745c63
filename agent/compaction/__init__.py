"""Compaction: when a context is made smaller, by which step of the ladder, and how that comes to stand on disk.

    1 pruned               stale and repeated results become stubs; no model is asked
    2 window_plus_summary  the head becomes one checked summary with the code-built record, the tail stays verbatim
    3 raw_fallback         no summary to be had: the record, a wider tail, and a line that says so
    4 shortened            nothing left to fold: head and tail of what is itself too long

Where even that is more than the window: an ever smaller record, none, and of the last prompt and step what fits. It
ends at the first step that brings the context under the target, and takes none that does not make it smaller. The
system message is never touched, the last user message stands verbatim after the summary (unless it alone is too
long), calls stay with their results, and the originals stay in the archive. A failed attempt leaves everything as it
was and never ends a turn; only a context that cannot be made to fit does.

The steps are `agent.compaction.plan`, what could stand instead `agent.compaction.draft`, the words
`agent.compaction.summary`, what may not be lost `agent.compaction.record`, what would be in vain
`agent.compaction.guards`, what is noted of it `agent.compaction.entries`. This module decides and writes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from agent.compaction import guards, plan, summary
from agent.compaction.asking import Asking
from agent.compaction.draft import FALLBACK, PRUNED, SUMMARY, Draft, drafted, fitting, pruned, sent, shortened
from agent.compaction.entries import NOTHING, Work, attempt, compaction
from agent.compaction.past import Past
from agent.compaction.room import (
    FRAME_TOKENS,
    Job,
    Material,
    Room,
    holds_a_summary,
    leaves_room,
    material,
    roomy,
    share_out,
    weighing,
)
from agent.errors import ContextOverflow, LimitError, StorageError
from agent.events import Compacted, Compacting, Emit, NotCompacted, Notice
from agent.log.entries import Entry
from agent.messages import CostOf, Model, Schema, Usage, text_of
from agent.session import Session
from agent.tokens import Limits, Size, bounded, calibration, context_size, count, estimate_messages

LARGER = "Use a larger window (--window), fewer tools (--tools, --no-tools) or a shorter system prompt"
HARDER = (1, 2, 8, 32)
"""What a compaction aims for is divided by this when a server refuses the context again and again."""
NEAR = 0.25
"""An estimate from this share below the trigger on is counted before it decides."""


# ---- effects ----


class Compactor:
    """Keeps one session's context within the limits of one model.

    `limits` is replaced when a window is learnt; `tools` may be, when what is offered changes. `role` is that of the
    summary message: "user", "assistant" or "system" (which a server gets with the system prompt, in front).
    """

    def __init__(
        self,
        session: Session,
        model: Model,
        limits: Limits,
        tools: Sequence[Schema],
        emit: Emit,
        *,
        summary_model: Model | None = None,
        instructions: str = "",
        role: str = "user",
        recall: bool | None = None,
        price: CostOf | None = None,
        summary_price: CostOf | None = None,
    ) -> None:
        self.limits = limits
        self._session = session
        self._model = model
        self.tools = tuple(tools) if model.takes_tools else ()
        self.recall = model.takes_tools if recall is None else recall
        self._emit = emit
        self._role = role
        self._asking = Asking(model, summary_model, instructions, price, summary_price)
        self._ratio: float | None = None
        self._learnt_from: Sequence[Entry] = ()
        self._counted = 1.0
        self._told = ""
        self._unsaved: StorageError | None = None
        self._began = 0.0

    @property
    def used(self) -> Usage | None:
        """What all summary calls have taken so far."""
        return self._asking.used

    @property
    def cost(self) -> float | None:
        """Dollars, of the same."""
        return self._asking.cost

    # -- the four occasions

    def make_room(self) -> bool:
        """Before a request: compact when the context is at the trigger. True when the view changed.

        Raises: LimitError when system message and tools alone are more than the window; StorageError when what does not
        fit could not be replaced on disk.
        """
        return self._make_room(now_or_never=True)

    def after_turn(self) -> bool:
        """After the final answer: the same as `make_room`; what it finds impossible is the next turn's to say."""
        try:
            return self._make_room(now_or_never=False)
        except LimitError:
            return False

    def _make_room(self, *, now_or_never: bool) -> bool:
        """`now_or_never`: what is over the window may not be sent, unless the server has taken as much before."""
        limits, trigger = self.limits, self.limits.trigger
        size = self._size().tokens
        if size >= limits.window:
            self._refuse_the_impossible()
        if trigger is None or size < trigger:
            return False
        session = self._session
        now = guards.state(session.meta, session.entries, trigger)
        vain = guards.refusal(now, size, limits.window)
        must = now_or_never and size > limits.window > guards.taken(session.meta, session.entries)
        if vain and not must:
            if guards.latched(now):
                self._unchanged("nothing", vain, once=True)
            return False
        fits = limits.window if must else 0
        if guards.resting(session.entries, size) and not must and (leaves_room(limits, size) or not now_or_never):
            return False
        sizes = (limits.target, 15 * limits.target // 8, roomy(limits.window))
        job = Job("threshold", *sizes, ask=not vain, must=must, crop=now_or_never, fits=fits)
        outcome = self._run(job, now, before=size)
        if must and self._unsaved:
            raise self._unsaved
        return bool(outcome["outcome"] == "compacted")

    def after_overflow(self, error: ContextOverflow, attempt: int) -> None:
        """The server refused the context as too long: learn its window and cover the deficit; harder at each attempt.

        Raises: LimitError when nothing smaller is to be had; StorageError when it could not be saved.
        """
        size = self._size().tokens
        if error.limit and error.limit < self.limits.window:
            self.limits = self.limits.for_window(error.limit)
        have = error.have or (error.limit + 1 if error.limit and size <= error.limit else None)
        if have:
            context = self._material()
            self._ratio = bounded(have / max(1, context.fixed + context.whole))
            self._learnt_from = context.body
            size = have
        bound = min(size, error.limit or size)
        harder = HARDER[min(attempt, len(HARDER)) - 1]
        goal = min(self.limits.target, bound // 2) // harder
        most = bound * 3 // 4 // harder
        fits = min(error.limit or (size - size // 8 * attempt if attempt < 3 else most), size)
        job = Job("overflow", goal, most, most, ask=attempt < 2, must=True, fits=fits)
        if self._run(job, guards.State(), before=size)["outcome"] != "compacted":
            if self._unsaved:
                raise self._unsaved
            raise LimitError(
                f"The context cannot be made to fit the model's window: {error.text}",
                "Use a model with a larger window (-m), or a shorter prompt",
            )

    def after_refusal(self) -> bool:
        """The server refused the context, which may be too long: make it much smaller, without a model. True when the view
        changed."""
        size = self._size().tokens
        job = Job("overflow", size // 4, size // 3, size // 3, ask=False, must=True, fits=size // 3)
        return bool(self._run(job, guards.State(), before=size)["outcome"] == "compacted")

    def now(
        self,
        *,
        instructions: str = "",
        keep: int | None = None,
        strategy: str | None = None,
        dry_run: bool = False,
        fall_back: bool = False,
    ) -> dict[str, Any]:
        """Compact because the user asks. `keep` tokens stay verbatim; `instructions` go to the summary call; `fall_back`:
        where a summary came and is not taken, the record goes in without one.

        Returns {"outcome": "compacted" | "nothing" | "no_summary" | "failed", "text", and the record where there is
        one}; with `dry_run` nothing is changed and "outcome" is "would_compact", "summary" the message.
        """
        context = self._material()
        whole = context.tokens(context.body)
        goal = min(self.limits.target, whole // 2 + int(context.fixed * context.ratio) // 2)
        sizes = (goal, 15 * self.limits.target // 8, self.limits.window)
        job = Job("manual", *sizes, keep, strategy, instructions, fall_back=fall_back or strategy is not None)
        return self._run(job, guards.State(), context, dry_run=dry_run)

    # -- sizes

    def _size(self) -> Size:
        """The size of the next request; counted where nothing but an estimate decides whether it is too large."""
        about = (self._session.meta, self._session.entries, self._model.name, self.tools)
        size = context_size(*about)
        bounds = (self.limits.trigger or self.limits.window, self.limits.window)
        near = any(size.tokens > (1 - NEAR) * bound for bound in bounds)
        guessed = size.guessed > NEAR * size.tokens
        if near and guessed and (size.reported or calibration(*about) == 1.0):
            counted = context_size(*about, measure=count)
            self._counted = 1.0 if size.reported else counted.tokens / max(1, size.tokens)
            return counted
        self._counted = 1.0
        return size

    def _material(self) -> Material:
        entries, tools = self._session.entries, self.tools
        ratio = self._ratio or calibration(self._session.meta, entries, self._model.name, tools)
        return material(entries, tools, ratio)

    def _refuse_the_impossible(self) -> None:
        context = self._material()
        fixed = estimate_messages((e["message"] for e in context.system), self.tools, count)
        if fixed >= self.limits.window:
            raise LimitError(
                f"The system prompt and the tools alone take {fixed} tokens of a window of {self.limits.window}",
                LARGER,
            )

    # -- the ladder

    def _run(
        self,
        job: Job,
        now: guards.State,
        context: Material | None = None,
        *,
        before: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        self._began = time.monotonic()
        self._past, self._asking.failed, self._unsaved = Past(self._session, self.recall, self._role), [], None
        before = self._size().tokens if before is None else before
        work = Work(job, now, context or self._material(), before, self._model.name)
        draft, answer = self._climb(work, announce=not dry_run)
        smaller = draft is not None and sent(work.context, draft) < self._past.present
        if not dry_run:
            for each in self._asking.failed if smaller else [*self._asking.failed, answer]:
                self._attempted(work, each)
        if self._past.unread:
            text = f"{self._past.unread}. The record was built only from what could be read"
            self._emit(Notice("warning", "archive_unread", text))
        if draft is None or not smaller:
            why, once = answer.outcome or "nothing", job.reason == "threshold"
            return self._unchanged(why, answer.error or NOTHING, answer, once=once)
        self._say_what_is_left_out(work, draft)
        entry = compaction(work, draft, answer, self._counted)
        if dry_run:
            shown = text_of(draft.summary["message"]) if draft.summary else ""
            return {"outcome": "would_compact", **entry, "summary": shown}
        return self._write(work, entry, draft, answer)

    def _climb(self, work: Work, *, announce: bool) -> tuple[Draft | None, summary.Answer]:
        """The first draft under the goal, or else the last that is to be had; and what a model answered on the way."""
        job, context = work.job, work.context
        room = share_out(self.limits, job, context)
        draft, answer = pruned(context, job, self.limits), summary.Answer()
        enough = draft is not None and draft.tokens <= job.goal and job.strategy is None
        if job.strategy != PRUNED and not enough:
            light = draft.body if draft else context.body
            folded, answer = self._folded(work, light, room, announce=announce)
            if folded is not None or not answer.unanswered or job.reason != "threshold":
                draft = folded
        if job.fits:
            draft = self._fitting(context, draft, room, job)
        return draft, answer

    def _folded(
        self, work: Work, light: Sequence[Entry], room: Room, *, announce: bool
    ) -> tuple[Draft | None, summary.Answer]:
        """Rungs 2 to 4. `light` is the context with its stubs; `announce` says before the call what will be folded."""
        job, context = work.job, work.context
        cut = plan.fold(light, room.keep)
        if cut is None:
            return (shortened(context, light, job) if job.crop else None), summary.Answer()
        if announce:
            self._emit(Compacting(job.reason, len(cut.folded), work.before, self.limits.window))
        answer = summary.Answer()
        gains = self._past.pinned + FRAME_TOKENS < cut.size  # pins and frame stay, whatever a model writes
        if job.strategy != FALLBACK and job.ask and gains and holds_a_summary(context, room, self.limits.window):
            answer = self._asking.ask(context, cut, room, job, self._past, self.tools, self.limits.window)
        if answer.text:
            draft = drafted(SUMMARY, context, cut, room, job, self._past, answer.text)
            if draft.tokens < context.tokens(context.body):
                return draft, answer
            answer = replace(answer, text="", verdict=replace(answer.verdict, reasons=("not_smaller",)))
        if job.strategy == SUMMARY or not job.fall_back or (answer.unanswered and self._can_wait(work)):
            return None, answer
        wide = plan.fold(light, room.wide) or cut
        return drafted(FALLBACK, context, wide, room, job, self._past), answer

    def _can_wait(self, work: Work) -> bool:
        """What fits, or need not go out now, is not cut because a server cannot be had."""
        return not work.job.must and (leaves_room(self.limits, work.before) or not work.job.crop)

    def _fitting(self, context: Material, draft: Draft | None, room: Room, job: Job) -> Draft | None:
        """The draft, or what fits where it does not. Raises: LimitError when no request can be made."""
        reported = max((i for i, entry in enumerate(context.body) if "usage" in entry), default=0)
        learnt_from = self._learnt_from or context.body[:reported]
        weigh = weighing(context, learnt_from, self.tools, self.limits.window)
        found = fitting(context, draft, room, job, self._past, weigh)
        if found is None or found.tokens <= job.fits or job.fits < self.limits.window:
            return found
        if job.reason != "threshold":
            return None
        if sent(context, found, self.tools, count) <= job.fits:
            return found  # what was learnt of this model's tokenizer may be wrong, and only an answer can tell
        raise LimitError(
            f"System prompt, tools and the shortest form of what was said last take {found.tokens} tokens "
            f"of a window of {self.limits.window}",
            LARGER,
        )

    # -- on disk

    def _attempted(self, work: Work, answer: summary.Answer, failed: str = "") -> None:
        """Record a call of a model of which nothing came, where that can still be written."""
        if answer.model:
            with suppress(StorageError):
                self._session.append(attempt(work, answer, failed) | {"ms": self._ms()})

    def _ms(self) -> int:
        return round((time.monotonic() - self._began) * 1000)

    def _write(self, work: Work, entry: dict[str, Any], draft: Draft, answer: summary.Answer) -> dict[str, Any]:
        session, context = self._session, work.context
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        head = {"type": "compaction", "n": session.new_n(), "at": at}
        entry = {**head, **entry, "archive": session.next_archive(), "ms": self._ms()}
        summaries = [{**lead, "n": session.new_n(), "at": at} for lead in draft.lead]
        try:
            archive = session.rewrite([entry, *context.others, *context.system, *summaries, *draft.body])
        except StorageError as error:
            self._unsaved = error
            told = f"The compaction could not be saved; the history is unchanged: {error}"
            self._attempted(work, answer, told)
            return self._unchanged("failed", told, answer) | {"unsaved": True}
        self._past.remember()
        after = len(context.system) + len(summaries) + len(draft.body)
        self._emit(Compacted(entry, len(context.system) + len(context.body), after, archive, answer.cost))
        self._told = ""
        return {"outcome": "compacted", **entry}

    # -- what is told

    def _say_what_is_left_out(self, work: Work, draft: Draft) -> None:
        pins = self._past.pins_left_out([*work.context.system, *draft.lead, *draft.body])
        guess = " (a guess: state it with --window)" if self.limits.source == "default" else ""
        why = f"a window of {self.limits.window} tokens{guess} has no room for"
        if work.job.reason == "overflow":
            why = "the context sent instead leaves out"
        for code, what in (("pins_left_out", pins), ("prompt_cut", draft.cuts_prompt(work.context.body))):
            if what:
                self._emit(Notice("warning", code, f"{why} {what}"))

    def _unchanged(
        self, why: str, text: str, answer: summary.Answer | None = None, *, once: bool = False
    ) -> dict[str, Any]:
        """Say that nothing was changed; `once`: the same thing is not said before every request."""
        answer = answer or summary.Answer()
        if not once or self._told != text or answer.usage:
            self._emit(NotCompacted(why, text, answer.usage, answer.cost))
        if once:
            self._told = text
        return {"outcome": why, "text": text}
