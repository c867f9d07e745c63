"""Reading how many tokens a server says a request took, in each form met.

One rule: `prompt` counts the whole prompt. OpenAI's forms already include cached tokens; Anthropic's `input_tokens` and
Bedrock's `inputTokens` do not, so cache reads and writes are added. Zeros and absent figures are "not said", never
nought. Of several reports in one stream the last wins; they are never summed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.messages import MOST_TOKENS, Usage

_PROMPT = ("prompt_tokens", "promptTokenCount", "promptTokens", "prompt_eval_count", "inputTokenCount")
_INPUT = ("input_tokens", "inputTokens")
_COMPLETION = (
    "completion_tokens", "output_tokens", "candidatesTokenCount", "outputTokens", "completionTokens", "eval_count",
    "outputTokenCount",
)  # fmt: skip
_CACHE_READ = ("cache_read_input_tokens", "cacheReadInputTokens", "cacheReadInputTokenCount")
_CACHE_WRITE = ("cache_creation_input_tokens", "cacheWriteInputTokens", "cacheWriteInputTokenCount")
_CACHED = ("cached_tokens", "prompt_cache_hit_tokens", "cachedContentTokenCount", "cachedTokens", *_CACHE_READ)
_DETAILS = ("prompt_tokens_details", "input_tokens_details", "inputTokensDetails")


def find_usage(event: Mapping[str, Any]) -> Usage | None:
    """The usage anywhere in a parsed event of an answer, or None."""
    for place in _places(event):
        found = read_usage(place)
        if found:
            return found
    return read_timings(event.get("timings"))


def read_usage(stated: Any) -> Usage | None:
    """A usage object in any provider's form; None when it says nothing about the prompt."""
    if not isinstance(stated, dict):
        return None
    if isinstance(stated.get("tokens"), dict):  # Cohere: billed_units are less than what was read
        cached = _first(stated, _CACHED)
        found = read_usage(stated["tokens"])
        return found._replace(cached=cached) if found and cached is not None else found
    prompt = said = _first(stated, _PROMPT)
    completion = _first(stated, _COMPLETION) or 0
    if "candidatesTokenCount" in stated or "thoughtsTokenCount" in stated:
        completion += _first(stated, ("thoughtsTokenCount",)) or 0
    cached = _cached(stated)
    if not prompt:
        prompt = _first(stated, _INPUT)
        if prompt is not None and not any(isinstance(stated.get(k), dict) for k in _DETAILS):
            prompt += (_first(stated, _CACHE_READ) or 0) + (_first(stated, _CACHE_WRITE) or 0)
    total = _first(stated, ("total_tokens", "totalTokens", "totalTokenCount"))
    if prompt is None and said is None and total:
        prompt = total - completion
    if cached and prompt is not None and cached > prompt:
        prompt += cached + (_first(stated, _CACHE_WRITE) or 0)  # a gateway that left the cached part out
    return Usage(prompt, completion, cached) if prompt and prompt > 0 else None


def read_timings(timings: Any) -> Usage | None:
    """llama.cpp's timings, which stand where no usage was asked for."""
    if not isinstance(timings, dict):
        return None
    cached, fresh = _first(timings, ("cache_n",)), _first(timings, ("prompt_n",))
    prompt = (cached or 0) + (fresh or 0)
    return Usage(prompt, _first(timings, ("predicted_n",)) or 0, cached) if prompt else None


def _places(event: Mapping[str, Any]) -> list[Any]:
    """Where a usage may stand, the most usual first."""
    places = [event.get("usage"), event.get("usageMetadata"), event.get("amazon-bedrock-invocationMetrics")]
    choices = event.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        places += [choices[0].get("usage")]
        places += [v.get("usage") for k in ("delta", "message") if isinstance(v := choices[0].get(k), dict)]
    for key in ("x_groq", "response", "message", "metadata", "delta", "data"):
        inner = event.get(key)
        if isinstance(inner, dict):
            places.append(inner.get("usage"))
    return [*places, event if "prompt_eval_count" in event else None]


def _cached(stated: Mapping[str, Any]) -> int | None:
    for key in _DETAILS:
        details = stated.get(key)
        if isinstance(details, dict):
            found = _first(details, ("cached_tokens", "cachedTokens"))
            if found is not None:
                return found
    return _first(stated, _CACHED)


def _first(stated: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of these that holds a count: a whole number, not negative, perhaps written as text. What is beyond all
    tokens there are is none."""
    for name in names:
        value = stated.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS:
            return value
    return None
