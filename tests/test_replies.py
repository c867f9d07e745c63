"""What a short reply means."""

from __future__ import annotations

import pytest

from agent.compaction.replies import meant


@pytest.mark.parametrize(
    ("before", "answer", "told"),
    [
        ("Fine. Which colour do you want?", "teal", "Which colour do you want?"),
        ("I suggest that we store whole cents. That is exact.", "ok, do that", "I suggest that we store whole cents."),
        ("你想要什么颜色？", "青色", "你想要什么颜色？"),
        ("建议用 Postgres。", "好的", "建议用 Postgres。"),
        ("Soll ich? Ich würde Postgres nehmen.", "ja", "Ich würde Postgres nehmen."),
        ("Which one?", "Which ones are there?", ""),
        ("Which one?", "The one that we had before the move to the new house, I should think", ""),
        ("It is done.", "teal", ""),
        ("It is done.", "ok", ""),
        ("", "teal", ""),
        ("Which one?", "", ""),
        ("Which one?", "a\nb", ""),
    ],
)
def test_what_is_answered(before: str, answer: str, told: str) -> None:
    assert meant(before, answer) == ((told, answer) if told else ("", ""))
