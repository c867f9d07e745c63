"""Compaction: when a context is made smaller, by which step of the ladder, and how that comes to stand on disk.

    1 pruned               stale and repeated results become stubs; no model is asked
    2 window_plus_summary  the head becomes one checked summary with the code-built record, the tail stays verbatim
    3 raw_fallback         no summary to be had: the record, a wider tail, and a line that says so
    4 shortened            nothing left to fold: head and tail of what is itself too long

It ends at the first step that brings the context under the target, and takes none that does not make it smaller. The
system message is never touched, the last user message stands verbatim after the summary (unless it alone is too
long), calls stay with their results, and the originals stay in the archive. A failed attempt leaves everything as it
was and never ends a turn; only a context that cannot be made to fit does.

The steps are `agent.plan`, the words `agent.summary`, what may not be lost `agent.record`, what would be in vain
`agent.guards`. This module decides and writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent import guards, plan, record, summary
from agent.errors import ContextOverflow, LimitError, StorageError
from agent.events import Compacted, Compacting, Emit, NotCompacted
from agent.messages import Model, Schema, Usage, text_of
from agent.room import FRAME_TOKENS, Job, Material, Room, material, share_out
from agent.session import Session, replay
from agent.statements import USER
from agent.tokens import (
    Entry,
    Limits,
    Size,
    calibration,
    context_size,
    count,
    estimate,
    estimate_messages,
    message_tokens,
)

PRUNED, SUMMARY, FALLBACK, SHORTENED = "pruned", "window_plus_summary", "raw_fallback", "shortened"
STRATEGIES = (PRUNED, SUMMARY, FALLBACK)
"""What `strategy` may force; `shortened` is where every strategy ends when a message is itself too long."""

NOTHING = "what could be left out is smaller than what would replace it"
NEAR = 0.25
"""An estimate within this share of the trigger is counted exactly before it decides."""

Price = Callable[[Usage], float | None]


@dataclass(frozen=True)
class Draft:
    """A context that could replace the present one: its messages, and what the record of it will say."""

    strategy: str
    body: tuple[Entry, ...]
    folded: tuple[Entry, ...]
    tokens: int
    summary: Entry | None = None


# ---- effects ----


class Compactor:
    """Keeps one session's context within the limits of one model.

    `limits` is replaced when a window is learnt; `tools` may be, when what is offered changes.
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
        recall: bool | None = None,
        price: Price | None = None,
    ) -> None:
        self.limits = limits
        self._session = session
        self._model = model
        self.tools = tuple(tools) if model.takes_tools else ()
        self.recall = model.takes_tools if recall is None else recall
        self._emit = emit
        self._summary_model = summary_model
        self._instructions = instructions
        self._price = price
        self._ratio: float | None = None
        self._told = ""

    # -- the four occasions

    def make_room(self) -> bool:
        """Before a request: compact when the context is at the trigger. True when the view changed.

        Raises: LimitError when system message and tools alone are more than the window.
        """
        trigger = self.limits.trigger
        size = self._size()
        if size.tokens >= self.limits.window:
            self._refuse_the_impossible()
        if trigger is None or size.tokens < trigger:
            return False
        now = guards.state(self._session.meta, self._session.entries, trigger)
        vain = guards.refusal(now, size.tokens, self.limits.window)
        if vain:
            if guards.latched(now):
                self._not("nothing", vain, once=True)
            return False
        outcome = self._run(Job("threshold", self.limits.target, trigger), now)
        return bool(outcome["outcome"] == "compacted")

    def after_turn(self) -> bool:
        """After the final answer: the same as `make_room`; what it finds impossible is the next turn's to say."""
        try:
            return self.make_room()
        except LimitError:
            return False

    def after_overflow(self, error: ContextOverflow, attempt: int) -> None:
        """The server refused the context as too long: learn its window and cover the deficit; harder at attempt 2.

        Raises: LimitError when nothing smaller is to be had.
        """
        size = self._size().tokens
        if error.limit and error.limit < self.limits.window:
            self.limits = self.limits.for_window(error.limit)
        if error.have:
            estimated = self._material().tokens(self._material().body) / self._material().ratio
            self._ratio = min(max(error.have / max(1, estimated), 0.3), 3.0)
            size = error.have
        bound = min(size, error.limit or size)
        goal = min(self.limits.target, bound // 2) // (1 if attempt < 2 else 2)
        job = Job("overflow", goal, bound * 3 // 4 // attempt, ask=attempt < 2, must=True)
        if self._run(job, guards.State())["outcome"] != "compacted":
            raise LimitError(
                f"The context cannot be made to fit the model's window: {error.text}",
                "Use a model with a larger window (-m), or a shorter prompt",
            )

    def now(
        self, *, instructions: str = "", keep: int | None = None, strategy: str | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """Compact because the user asks. `keep` tokens stay verbatim; `instructions` go to the summary call.

        Returns {"outcome": "compacted" | "nothing" | "no_summary" | "failed", "text", and the record where there is
        one}; with `dry_run` nothing is changed and "outcome" is "would_compact", "summary" the message.
        """
        context = self._material()
        whole = context.tokens(context.body)
        goal = min(self.limits.target, whole // 2 + int(context.fixed * context.ratio) // 2)
        job = Job("manual", goal, self.limits.window, keep, strategy, instructions)
        return self._run(job, guards.State(), dry_run=dry_run)

    # -- sizes

    def _size(self) -> Size:
        """The size of the next request; counted exactly where an estimate alone is near the trigger."""
        about = (self._session.meta, self._session.entries, self._model.name, self.tools)
        size = context_size(*about)
        trigger = self.limits.trigger
        if not size.reported and trigger and abs(size.tokens - trigger) < NEAR * trigger:
            return context_size(*about, measure=count)
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
                "Use a larger window (--window), fewer tools (--tools, --no-tools) or a shorter system prompt",
            )

    # -- the ladder

    def _run(self, job: Job, now: guards.State, *, dry_run: bool = False) -> dict[str, Any]:
        started = time.monotonic()
        before = self._size().tokens
        context = self._material()
        room = share_out(self.limits, job, context)
        draft, answer = self._pruned(context, job), summary.Answer()
        folds = job.strategy != PRUNED and (draft is None or draft.tokens > job.goal or job.strategy is not None)
        if folds:
            light = draft.body if draft else context.body
            draft, answer = self._folded(context, light, room, job, before, announce=not dry_run)
        if draft is None or sent(context, draft) >= estimate_messages(self._session.view()):
            why = answer.outcome or "nothing"
            return self._not(why, answer.error or NOTHING, once=job.reason == "threshold")
        entry = self._record(job, draft, answer, context, before, now)
        if dry_run:
            shown = text_of(draft.summary["message"]) if draft.summary else ""
            return {"outcome": "would_compact", **entry, "summary": shown}
        return self._write(entry, draft, context, answer, started)

    def _pruned(self, context: Material, job: Job) -> Draft | None:
        if job.strategy not in (None, PRUNED):
            return None
        body = plan.prune(context.body, self.limits.window, int(self.limits.keep / context.ratio))
        changed = tuple(old for old, new in zip(context.body, body, strict=True) if old is not new)
        return Draft(PRUNED, tuple(body), changed, context.tokens(body)) if changed else None

    def _folded(
        self, context: Material, light: Sequence[Entry], room: Room, job: Job, before: int, *, announce: bool
    ) -> tuple[Draft | None, summary.Answer]:
        """Rungs 2 to 4. `light` is the context with its stubs; `announce` says before the call what will be folded."""
        cut = plan.fold(light, room.keep)
        if cut is None:
            return self._shortened(context, light, job), summary.Answer()
        if announce:
            self._emit(Compacting(job.reason, len(cut.folded), before, self.limits.window))
        answer = summary.Answer()
        if job.strategy != FALLBACK and job.ask:
            answer = self._ask(context, cut, room, job)
            if answer.text:
                draft = self._draft(SUMMARY, context, cut, room, job, answer.text)
                if draft.tokens < context.tokens(context.body):
                    return draft, answer
                answer = replace(answer, text="", verdict=replace(answer.verdict, reasons=("not_smaller",)))
        if job.strategy == SUMMARY or (job.reason == "manual" and job.strategy is None):
            return None, answer
        wide = plan.fold(light, room.wide) or cut
        return self._draft(FALLBACK, context, wide, room, job, ""), answer

    def _shortened(self, context: Material, light: Sequence[Entry], job: Job) -> Draft | None:
        if context.tokens(light) <= job.ceiling and not job.must:
            return None
        body = plan.shorten(light, max(0, int(job.goal / context.ratio) - context.fixed))
        changed = tuple(old for old, new in zip(context.body, body, strict=True) if old is not new)
        return Draft(SHORTENED, tuple(body), changed, context.tokens(body))

    def _draft(self, strategy: str, context: Material, cut: plan.Fold, room: Room, job: Job, written: str) -> Draft:
        """The summary message for a cut, and the context with it; what is kept is shortened where it must be."""
        first, last, earlier = covered(cut.folded)
        kept = cut.kept
        spare = int(job.ceiling / context.ratio) - context.fixed - room.record - FRAME_TOKENS - estimate(written)
        if plan.size(kept) > spare:
            aim = int(job.goal / context.ratio) - context.fixed - room.record - FRAME_TOKENS - estimate(written)
            kept = tuple(plan.shorten(kept, max(0, aim)))
        stays = {e.get("n") for e in kept if not e.get("pruned")}
        originals = [e for e in self._session.originals() if e.get("n") not in stays and plan.role(e) != "system"]
        gathered = record.gather(originals, pins(self._session.entries))
        present = "\n".join([written, *(text_of(e["message"]) for e in kept)])
        if earlier and estimate(earlier) > room.written * 2:
            earlier = plan.head_and_tail(earlier, room.written * 2)
        facts = record.compose(gathered, room.record, present)
        frame = summary.Frame(first, last, f"{self._session.id}.archive", recall=self.recall)
        message = {"role": "user", "content": summary.framed(frame, written, facts, earlier)}
        about = {"summary": True, "written": written or earlier, "covers": [first, last]}
        tokens = context.tokens(kept) + round(message_tokens(message) * context.ratio)
        return Draft(strategy, kept, cut.folded, tokens, {"type": "message", "message": message, **about})

    # -- the call

    def _ask(self, context: Material, cut: plan.Fold, room: Room, job: Job) -> summary.Answer:
        """A checked summary of the head: of the summary model where there is one, else, or if it fails, of the main."""
        gathered = record.gather(cut.folded)
        words = "\n".join(s.text for s in gathered.statements if s.kind == USER)
        source = summary.Source(plan.size(cut.folded), record.matter(gathered), words)
        wishes = "\n".join(filter(None, (self._instructions, job.wishes)))
        answer = summary.Answer()
        if self._summary_model is not None:
            answer = self._ask_one(self._summary_model, None, context, cut, room, source, wishes)
        if not answer.text:
            head = replay([*context.system, *(by_n(context.body, cut.head))])
            answer = self._ask_one(self._model, head, context, cut, room, source, wishes)
        return answer

    def _ask_one(
        self,
        model: Model,
        head: Sequence[Any] | None,
        context: Material,
        cut: plan.Fold,
        room: Room,
        source: summary.Source,
        wishes: str,
    ) -> summary.Answer:
        window = getattr(model, "window", None) or self.limits.window
        earlier = covered(cut.folded)[2]
        told = [(e.get("n", 0), e["message"]) for e in by_n(context.body, cut.folded) if not e.get("summary")]
        about: dict[str, Any] = {"cap": min(room.written, max(64, source.tokens // 2)), "wishes": wishes}
        about |= {"earlier": earlier, "ratio": context.ratio}
        answer = summary.ask(model, summary.requests_for(head, told, self.tools, window=window, **about), source)
        if "overflow" in answer.verdict.reasons:
            smaller = summary.requests_for(None, told, (), window=max(400, window // 2), **about)
            answer = summary.ask(model, smaller[-1:], source)
        return answer

    # -- on disk

    def _record(
        self, job: Job, draft: Draft, answer: summary.Answer, context: Material, before: int, now: guards.State
    ) -> dict[str, Any]:
        numbers = [e.get("n", 0) for e in draft.folded]
        entry: dict[str, Any] = {
            "reason": job.reason,
            "strategy": draft.strategy,
            "folded": [min(numbers), max(numbers)] if numbers else [],
            "kept": len(draft.body),
            "tokens": {"before": before, "after_estimate": draft.tokens},
            "checks": answer.verdict.as_json(),
            "guard": guards.remembered(now, before, context.ratio),
        }
        if answer.model:
            entry["model"] = answer.model
        if answer.usage is not None:
            entry["usage"] = answer.usage.as_json()
        if answer.error:
            entry["error"] = answer.error
        return entry

    def _write(
        self, entry: dict[str, Any], draft: Draft, context: Material, answer: summary.Answer, started: float
    ) -> dict[str, Any]:
        session = self._session
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        head = {"type": "compaction", "n": session.new_n(), "at": at}
        entry = head | entry | {"archive": session.next_archive(), "ms": round((time.monotonic() - started) * 1000)}
        summaries = [{**draft.summary, "n": session.new_n(), "at": at}] if draft.summary else []
        entries = [entry, *context.others, *context.system, *summaries, *draft.body]
        try:
            archive = session.rewrite(entries)
        except StorageError as error:
            return self._not("failed", f"The compaction could not be saved, the history is as it was: {error}")
        cost = self._price(answer.usage) if self._price and answer.usage else None
        after = len(context.system) + len(summaries) + len(draft.body)
        self._emit(Compacted(entry, len(context.system) + len(context.body), after, archive, cost))
        self._told = ""
        return {"outcome": "compacted", **entry}

    def _not(self, why: str, text: str, *, once: bool = False) -> dict[str, Any]:
        """Say that nothing was changed; `once`: the same thing is not said before every request."""
        if not once or self._told != text:
            self._emit(NotCompacted(why, text))
        if once:
            self._told = text
        return {"outcome": why, "text": text}


def sent(context: Material, draft: Draft) -> int:
    """Estimated tokens of the messages as a draft would have them sent: repaired, like those it would replace."""
    summaries = [draft.summary] if draft.summary else []
    return estimate_messages(replay([*context.system, *summaries, *draft.body]))


def covered(folded: Sequence[Entry]) -> tuple[int, int, str]:
    """First and last message that a fold stands for, earlier summaries included, and what those said."""
    numbers = [e.get("n", 0) for e in folded if not e.get("summary")]
    earlier = ""
    for entry in folded:
        if entry.get("summary"):
            numbers += [n for n in entry.get("covers", ()) if isinstance(n, int)]
            earlier = entry.get("written") or earlier
    return min(numbers, default=0), max(numbers, default=0), earlier


def pins(entries: Sequence[Entry]) -> list[str]:
    """What the user pinned (`--pin`): entries {"type": "pin", "text": ...}."""
    return [e["text"] for e in entries if e.get("type") == "pin" and isinstance(e.get("text"), str)]


def by_n(body: Sequence[Entry], wanted: Sequence[Entry]) -> list[Entry]:
    """The entries of `body` that `wanted` names: the same messages, without the stubs."""
    numbers = {e.get("n") for e in wanted}
    return [e for e in body if e.get("n") in numbers]
