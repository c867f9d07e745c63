"""What a session's figures are measured against: the window and trigger it would have now, and what tokens cost.

The same order of trust as in a run, but no server is asked and nothing is started: where only a server could say, the
careful default stands, and its source says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from agent.config import Settings
from agent.errors import AgentError
from agent.messages import Usage
from agent.tokens import limits_for
from agent.views.chart import Lines
from agent.views.stats import Price
from agent.wire import windows
from agent.wire.memory import Memory, default_path
from agent.wire.providers import BY_NAME, Target


def target_of(spec: str | None, settings: Settings, environ: Mapping[str, str]) -> Target:
    """Where a session's model name leads now; without a key for it, where it would lead."""
    from agent.cli.equipment import find_target

    try:
        found = find_target(spec or None, settings, environ)
    except AgentError:
        head, _, rest = (spec or "").partition("/")
        provider = BY_NAME.get(head)
        return Target(provider.name, provider.base_url, rest) if provider else Target("", "", spec or "")
    return Target("local", "http://127.0.0.1", found) if isinstance(found, str) else found


def lines_for(spec: str | None, settings: Settings, environ: Mapping[str, str]) -> Lines:
    """The window and the trigger for a model, from what is known here."""
    from agent.cli.equipment import WINDOW_MOST

    target = target_of(spec, settings, environ)
    learned = Memory(default_path(environ)).of(target.base_url, target.model)
    window = windows.window_for(target, stated=settings.stated_window, learned=learned)
    limits = limits_for(
        window.tokens, window.source, compact_at=settings.compact_at, max_output=settings.max_tokens, most=WINDOW_MOST
    )
    return Lines(limits.window, limits.trigger, window.source)


def price_of(spec: str | None, settings: Settings, environ: Mapping[str, str]) -> Price:
    """What a request of this session costs: by the name the server answered with, else by the one it was asked for."""
    target = target_of(spec, settings, environ)

    @lru_cache(maxsize=64)
    def known(model: str) -> windows.Price | None:
        return windows.price_for(target._replace(model=model or target.model)) or windows.price_for(target)

    def price(model: str, usage: Usage) -> float | None:
        found = known(model)
        return found.cost(usage.prompt, usage.completion, usage.cached) if found else None

    return price
