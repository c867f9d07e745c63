"""How large a model's window is, what it costs, and who says so.

Order of trust: flag, CONTEXT_WINDOW, config, learned from this server, asked of this server, the offline table, the
model's family, a careful default (8,192 tokens on this machine, 32,768 elsewhere). Every answer carries its source. The
table (`models.json`, beside this file, with its licence) is read only when nothing before it answered. Prices are US
dollars per million tokens, and shown only where the table has them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from agent.wire.providers import Target

LOCAL_DEFAULT = 8192
REMOTE_DEFAULT = 32768
ASKED_FOR_SECONDS = 7 * 86400
"""How long a hosted server's answer is believed; one on this machine is asked each time."""


class Window(NamedTuple):
    """`tokens` for prompt and answer together (or for the prompt, where that is what is limited); `source` one of
    "flag", "CONTEXT_WINDOW", "config", "learned", "server", "table", "family", "default"."""

    tokens: int
    source: str


class Price(NamedTuple):
    """US dollars per million tokens; `cached` is for prompt tokens served from a cache."""

    prompt: float
    completion: float
    cached: float | None = None

    def cost(self, prompt: int, completion: int, cached: int | None = None) -> float:
        """Dollars for one request; `cached` is part of `prompt`."""
        saved = cached or 0
        low = self.prompt if self.cached is None else self.cached
        return ((prompt - saved) * self.prompt + saved * low + completion * self.completion) / 1e6


class Row(NamedTuple):
    """One model of the table, in tokens; None where the sources do not say."""

    window: int | None
    max_input: int | None
    price: Price | None


def window_for(
    target: Target,
    *,
    stated: tuple[int, str] | None = None,
    learned: Mapping[str, Any] | None = None,
    ask: Callable[[], int | None] | None = None,
    table: Mapping[str, Any] | None = None,
    now: float | None = None,
) -> Window:
    """The window by the order of trust. `stated` is `Settings.stated_window`, `learned` is `Memory.of(...)`; `ask` is
    called only when it is its turn, and its answer is the caller's to keep (`learned["asked"]`, `learned["asked_at"]`)."""
    if stated:
        return Window(*stated)
    known = learned or {}
    seen = [n for n in (_count(known.get("window")), _count(known.get("max_input"))) if n]
    if seen:
        return Window(min(seen), "learned")
    fresh = (now or time.time()) - (_count(known.get("asked_at")) or 0) < ASKED_FOR_SECONDS
    fresh = ask is None if target.loopback else fresh
    asked = _count(known.get("asked")) if fresh else None
    if asked is None and ask is not None:
        asked = ask()
    if asked:
        return Window(asked, "server")
    row = look_up(target, table)
    if row is not None and (row.window or row.max_input):
        return Window(min(n for n in (row.window, row.max_input) if n), "table")
    family = family_window(target.model)
    if family and not target.loopback:
        return Window(family, "family")
    return Window(LOCAL_DEFAULT if target.loopback else REMOTE_DEFAULT, "default")


def price_for(target: Target, table: Mapping[str, Any] | None = None) -> Price | None:
    """What the model costs at this provider, or None. A server on this machine has no price."""
    if target.loopback or not target.provider:
        return None
    row = look_up(target, table, own_provider=True)
    return row.price if row else None


def look_up(target: Target, table: Mapping[str, Any] | None = None, *, own_provider: bool = False) -> Row | None:
    """The table's row for a model: this provider's, else (unless `own_provider`) the one under the bare name."""
    if target.loopback:
        return None
    table = load_table() if table is None else table
    name = target.model.lower()
    keys = [f"{target.provider}/{name}"] if target.provider else []
    bare = name.rpartition("/")[2]
    if not own_provider:
        keys += [name, bare, bare.partition(":")[0]]
    for key in [*keys, *(re.sub(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest|\d{4})$", "", k) for k in keys)]:
        if key in table:
            window, most, _, *costs = table[key]
            cached = costs[2] if len(costs) > 2 else None
            return Row(window, most, Price(costs[0], costs[1], cached) if costs else None)
    return None


def family_window(model: str) -> int | None:
    """A cautious guess from a model's name, in tokens; None for a name of no known family."""
    stated = re.search(r"[-_](\d{1,4})k(?![a-z0-9])", model.lower())
    if stated and int(stated[1]) >= 4:
        return int(stated[1]) * 1000
    name = model.lower().rpartition("/")[2]
    return next((size for start, size in _FAMILIES if name.startswith(start)), None)


_FAMILIES = (
    ("gpt-5", 272000), ("gpt-4.1", 1000000), ("gpt-4o", 128000), ("gpt-4-turbo", 128000), ("gpt-4", 8192), ("gpt-3.5", 16385),
    ("o1", 128000), ("o3", 200000), ("o4", 200000), ("claude", 200000), ("gemini", 1000000), ("deepseek", 128000),
    ("kimi", 256000), ("moonshot", 128000), ("qwen3", 128000), ("qwen", 32768), ("glm", 128000), ("grok", 128000),
    ("minimax", 192000), ("mistral", 128000), ("devstral", 128000), ("codestral", 128000), ("llama-3", 128000),
    ("llama3", 128000),
)  # fmt: skip


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


# ---- effects ----

_loaded: dict[str, Any] = {}


def load_table() -> Mapping[str, Any]:
    """The offline table by "provider/model" and by bare name; {} where the file cannot be read."""
    if not _loaded:
        try:
            with open(os.path.join(os.path.dirname(__file__), "models.json"), "rb") as file:
                _loaded.update(orjson.loads(file.read())["models"])
        except (OSError, ValueError, KeyError):
            pass
    return _loaded
