"""Secrets go, names stay."""

from __future__ import annotations

import pytest

from agent.redact import redact, secret_values

FORMS = [
    ("Authorization: Bearer abc.def-123", "Authorization: Bearer [redacted]"),
    ('{"x-api-key": "v3ry-secret"}', '{"x-api-key": "[redacted]"}'),
    ("http://me:pw@proxy.example:3128/", "http://[redacted]@proxy.example:3128/"),
    ("sk-proj-AbCdEfGhIjKlMnOpQrSt", "[redacted]"),
    ("the bearer of good news", "the bearer of good news"),
    ("set OPENAI_API_KEY", "set OPENAI_API_KEY"),
    ("mail me@example.com about task-list", "mail me@example.com about task-list"),
]


@pytest.mark.parametrize("given, expect", FORMS)
def test_what_is_shaped_like_a_secret_goes(given: str, expect: str) -> None:
    assert redact(given) == expect


def test_known_values_go_and_short_ones_do_not() -> None:
    assert redact("a longsecretvalue b short c", ["longsecretvalue", "short", ""]) == "a [redacted] b short c"


def test_a_secret_is_known_by_its_variables_name() -> None:
    named = {
        "GITHUB_TOKEN": "value-one",
        "HOME": "/home/me/and/so/on",
        "DB_PASSWORD": "tiny",
        "MY_API_KEY": "value-two",
    }
    assert secret_values(named) == ["value-one", "value-two"]
