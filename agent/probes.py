"""Asking a server for the window it really uses, where that is cheap and known to work.

One question for hosted providers that tell it in /models; for servers on this machine a few more, first answer wins.
A figure that is only the model's own limit (n_ctx_train, a catalogue value) is not taken from local servers: what
counts is what was allocated. Never raises; no answer is None.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import orjson

from agent.errors import AgentError
from agent.providers import BY_NAME, Target, provider_at
from agent.transport import Transport

ASK_SECONDS = 2.0
_FIELDS = (
    ("meta", "n_ctx"), ("loaded_context_length",), ("max_model_len",), ("context_window",), ("context_length",),
    ("max_context_length",), ("max_input_tokens",), ("max_context_window_tokens",), ("inputTokenLimit",),
    ("capabilities", "limits", "max_prompt_tokens"), ("capabilities", "limits", "max_context_window_tokens"),
    ("top_provider", "context_length"),
)  # fmt: skip
_LOCAL_QUESTIONS = (
    ("GET", "/props", ("default_generation_settings", "n_ctx")),
    ("GET", "/info", ("max_total_tokens",)),
    ("GET", "/v1/model", ("parameters", "max_seq_len")),
    ("GET", "/get_server_info", ("context_length",)),
)


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


# ---- effects ----


def ask_window(transport: Transport, target: Target) -> int | None:
    """The window in tokens that the server states for this model, or None."""
    provider = BY_NAME.get(target.provider) or provider_at(target.base_url)
    if provider is not None and not provider.asks:
        return None
    root = target.base_url.removesuffix("/v1")
    if target.loopback:
        found = _ollama(transport, root, target.model) if target.provider == "ollama" else None
        found = found or _lmstudio(transport, root, target.model) if target.provider in ("", "lmstudio") else found
        if found:
            return found
    found = window_in_models(_json(transport, "GET", target.base_url + "/models"), target.model)
    if found or not target.loopback:
        return found
    for method, path, field in _LOCAL_QUESTIONS:
        found = _count(_at(_json(transport, method, root + path), field))
        if found:
            return found
    return _ollama(transport, root, target.model) if not target.provider else None


def list_models(transport: Transport, target: Target) -> list[str] | None:
    """The model names the server lists; None when it does not answer."""
    listing = _json(transport, "GET", target.base_url + "/models")
    return None if listing is None else model_names(listing)


def _ollama(transport: Transport, root: str, model: str) -> int | None:
    """What is allocated while the model is loaded, else the num_ctx its file sets."""
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


def _lmstudio(transport: Transport, root: str, model: str) -> int | None:
    entry = _json(transport, "GET", f"{root}/api/v0/models/{quote(model, safe='/')}")
    return _count(_at(entry, ("loaded_context_length",)))


def _json(transport: Transport, method: str, url: str, body: bytes = b"") -> Any:
    try:
        status, data = transport.ask(method, url, ASK_SECONDS, body)
        return orjson.loads(data) if status == 200 else None
    except (AgentError, ValueError):
        return None
