"""Whether the context has to be made smaller: what every turn asks, and nearly always with the answer no.

So this module is small and quick, and `agent.compaction`, which is neither, is loaded at the first yes. The gate may
say yes too often (the compactor looks again, and more closely), never too rarely. It does not know how a context is
made smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent.errors import ContextOverflow
from agent.messages import Model, Schema, Usage
from agent.session import Session
from agent.tokens import Limits, Size, context_size

if TYPE_CHECKING:
    from agent.compaction import Compactor

LONG = 2_048
"""Tokens: what is shorter is not refused for its length."""
NEAR = 0.75
"""An estimate is trusted up to this share of the trigger; above it the compactor counts."""


class Gate:
    """A `Compactor` that is made when it is first needed. `more` is what its constructor takes beside these."""

    def __init__(
        self, session: Session, model: Model, limits: Limits, tools: Sequence[Schema], *more: Any, **named: Any
    ) -> None:
        self._session, self._model, self._limits = session, model, limits
        self._tools = tuple(tools) if model.takes_tools else ()
        self._more, self._named = more, named
        self._compactor: Compactor | None = None
        self._measured: tuple[object, Size] | None = None

    @property
    def compactor(self) -> Compactor:
        """The compactor itself."""
        if self._compactor is None:
            from agent.compaction import Compactor

            self._compactor = Compactor(
                self._session, self._model, self._limits, self._tools, *self._more, **self._named
            )
        return self._compactor

    def offer(self, tools: Sequence[Schema]) -> None:
        """From now on requests carry these tools: sizes and the summary call's prefix follow."""
        self._tools = tuple(tools) if self._model.takes_tools else ()
        if self._compactor is not None:
            self._compactor.tools = self._tools

    @property
    def limits(self) -> Limits:
        """What holds now: a window may have been learnt."""
        return self._limits if self._compactor is None else self._compactor.limits

    @property
    def used(self) -> Usage | None:
        """What the summary calls have taken so far."""
        return None if self._compactor is None else self._compactor.used

    @property
    def cost(self) -> float | None:
        """The same in dollars, where the price is known."""
        return None if self._compactor is None else self._compactor.cost

    def make_room(self) -> bool:
        """Before a request. True when the view changed. Raises: `LimitError`."""
        return self._near_trigger() and self.compactor.make_room()

    def after_turn(self) -> bool:
        """After the final answer: the same."""
        return self._near_trigger() and self.compactor.after_turn()

    def after_overflow(self, error: ContextOverflow, attempt: int) -> None:
        """The server refused the context as too long. Raises: `LimitError`."""
        self.compactor.after_overflow(error, attempt)

    def after_refusal(self) -> bool:
        """The server refused the context for no known reason, perhaps its length. True when the view changed."""
        return self.compactor.after_refusal()

    def may_be_too_long(self) -> bool:
        """Whether the context is long, and longer than all that this model took since the last compaction: it may be refused
        for that. What was tried in vain since its last answer is not tried again."""
        from agent.compaction.guards import taken

        entries = self._session.entries
        for entry in reversed(entries):
            if entry.get("type") == "undo" and entry.get("refused"):
                return False
            if entry.get("type") == "message" and entry["message"].get("role") == "assistant":
                break
        took = taken(self._session.meta, entries, self._model.name)
        return self.size().tokens >= max(LONG, took or 2 * LONG)

    def now(self, **wishes: Any) -> dict[str, Any]:
        """Compact because the user asks."""
        return self.compactor.now(**wishes)

    def size(self) -> Size:
        """The size of the next request: measured once for the same entries and tools."""
        entries = self._session.entries
        state = (id(entries), len(entries), self._tools)
        if self._measured is None or self._measured[0] != state:
            size = context_size(self._session.meta, entries, self._model.name, self._tools)
            self._measured = (state, size)
        return self._measured[1]

    def _near_trigger(self) -> bool:
        """Whether the size is near enough to what is allowed that the compactor must look."""
        limits = self.limits
        bound = limits.window if limits.trigger is None else limits.trigger
        size = self.size()
        return size.tokens >= (bound if size.reported else NEAR * bound)
