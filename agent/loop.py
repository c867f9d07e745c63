"""The turn: from a prompt to its final answer, one step at a time.

A *step* is one model call and the tool calls it asked for. The order of bytes on disk is the order of events: the
prompt before the request, the answer before its tools run, each result as it comes. So a process killed at any moment
leaves a session that tells what happened, and nothing that ran is ever run again by us.

The loop knows the model as a protocol, the tools as a toolbox and the screen as `emit`; it cannot import the client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent.errors import (
    AgentError,
    APIError,
    AuthError,
    ContextOverflow,
    LimitError,
    StorageError,
    TemporaryError,
)
from agent.events import Answered, Budget, Emit, Notice, Streamed, ToolFinished, ToolStarted, TurnFinished
from agent.gate import Gate
from agent.log.entries import Entry
from agent.messages import CostOf, Message, Model, Reply, Request, ToolCall, Usage, text_of, tool_calls
from agent.session import Session
from agent.tools import Toolbox, ToolResult
from agent.wire import FILTERED

OVERFLOW_ATTEMPTS = 4
"""How often one request is compacted and sent again before the run gives up (exit 6)."""

CUT_ANSWERS = 3
"""So many answers in a row, cut off in the middle of a call, end the turn (exit 6): the cap is too small."""

NOT_RUN_CUT = (
    "Not run: the answer was cut off by the token limit before this call was complete. "
    "Nothing was changed. Do the work in smaller parts."
)


NOTHING_USED = Usage(0, 0, None)


def no_price(usage: Usage) -> float | None:
    """The price of a model that has none known."""
    return None


@dataclass
class Turn:
    """The collaborators of one turn and what it has used so far."""

    session: Session
    model: Model
    toolbox: Toolbox
    compactor: Gate
    emit: Emit
    max_steps: int = 100
    max_tokens: int | None = None
    response_format: dict[str, Any] | None = None
    price: CostOf = no_price
    after_compaction: Callable[[], None] = lambda: None
    """Called when the context has changed: the tools may have, too."""
    clock: Callable[[], float] = time.monotonic
    steps: int = 0
    cut_answers: int = 0
    cap: int | None = None
    """What was sent as the cap on the last answer."""
    waited: float = 0.0
    """Seconds that the model took for its answers."""
    total_usage: Usage = NOTHING_USED
    last_usage: Usage | None = None
    cost: float | None = None
    answer: str = ""
    finish_reason: str | None = None
    denials: list[dict[str, Any]] = field(default_factory=list)

    def run(self, prompt: str | Message) -> TurnFinished:
        """Take one turn. The prompt and everything after it is on disk when this returns or raises; `compact_after` is to follow.

        Raises: LimitError (steps, context), AuthError, APIError, TemporaryError, StorageError, KeyboardInterrupt.
        """
        message = prompt if isinstance(prompt, dict) else {"role": "user", "content": prompt}
        self._drop_repeated(message)
        asked = self.session.append({"type": "message", "message": message})
        try:
            self._steps()
        except AgentError as error:
            self._note_failure(asked["n"], error)
            raise
        finally:
            self.denials = list(self.toolbox.denials)
        return self.summary()

    def compact_after(self) -> TurnFinished:
        """Make room for the next turn. This one is over: whatever stops the compaction, the answer stands."""
        try:
            if self.compactor.after_turn():
                self.after_compaction()
        except KeyboardInterrupt:
            text = "the compaction after the answer was interrupted; the next turn compacts if it is still needed"
            self.emit(Notice("warning", "compaction_stopped", text))
        return self.summary()

    def summary(self) -> TurnFinished:
        """What the turn came to so far, its compactions included."""
        folding = self.compactor.cost
        return TurnFinished(
            id=self.session.id,
            steps=self.steps,
            usage=self.last_usage,
            total=self.total_usage,
            summaries=self.compactor.used,
            finish_reason=self.finish_reason,
            seconds=self.waited,
            answer=self.answer,
            denials=self.denials,
            window=self.compactor.limits.window,
            cost=self.cost if folding is None else (self.cost or 0.0) + folding,
        )

    def _steps(self) -> None:
        self._show_budget_before()
        while True:
            self._make_room()
            reply = self._ask()
            self._take(reply)
            if reply.error is not None:
                self._make_room_after(reply.error)
                raise reply.error
            calls = tool_calls(reply.message)
            if not calls:
                self._warn_about_ending(reply)
                return
            for call in calls:
                self._run_tool(call, cut=bool(reply.cut_calls))
            self.cut_answers = self.cut_answers + 1 if reply.cut_calls else 0
            if self.cut_answers >= CUT_ANSWERS:
                text = f"{CUT_ANSWERS} answers in a row were cut off by the token limit in the middle of a tool call"
                raise LimitError(text, "Raise --max-tokens", kind="cut_answers")
            if self.steps >= self.max_steps:
                steps = f"{self.steps} step{'s' * (self.steps != 1)}"
                raise LimitError(f"Stopped after {steps} (--max-steps {self.max_steps})", kind="max_steps")

    # ---- one step ----

    def _ask(self) -> Reply:
        """Send the context; on an overflow make it smaller and send the same request again. A refusal without a known
        reason may be one: a much shorter context is tried once. Where the server refuses to the end, or the guess is not
        borne out, the history is put back: it was made smaller for nothing."""
        attempt = 0
        doubted: APIError | None = None
        before: list[Entry] = []
        while True:
            self.cap = self._cap()
            request = Request(
                self.session.view(),
                self.toolbox.schemas(),
                max_tokens=self.cap,
                response_format=self.response_format,
            )
            try:
                return self.model.complete(request, lambda delta: self.emit(Streamed(delta)))
            except ContextOverflow as error:
                before, doubted, attempt = before or list(self.session.entries), None, attempt + 1
                try:
                    self._shrink(error, attempt)
                except LimitError:
                    self._put_back(before)
                    raise
            except BaseException as error:
                refused = isinstance(error, APIError) and not isinstance(error, TemporaryError)
                if doubted is not None or (before and refused):
                    self._put_back(before)
                    raise (doubted if doubted and getattr(error, "kind", "") == "bad_request" else error) from None
                before = list(self.session.entries)
                if not isinstance(error, APIError) or not self._shortened(error):
                    raise
                doubted = error

    def _shrink(self, error: ContextOverflow, attempt: int) -> None:
        """Make the context smaller, harder at each attempt. Raises: LimitError, StorageError."""
        if attempt > OVERFLOW_ATTEMPTS:
            raise LimitError(
                f"The context cannot be made to fit {self.model.name}: {error.text}",
                "Use a model with a larger window (-m), or start a new session",
            ) from error
        self.compactor.after_overflow(error, attempt)
        self.after_compaction()
        if self.compactor.size().tokens > self.compactor.limits.window:
            self._make_room()

    def _shortened(self, error: APIError) -> bool:
        """Whether a context that may have been refused for its length was made much shorter. One that holds images may have
        been refused for these."""
        images = any(isinstance(message.get("content"), list) for message in self.session.view())
        if error.kind != "bad_request" or error.parameter or images or not self.compactor.may_be_too_long():
            return False
        text = "the server refused the request without a reason known here; it may be too long, so a much shorter context is tried"
        self.emit(Notice("warning", "refused_long", text))
        if not self.compactor.after_refusal():
            return False
        self.after_compaction()
        return True

    def _put_back(self, before: list[Entry]) -> None:
        """The history as it was before it was made smaller in vain, where that can still be written."""
        from agent.log.archive import restore

        try:
            if restore(self.session, before):
                self.emit(Notice("warning", "taken_back", "the shorter context did not help; the history is restored"))
        except StorageError as error:
            text = f"the shorter context did not help and the history could not be restored: {error}; later: agent sessions undo"
            self.emit(Notice("warning", "not_taken_back", f"{text} {self.session.id}"))
        self.after_compaction()

    def _make_room(self) -> None:
        """Before a request; once more where a compaction brought a tool with it that does not fit."""
        while self.compactor.make_room():
            self.after_compaction()
            if self.compactor.size().tokens <= self.compactor.limits.window:
                return

    def _make_room_after(self, error: BaseException) -> None:
        """An overflow in the middle of an answer: what was shown cannot be taken back, but the next turn shall fit."""
        if isinstance(error, ContextOverflow):
            self.compactor.after_overflow(error, 1)
            self.after_compaction()

    def _cap(self) -> int | None:
        """The user's cap on the answer, lowered to what the window still holds: one that is known, and holds the context."""
        limits = self.compactor.limits
        room = limits.window - self.compactor.size().tokens
        if self.max_tokens is None or room <= 0 or limits.source == "default":
            return self.max_tokens
        return min(self.max_tokens, max(16, room))

    def _take(self, reply: Reply) -> None:
        """Put an answer on disk, then show it."""
        self.steps += 1
        self.waited += reply.seconds
        self.finish_reason = reply.finish_reason
        self.answer = text_of(reply.message)  # before the append: a full disk must not cost the answer too
        entry = self.session.append(answer_entry(reply, self.session.next_request()))
        self._count(reply.usage)
        self.emit(Answered(reply.message, entry["n"], reply.usage, reply.finish_reason, reply.complete, reply.model))
        if reply.usage is not None:
            self.emit(self._budget(reply.usage.prompt, estimated=False))

    def _run_tool(self, call: ToolCall, cut: bool) -> None:
        started = self.clock()
        self.emit(ToolStarted(call.id, call.name, self.toolbox.summary(call)))
        stopped: BaseException | None = None
        try:
            result = ToolResult(NOT_RUN_CUT, ok=False) if cut else self.toolbox.run(call)
        except KeyboardInterrupt as stop:
            result, stopped = ToolResult(self.toolbox.unfinished(), ok=False, detail={"interrupted": True}), stop
            if not result.text:
                raise
        text, ok, denied, detail = result
        seconds = self.clock() - started
        about = {"name": call.name, "ok": ok, "seconds": round(seconds, 3), **detail}
        if denied:
            about["denied"] = True
        message = {"role": "tool", "tool_call_id": call.id, "content": text}
        self.session.append({"type": "message", "message": message, "tool": about})
        self.emit(ToolFinished(call.id, call.name, ok, seconds, text, denied, detail))
        if stopped is not None:
            raise stopped

    # ---- what is told ----

    def _show_budget_before(self) -> None:
        size = self.compactor.size()
        self.emit(self._budget(size.tokens, estimated=True))
        trigger = self.compactor.limits.trigger
        if trigger is not None and size.tokens >= trigger:
            where = "over" if size.tokens > self.compactor.limits.window else "near"
            text = (
                f"the context is {where} the window: about {size.tokens:,} tokens, and compaction starts at {trigger:,}"
            )
            self.emit(Notice("warning", "near_window", text))

    def _budget(self, used: int, *, estimated: bool) -> Budget:
        limits = self.compactor.limits
        return Budget(used, limits.window, limits.source, estimated, self.model.name)

    def _count(self, usage: Usage | None) -> None:
        self.last_usage = usage
        if usage is None:
            return
        self.total_usage = self.total_usage.plus(usage)
        cost = self.price(usage)
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost

    def _warn_about_ending(self, reply: Reply) -> None:
        """Say what is not as it should be with a last answer. Raises: APIError for one that a filter left empty."""
        reason = (reply.finish_reason or "").lower()
        if reply.truncated:
            why = "(--max-tokens)" if self.cap == self.max_tokens else "(what the window had room for)"
            limit = f" of {self.cap} {why}" if self.cap else ""
            self.emit(Notice("warning", "cut", f"the answer was cut off by the token limit{limit}"))
        elif any(mark in reason for mark in FILTERED):
            text = f"The provider's filter ended the answer (finish_reason={reply.finish_reason})"
            if not self.answer.strip():
                raise APIError(text, "Rephrase the prompt", kind="content_filter", status=200)
            self.emit(Notice("warning", "filtered", text))

    def _drop_repeated(self, message: Message) -> None:
        """A prompt that is given again, since nothing at all came of it, is sent once."""
        last = next((e for e in reversed(self.session.entries) if e.get("type") in ("message", "failed")), {})
        if last.get("message") == message and not last.get("summary"):
            told = {"kind": "repeated", "text": "the same prompt was given again"}
            self.session.append({"type": "failed", "prompt": last["n"], "error": told})

    def _note_failure(self, prompt: int, error: AgentError) -> None:
        """Mark a turn that the server refused, so that the next one does not send a poisoned prompt again."""
        if isinstance(error, APIError | AuthError | LimitError) and not self.steps:
            failed = {"kind": error.kind, "text": error.text}
            self.session.append({"type": "failed", "prompt": prompt, "error": failed})


def answer_entry(reply: Reply, request: int) -> dict[str, Any]:
    """The entry of an assistant message: what it said, what it cost, and the proof of what it saw."""
    proof: dict[str, Any] = {"k": request, "sha256": reply.sent.sha256, "messages": reply.sent.count}
    if reply.sent.dialect:
        proof["dialect"] = reply.sent.dialect
    entry: dict[str, Any] = {
        "type": "message",
        "message": reply.message,
        "model": reply.model,
        "finish_reason": reply.finish_reason,
    }
    if reply.usage is not None:
        entry["usage"] = reply.usage.as_json()
    entry["request"] = proof
    if not reply.complete:
        entry["interrupted"] = True
    return entry
