"""How many tokens were used, in each provider's form."""

from __future__ import annotations

from typing import Any

import pytest

from agent.messages import Usage
from agent.wire.usage import find_usage, read_usage

FORMS: list[tuple[dict[str, Any], Usage | None]] = [
    ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(9, 2, 4)),
    ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None}, Usage(9, 2)),
    ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 5, "prompt_cache_miss_tokens": 4}, Usage(9, 0, 5)),
    (
        {"input_tokens": 6, "output_tokens": 3, "cache_read_input_tokens": 19, "cache_creation_input_tokens": 2},
        Usage(27, 3, 19),
    ),
    ({"input_tokens": 25, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 20}}, Usage(25, 3, 20)),
    ({"prompt_tokens": 100, "completion_tokens": 3, "cache_read_input_tokens": 90}, Usage(100, 3, 90)),
    ({"prompt_tokens": 6, "completion_tokens": 3, "cache_read_input_tokens": 90}, Usage(96, 3, 90)),
    ({"inputTokens": 5, "outputTokens": 1, "cacheReadInputTokens": 10}, Usage(15, 1, 10)),
    (
        {"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 5, "cachedContentTokenCount": 3},
        Usage(9, 7, 3),
    ),
    (
        {"tokens": {"input_tokens": 50, "output_tokens": 2}, "billed_units": {"input_tokens": 5}, "cached_tokens": 40},
        Usage(50, 2, 40),
    ),
    ({"prompt_eval_count": 7, "eval_count": 2}, Usage(7, 2)),
    ({"total_tokens": 12, "completion_tokens": 2}, Usage(10, 2)),
    ({"prompt_tokens": "9", "completion_tokens": 2.0}, Usage(9, 2)),
    ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None),
    ({"prompt_tokens": 100, "cache_read_input_tokens": 9000, "cache_creation_input_tokens": 200}, Usage(9300, 0, 9000)),
    ({"prompt_tokens": 0, "input_tokens": 1234, "output_tokens": 5}, Usage(1234, 5)),
    ({"prompt_tokens": 0, "completion_tokens": 7, "total_tokens": 5}, None),
    ({"prompt_tokens": 0, "completion_tokens": 3, "total_tokens": 303}, None),
    ({"prompt_tokens": 10**320}, None),
    ({"prompt_tokens": "9" * 5000}, None),
    ({"prompt_tokens": 9, "completion_tokens": 10**15}, Usage(9, 0)),
    ({"prompt_tokens": None}, None),
    ({"prompt_tokens": -3}, None),
    ({"prompt_tokens": True}, None),
    ({}, None),
]


@pytest.mark.parametrize("stated, expect", FORMS)
def test_each_form_is_read(stated: dict[str, Any], expect: Usage | None) -> None:
    assert read_usage(stated) == expect


@pytest.mark.parametrize("event", [
    {"usage": {"prompt_tokens": 3}}, {"choices": [{"usage": {"prompt_tokens": 3}}]}, {"x_groq": {"usage": {"prompt_tokens": 3}}},
    {"choices": [{"delta": {"usage": {"prompt_tokens": 3}}}]}, {"usageMetadata": {"promptTokenCount": 3}},
    {"response": {"usage": {"input_tokens": 3}}}, {"timings": {"cache_n": 1, "prompt_n": 2}}, {"prompt_eval_count": 3},
    {"usage": None, "choices": [None], "timings": {"prompt_n": 3}},
])  # fmt: skip
def test_it_is_found_wherever_it_stands(event: dict[str, Any]) -> None:
    found = find_usage(event)
    assert found is not None and found.prompt == 3
