"""Delays that servers ask for, in every form, and the ladder."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.wire.retry import asked_delay, duration, ladder

NOW = 1_800_000_000.0
DELAYS: list[tuple[dict[str, str], dict[str, Any], str, float | None]] = [
    ({"retry-after": "12", "retry-after-ms": "11054"}, {}, "", 11.054),
    ({"x-ms-retry-after-ms": "250"}, {}, "", 0.25),
    ({"retry-after": "1.5"}, {}, "", 1.5),
    ({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, {}, "", 30.0),
    ({"retry-after": "2027-01-15T08:00:30Z"}, {}, "", 30.0),
    ({"retry-after": "Fri, 15 Jan 2021 08:00:30 GMT"}, {}, "", None),
    ({"retry-after": "soon"}, {}, "", None),
    ({"retry-after": "-1"}, {}, "please try again in 3s", 3.0),
    ({"retry-after": "nan"}, {}, "", None),
    ({"retry-after": "inf"}, {}, "", None),
    ({"retry-after": "30s"}, {}, "", 30.0),
    ({"retry-after": "1m30s"}, {}, "", 90.0),
    ({"retry-after": "250 ms"}, {}, "", 0.25),
    ({"retry-after": "1800000012"}, {}, "", 12.0),
    ({"retry-after": "1800000012500"}, {}, "", 12.5),
    ({"retry-after": "1799999999"}, {}, "", None),
    ({"retry-after": "1799999999"}, {}, "try again in 3s", 3.0),
    ({}, {"retry-after": "12"}, "", 12.0),
    ({}, {"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, "", 30.0),
    ({}, {"retry-after-ms": 250}, "", 0.25),
    ({}, {"estimated_time": 20.5}, "", 20.5),
    ({}, {"retry_after": 1_800_000_012}, "", 12.0),
    ({}, {"x-ratelimit-limit": "20", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800000009000"}, "", 9.0),
    ({}, {"x-ratelimit-remaining": 0, "x-ratelimit-reset": 1800000009000}, "", 9.0),
    ({}, {"x-ratelimit-remaining": "3", "x-ratelimit-reset": "1800000009000"}, "", None),
    ({}, {}, "too many requests. retry-after: 12", 12.0),
    ({}, {}, "rate limited (retry-after=12s)", 12.0),
    ({}, {}, "headers: 'retry-after': '12', 'date': 'x'", 12.0),
    ({}, {}, "retry_after: 0.5", 0.5),
    ({}, {}, "retry after: 12", 12.0),
    ({}, {}, "retry-after: 1800000012", 12.0),
    ({}, {}, "retry-after: 2027-01-15", None),
    ({}, {}, "retry after 12 requests", None),
    ({}, {"retrydelay": "34.07s"}, "retry in 35s", 34.07),
    ({}, {"retry_after": 7}, "", 7.0),
    ({}, {"retry_after": True}, "", None),
    ({}, {"retry_after_ms": 1500}, "", 1.5),
    ({}, {"resets_in_seconds": 10800}, "", 10800.0),
    ({}, {}, "please try again in 1m3.5s. visit", 63.5),
    ({}, {}, "please try again in 20ms.", 0.02),
    ({}, {}, "try again in 6m0s", 360.0),
    ({}, {}, "try again in 1h3m20s", 3800.0),
    ({}, {}, "please retry after 26 seconds. contact", 26.0),
    ({}, {}, "please wait 10 seconds before", 10.0),
    ({}, {}, "try again in 2 minutes", 120.0),
    ({}, {}, "quota resets in 3 hours", 10800.0),
    ({}, {}, "请在 30 秒后重试", 30.0),
    ({}, {}, "限流，2 分钟后再试", 120.0),
    ({}, {}, "try again later", None),
    ({}, {}, "limit 30000, used 22999", None),
    ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "7.66s"}, {}, "", 7.66),
    ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "7.66s"}, {}, "", None),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800000009000"}, {}, "", 9.0),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800000009"}, {}, "", 9.0),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "26"}, {}, "", 26.0),
    ({"anthropic-ratelimit-input-tokens-remaining": "0", "anthropic-ratelimit-input-tokens-reset": "2027-01-15T08:01:00Z"}, {}, "", 60.0),
]  # fmt: skip


@pytest.mark.parametrize("headers, typed, text, expect", DELAYS)
def test_a_stated_delay_is_read(
    headers: dict[str, str], typed: dict[str, Any], text: str, expect: float | None
) -> None:
    assert asked_delay(headers, typed, text, NOW) == (None if expect is None else pytest.approx(expect))


@given(st.text(max_size=20), st.text(max_size=40))
def test_reading_a_delay_is_total_and_never_negative(header: str, text: str) -> None:
    found = asked_delay(
        {"retry-after": header, "x-ratelimit-reset": header, "x-ratelimit-remaining": "0"}, {}, text, NOW
    )
    assert found is None or found > 0


@given(st.integers(1, 30), st.floats(0, 1))
def test_the_ladder_is_jittered_and_bounded(attempt: int, dice: float) -> None:
    assert 0 <= ladder(attempt, dice) <= min(20.0, 2.0 ** (attempt - 1))


def test_a_duration_is_a_duration_or_nothing() -> None:
    forms = ("34s", "1h", "1h1m1s", "500ms", "s", "", "x", "2 days")
    assert [duration(t) for t in forms] == [34, 3600, 3661, 0.5, None, None, None, 172800]
