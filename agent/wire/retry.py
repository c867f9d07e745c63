"""When to try again: the delay a server asks for, in all its forms, and our own ladder.

Pure: the clock and the dice are parameters. Delays are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

LONGEST_WAIT = 60.0
"""A longer wait is not waited for: the run fails at once and says when to come back."""
ATTEMPTS = 5
TOTAL_WAIT = 180.0
_DURATION = re.compile(
    r"(?:(\d+(?:\.\d+)?)\s*(?:d|days?|天)\b\s*)?"
    r"(?:(\d+(?:\.\d+)?)\s*(?:h|hrs?|hours?|小时)\s*)?"
    r"(?:(\d+(?:\.\d+)?)\s*(?:m|mins?|minutes?|分钟?)(?!s)\s*)?"
    r"(?:(\d+(?:\.\d+)?)\s*(?:s|secs?|seconds?|秒))?"
    r"(?:(\d+(?:\.\d+)?)\s*(?:ms|milliseconds?|毫秒))?"
)
_SPOKEN = re.compile(
    r"(?:(?:try again|retry|retrying|come back|available|resets?|wait)\s*(?:in|after|for)?\s*(?:at least|about)?\s*|"
    r"(?:请在|请于|等待)\s*)(?=\d)"
)
_WRITTEN = re.compile(r"retry(?:[-_]after\W{1,4}|[-_ ]?after ?[:=]\W{0,3})(?=\d)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?![\d\-/:])")
_ASKED = (
    "retrydelay", "retry_after", "retryafter", "retry_after_seconds", "resets_in_seconds", "reset_after",
    "estimated_time",
)  # fmt: skip
_SPOKEN_AFTER = re.compile(r"(\d+(?:\.\d+)?)\s*(秒|分钟|小时)(?:后|之后|再)")


def ladder(attempt: int, dice: float) -> float:
    """Seconds before attempt number `attempt` (1 is the first retry): full jitter under 1, 2, 4, 8 ... at most 20."""
    return dice * min(20.0, 2.0 ** (attempt - 1))


def asked_delay(headers: Mapping[str, str], typed: Mapping[str, Any], text: str, now: float) -> float | None:
    """The delay a server asks for: its headers (lower-case names) first, then its JSON by key, in which another server's
    headers may stand, then its words (lower case). `now` is Unix time. None where it asks for none, or for nothing
    sensible (zero, negative, garbage)."""
    for name in ("retry-after-ms", "x-ms-retry-after-ms", "x-retry-after-ms"):
        found = _positive(headers.get(name))
        if found:
            return found / 1000
    found = _moment(headers.get("retry-after"), now)
    if found:
        return found
    stated = {name.replace("-", "_"): value for name, value in typed.items()}
    for name in ("retry_after_ms", "retryafterms"):
        if _positive(stated.get(name)):
            return float(stated[name]) / 1000
    for name in _ASKED:
        found = _moment(stated.get(name), now)
        if found:
            return found
    within = {name: str(value) for name, value in typed.items()}
    return _spoken(text, now) or _window_reset(headers, now) or _window_reset(within, now)


def duration(text: str) -> float | None:
    """Seconds in a written duration: "34s", "6m0s", "1h3m20s", "20ms", "26 seconds", "2 分钟"; None for anything else."""
    found = _DURATION.match(text.strip().lower())
    if not found or not any(found.groups()):
        return None
    days, hours, minutes, seconds, milliseconds = (float(part or 0) for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds + milliseconds / 1000 or None


def _spoken(text: str, now: float) -> float | None:
    for found in _WRITTEN.finditer(text):  # a header told in words: a number alone is seconds
        rest = text[found.end() :]
        number = _NUMBER.match(rest)
        seconds = duration(rest) or (_moment(number[0], now) if number else None)
        if seconds:
            return seconds
    for found in _SPOKEN.finditer(text):
        seconds = duration(text[found.end() :])
        if seconds:
            return seconds
    after = _SPOKEN_AFTER.search(text)
    return duration(after[1] + after[2]) if after else None


def _window_reset(headers: Mapping[str, str], now: float) -> float | None:
    """When an exhausted rate window opens again: a duration, a date, or a Unix time in seconds or milliseconds."""
    waits = []
    for name, value in headers.items():
        if "ratelimit" not in name or "reset" not in name:
            continue
        left = headers.get(name.replace("reset", "remaining"))
        if left is not None and left.strip() == "0":
            waits.append(_moment(value, now))
    return max((w for w in waits if w), default=None)


def _moment(value: Any, now: float) -> float | None:
    """Seconds until what is stated in any form: seconds, a duration, a date, Unix time in seconds or milliseconds."""
    number = _positive(value)
    if number is None:
        return duration(value) or _until(value, now) if isinstance(value, str) else None
    if number > 1e11:
        number /= 1000
    return number if number < 1e8 else number - now if number > now else None


def _positive(value: Any) -> float | None:
    """A finite number above zero, from a number or its text."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 < number < float("inf") and not isinstance(value, bool) else None


def _until(value: str, now: float) -> float | None:
    """Seconds until an HTTP date or an RFC 3339 time; None when it is past or no date."""
    if not re.search(r"\d{4}", value):
        return None
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    try:
        when = datetime.fromisoformat(value) if value[:4].isdigit() else parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    left = when.timestamp() - now
    return left if left > 0 else None
