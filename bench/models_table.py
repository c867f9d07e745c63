"""Makes agent/models.json anew: windows and prices of the providers in our table, as plain facts.

    python -m venv t && t/bin/pip install ctxlen genai-prices && t/bin/python bench/models_table.py

Windows come from the package ctxlen (data of litellm and models.dev), prices and further windows from genai-prices; all
MIT. Neither is a dependency: ctxlen's ids need a mapping, genai-prices brings pydantic and a second HTTP library and
takes half a second to import, and this table is one small file that is read only when nothing better is known.

A row is [window, max input, max output, price in, price out, price cached]; prices are US dollars per million tokens,
and stand there only when they do not change with the hour or the size of the prompt.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
from typing import Any

from ctxlen import ctxlen, max_input, max_output  # type: ignore[import-not-found]
from genai_prices.data import providers  # type: ignore[import-not-found]

OURS = {  # our name: (ctxlen's prefix, genai-prices' id)
    "openai": ("", "openai"), "anthropic": ("", "anthropic"), "deepseek": ("deepseek/", "deepseek"),
    "moonshot": ("moonshot/", "moonshotai"), "dashscope": ("dashscope/", ""), "zhipu": ("zai/", "zai"),
    "minimax": ("minimax/", "minimax"), "openrouter": ("openrouter/", "openrouter"), "groq": ("groq/", "groq"),
    "gemini": ("gemini/", "google"), "mistral": ("mistral/", "mistral"), "xai": ("xai/", "x-ai"),
    "together": ("together_ai/", "together"), "fireworks": ("fireworks_ai/", "fireworks"), "cerebras": ("cerebras/", "cerebras"),
    "perplexity": ("perplexity/", "perplexity"), "novita": ("novita/", "novita"),
}  # fmt: skip
BARE = ("openai", "anthropic", "deepseek", "moonshot", "dashscope", "zhipu", "minimax", "gemini", "mistral", "xai")
"""Makers of models: their rows also stand under the bare name, smallest figures first."""
SKIP = ("image", "audio", "tts", "whisper", "embed", "moderation", "realtime", "dall-e", "sora", "veo", "imagen", "transcribe", "ocr", "rerank", "video", "speech", "search-preview", "live", "babbage", "davinci", "ada", "curie", "robotics", "ft:", "container")  # fmt: skip
LICENCE = (
    "Facts from ctxlen (c) 2026 Michael Theologitis, litellm (c) 2023 Berri AI, models.dev (c) 2025 models.dev, and "
    "genai-prices (c) Pydantic Services Inc. 2025 to present; all under the MIT licence: permission is hereby granted, free of "
    "charge, to any person obtaining a copy, to deal in it without restriction, provided that this notice is kept; it is "
    "provided as is, without warranty of any kind."
)


def names(ours: str) -> dict[str, Any]:
    """The chat models of one provider, with genai-prices' entry where there is one."""
    from ctxlen import _resolve  # type: ignore[import-not-found]

    prefix, ident = OURS[ours]
    with open(os.path.join(os.path.dirname(_resolve.__file__), "_data.json"), "rb") as file:
        rows = json.load(file)
    found: dict[str, Any] = {}
    for key, row in {**rows["fills"], **rows["rows"]}.items():
        own = row[0] == OURS[ours][0].rstrip("/") or (not prefix and row[0] == ours)
        if own and key.startswith(prefix) and (prefix or "/" not in key):
            found[key.removeprefix(prefix)] = None
    for provider in providers:
        if provider.id == ident:
            found |= {model.id: model for model in provider.models}
    return {name: m for name, m in found.items() if not any(word in name.lower() for word in SKIP)}


def price(model: Any) -> list[float]:
    """[in, out, cached] of an entry whose price is one number each; [] otherwise."""
    stated = getattr(model, "prices", None)
    if isinstance(stated, list):
        now = datetime.date.today()
        dated = [p for p in stated if type(p.constraint).__name__ in ("NoneType", "StartDateConstraint")]
        if len(dated) != len(stated):
            return []
        begun = [p for p in dated if p.constraint is None or p.constraint.start_date <= now]
        stated = begun[-1].prices if begun else None
    wanted = [getattr(stated, f"{kind}_mtok", None) for kind in ("input", "output", "cache_read")]
    if wanted[0] is None or wanted[1] is None or any(hasattr(p, "tiers") for p in wanted):
        return []
    return [float(p) for p in wanted if p is not None]


def row(ours: str, name: str, model: Any) -> list[Any] | None:
    """A table row, or None when nothing is known."""
    key = OURS[ours][0] + name
    window, most, output = (ask(key, live=False) for ask in (ctxlen, max_input, max_output))
    window = window or most or getattr(model, "context_window", None)
    costs = price(model)
    if not window and not costs:
        return None
    return [window, most if most != window else None, output if output != window else None, *costs]


def table() -> dict[str, list[Any]]:
    made: dict[str, list[Any]] = {}
    for ours in OURS:
        for name, model in names(ours).items():
            found = row(ours, name, model)
            if found:
                made[f"{ours}/{name}".lower()] = found
                if ours in BARE:
                    made.setdefault(name.lower(), found[:3])
    return dict(sorted(made.items()))


if __name__ == "__main__":
    versions = {p: importlib.metadata.version(p) for p in ("ctxlen", "genai-prices")}
    target = os.path.join(os.path.dirname(__file__), "..", "agent", "models.json")
    head = {
        "licence": LICENCE,
        "sources": versions,
        "row": "window, max input, max output, $/M in, $/M out, $/M cached",
    }
    lines = ",\n".join(f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in table().items())
    with open(target, "w", encoding="utf-8") as file:
        file.write(json.dumps(head, indent=1)[:-2] + ',\n "models":{\n' + lines + "\n}}\n")
