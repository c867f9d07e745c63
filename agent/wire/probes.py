"""Asking a server for the window it really uses, where that is cheap and known to work.

A run puts one question at most, and which is remembered (`next_question`); `agent doctor` puts all, first answer wins.
A figure that is only the model's own limit (n_ctx_train, a catalogue value) is not taken from local servers: what
counts is what was allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import orjson

from agent.errors import AgentError
from agent.wire.providers import BY_NAME, Target, provider_at
from agent.wire.transport import Transport

ASK_SECONDS = 2.0
UNANSWERED_SECONDS = 86400
"""How long a question that was not answered is not put again."""
_FIELDS = (
    ("meta", "n_ctx"), ("loaded_context_length",), ("max_model_len",), ("context_window",), ("context_length",),
    ("max_context_length",), ("max_input_tokens",), ("max_context_window_tokens",), ("inputTokenLimit",),
    ("capabilities", "limits", "max_prompt_tokens"), ("capabilities", "limits", "max_context_window_tokens"),
    ("top_provider", "context_length"),
)  # fmt: skip


def window_in_models(listing: Any, model: str) -> int | None:
    """The window of `model` in an answer of /models, in any of its shapes; a single entry stands for any name."""
    entries = list(_entries(listing))
    named = [e for e in entries if model in (e.get("id"), e.get("name"), e.get("key"), e.get("model"))]
    for entry in named or (entries if len(entries) == 1 else []):
        best = entry.get("top_provider")
        if isinstance(best, dict) and _count(best.get("context_length")):
            return _count(best["context_length"])
        for path in _FIELDS:
            found = _count(_at(entry, path))
            if found:
                return found
    return None


def model_names(listing: Any) -> list[str]:
    """The names in an answer of /models."""
    names = (e.get("id") or e.get("name") or e.get("key") for e in _entries(listing))
    return [n for n in names if isinstance(n, str)]


def _entries(listing: Any) -> Iterator[dict[str, Any]]:
    if isinstance(listing, dict):
        listing = next((listing[k] for k in ("data", "models") if isinstance(listing.get(k), list)), [])
    for entry in listing if isinstance(listing, list) else []:
        if isinstance(entry, dict):
            yield entry


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


# ---- which question ----


def questions(target: Target) -> tuple[str, ...]:
    """The questions that make sense for this server, the most telling first; () for one known not to tell."""
    provider = BY_NAME.get(target.provider) or provider_at(target.base_url)
    if provider is not None and not provider.asks:
        return ()
    if not target.loopback:
        return ("models",)
    return _OF_LOCAL.get(target.provider) or (tuple(_ASKED) if not target.provider else ("models", "props"))


def next_question(target: Target, known: Mapping[str, Any], now: float) -> str | None:
    """The one question that is worth a run's time: what answered before, else one that was not tried within a day.

    `known` is `Memory.of(...)`. A local server of a known kind is always asked its own question: what it has loaded
    changes. Of any other, each run tries one more, until one answers or all have failed.
    """
    names = questions(target)
    if target.loopback and target.provider:
        return names[0] if names else None
    if known.get("question") in names:
        return str(known["question"])
    return next((name for name in names if name not in _unanswered(known, now)), None)


def outcome(target: Target, known: Mapping[str, Any], question: str, answer: int | None, now: int) -> dict[str, Any]:
    """What `Memory.learn` is to keep of a question and its answer; a local server's figure is asked each time, and
    kept for those who only look (`agent models`, `sessions stats`)."""
    if answer is None:
        return {"question": None, "unanswered": [*_unanswered(known, now), question], "unanswered_at": now}
    kept = {"asked": answer} | ({} if target.loopback else {"asked_at": now})
    return {"question": question, "unanswered": None, "unanswered_at": None, **kept}


def _unanswered(known: Mapping[str, Any], now: float) -> list[Any]:
    """The questions that failed lately."""
    at, names = _count(known.get("unanswered_at")) or 0, known.get("unanswered")
    return names if isinstance(names, list) and now - at < UNANSWERED_SECONDS else []


# ---- effects ----


def ask_window(transport: Transport, target: Target) -> int | None:
    """The window in tokens that the server states for this model, by whichever question it answers, or None."""
    for name in questions(target):
        try:
            found = ask(transport, target, name)
        except AgentError:
            found = None
        if found:
            return found
    return None


def ask(transport: Transport, target: Target, name: str) -> int | None:
    """Put one question. Raises: `AgentError` when the server cannot answer now (not reached, 5xx)."""
    return _ASKED[name](transport, target)


def list_models(transport: Transport, target: Target) -> list[str] | None:
    """The model names the server lists; None when it does not answer."""
    try:
        listing = _json(transport, "GET", target.base_url + "/models")
    except AgentError:
        return None
    return None if listing is None else model_names(listing)


def _models(transport: Transport, target: Target) -> int | None:
    return window_in_models(_json(transport, "GET", target.base_url + "/models"), target.model)


def _ollama(transport: Transport, target: Target) -> int | None:
    """What is allocated while the model is loaded, else the num_ctx its file sets."""
    root, model = _root(target), target.model
    for entry in _entries(_json(transport, "GET", root + "/api/ps")):
        if model in (entry.get("name"), entry.get("model"), str(entry.get("name")).removesuffix(":latest")):
            found = _count(entry.get("context_length"))
            if found:
                return found
    shown = _json(transport, "POST", root + "/api/show", orjson.dumps({"model": model}))
    for line in str(_at(shown, ("parameters",)) or "").splitlines():
        name, _, value = line.strip().partition(" ")
        if name == "num_ctx" and value.strip().isdigit():
            return int(value)
    return None


def _lmstudio(transport: Transport, target: Target) -> int | None:
    entry = _json(transport, "GET", f"{_root(target)}/api/v0/models/{quote(target.model, safe='/')}")
    return _count(_at(entry, ("loaded_context_length",)))


def _plain(path: str, field: tuple[str, ...]) -> Callable[[Transport, Target], int | None]:
    """A question whose answer holds the figure in one place."""
    return lambda transport, target: _count(_at(_json(transport, "GET", _root(target) + path), field))


_ASKED: dict[str, Callable[[Transport, Target], int | None]] = {
    "models": _models,
    "props": _plain("/props", ("default_generation_settings", "n_ctx")),
    "lmstudio": _lmstudio,
    "ollama": _ollama,
    "info": _plain("/info", ("max_total_tokens",)),
    "model": _plain("/v1/model", ("parameters", "max_seq_len")),
    "server_info": _plain("/get_server_info", ("context_length",)),
}
_OF_LOCAL = {
    "ollama": ("ollama", "models"),
    "lmstudio": ("lmstudio", "models"),
    "llamacpp": ("props", "models"),
    "local": ("props", "models"),
}


def _root(target: Target) -> str:
    return target.base_url.removesuffix("/v1")


def _json(transport: Transport, method: str, url: str, body: bytes = b"") -> Any:
    """The JSON of an answer, None for a refusal or what is no JSON. Raises: `AgentError`, also for 5xx."""
    status, data = transport.ask(method, url, ASK_SECONDS, body)
    if status >= 500:
        raise AgentError(f"{url} answered {status}")
    try:
        return orjson.loads(data) if status == 200 else None
    except ValueError:
        return None
