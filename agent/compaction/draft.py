"""Drafts: contexts that could replace the present one, from the ladder's steps down to the least that can be sent.

A draft is messages and what the record of them will say; nothing is written here and no model is asked. Where even
the shortened draft is more than fits, `fitting` goes on down: a smaller record, a line instead of it, none, and at last
the last prompt and step by themselves, head and tail. Sizes are tokens of the model at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from agent.compaction import plan
from agent.compaction.frame import brief, framed
from agent.compaction.past import Past
from agent.compaction.room import FRAME_TOKENS, Job, Material, Room, Weigh
from agent.log.entries import Entry, replay
from agent.messages import Schema, images, text_of
from agent.tokens import Limits, Measure, estimate, estimate_messages, message_tokens

PRUNED, SUMMARY, FALLBACK, SHORTENED = "pruned", "window_plus_summary", "raw_fallback", "shortened"
STRATEGIES = (PRUNED, SUMMARY, FALLBACK)
"""What `strategy` may force; `shortened` is where every strategy ends when a message is itself too long."""

LEAST_RECORD = 4
"""What is kept word for word is not cut before the record is down to this part of its share."""
ANSWER = 128
"""Tokens: a quarter of it is left for an answer, at most, where the window is nearly full."""


@dataclass(frozen=True)
class Draft:
    """A context that could replace the present one: its messages, and what the record of it will say."""

    strategy: str
    body: tuple[Entry, ...]
    folded: tuple[Entry, ...]
    tokens: int
    summary: Entry | None = None

    @property
    def lead(self) -> list[Entry]:
        """The summary message, as a list."""
        return [self.summary] if self.summary else []

    def cuts_prompt(self, before: Sequence[Entry]) -> str:
        """What of the last prompt is left out, in words; "" where it is as it was `before`."""
        was, now = (plan.last_prompt(body).get("message", {}) for body in (before, self.body))
        unseen = len(images(was)) - len(images(now))
        if unseen > 0:
            return f"{unseen} image{'s' * (unseen > 1)} of the prompt"
        size = len(text_of(was))
        left = f"the middle of the prompt ({size:,} characters): the model sees only its beginning and end"
        return left if len(text_of(now)) < size else ""


def sent(context: Material, draft: Draft, tools: Sequence[Schema] = (), measure: Measure = estimate) -> int:
    """Tokens of the messages as a draft would have them sent: repaired, like those it would replace."""
    return estimate_messages(replay([*context.system, *draft.lead, *draft.body]), tools, measure)


def framing(cut: plan.Fold, written: str, text: str, role: str) -> Entry:
    """The entry of the summary message: what it says, and for later compactions what it stands for."""
    first, last, earlier = cut.covers
    about = {"summary": True, "written": written or earlier, "covers": [first, last]}
    return {"type": "message", "message": {"role": role, "content": text}, **about}


# ---- the steps ----


def pruned(context: Material, job: Job, limits: Limits) -> Draft | None:
    """Stubs for stale results; None when there is none or another strategy is forced."""
    if job.strategy not in (None, PRUNED):
        return None
    body = plan.prune(context.body, limits.window, int(limits.keep / context.ratio))
    changed = tuple(old for old, new in zip(context.body, body, strict=True) if old is not new)
    return Draft(PRUNED, tuple(body), changed, context.tokens(body)) if changed else None


def shortened(context: Material, light: Sequence[Entry], job: Job) -> Draft | None:
    """Head and tail of what is too long; None when it is not."""
    if context.tokens(light) <= job.most and not job.must:
        return None
    body = plan.shorten(light, max(0, int(job.ceiling / context.ratio) - context.fixed))
    changed = tuple(old for old, new in zip(context.body, body, strict=True) if old is not new)
    return Draft(SHORTENED, tuple(body), changed, context.tokens(body))


def drafted(
    strategy: str,
    context: Material,
    cut: plan.Fold,
    room: Room,
    job: Job,
    past: Past,
    written: str = "",
    *,
    strictly: bool = False,
) -> Draft:
    """The summary message for a cut, and the context with it; where it is too much the record becomes smaller, and only
    then is shortened what is kept. `strictly`: the record keeps to its room, pins or no."""
    kept, size, record = cut.kept, plan.size(cut.kept), room.record
    taken = context.fixed + FRAME_TOKENS + estimate(written)
    free = int(job.most / context.ratio) - taken - size
    if free < record:
        record = max(free, record // LEAST_RECORD)
    if free < record:
        whole, prompt = kept, plan.last_prompt(kept)
        for most in (job.ceiling, job.most - job.most // 16):  # the prompt is worth more room than results are
            kept = tuple(plan.shorten(whole, max(0, int(most / context.ratio) - taken - record)))
            if plan.last_prompt(kept) is prompt:
                break
        size = plan.size(kept)
    earlier = plan.head_and_tail(cut.covers[2], room.written * 2)
    facts = past.record_beside(kept).within(record, written, strictly=strictly)
    lead = framing(cut, written, framed(past.frame(cut), written, facts, earlier), past.role)
    tokens = round((context.fixed + size) * context.ratio) + round(message_tokens(lead["message"]) * context.ratio)
    return Draft(strategy, kept, cut.folded, tokens, lead)


# ---- where none of them fits ----


def fitting(context: Material, draft: Draft | None, room: Room, job: Job, past: Past, weigh: Weigh) -> Draft | None:
    """The draft if it fits `job.fits`, else the first that does with less and less in it, else the smallest.

    None when there is nothing smaller than the present context. Room for a short answer is left where there is any.
    """
    free = job.fits - weigh(e["message"] for e in context.system)
    present, least = estimate_messages(replay([*context.system, *context.body])), None
    for each in chain([draft] if draft else (), _less(context, room, job, past, free)):
        if sent(context, each) >= present:
            continue
        each = replace(each, tokens=weigh(replay([*context.system, *each.lead, *each.body])))
        least = each if least is None or each.tokens < least.tokens else least
        if each.tokens <= job.fits - max(0, min(free, ANSWER)) // 4:
            return each
    return least


def _less(context: Material, room: Room, job: Job, past: Past, free: int) -> Iterator[Draft]:
    """The last prompt and step with a smaller record, with a line for it, with none; at last they are shortened."""
    cut = plan.last(context.body)
    line = [framing(cut, "", brief(past.frame(cut)), past.role)] if cut.folded else []
    if cut.folded:
        for share in (2, 4):
            yield drafted(FALLBACK, context, cut, room._replace(record=room.record // share), job, past, strictly=True)
        yield Draft(FALLBACK, cut.kept, cut.folded, 0, *line)
        yield Draft(FALLBACK, cut.kept, cut.folded, 0)
    for lead in [line, []] if line else [[]]:
        for quarters in range(4, -1, -1):
            kept = tuple(plan.shorten(cut.kept, (free - plan.size(lead)) * quarters // 4, plan.LEAST))
            cropped = tuple(old for old, new in zip(cut.kept, kept, strict=True) if old is not new)
            yield Draft(SHORTENED, kept, cut.folded + cropped, 0, *lead)
