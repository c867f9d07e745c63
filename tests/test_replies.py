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
        ("Ich würde Postgres nehmen.", "ja", "Ich würde Postgres nehmen."),
        ("I would keep the tests. Delete the database?", "yes", "Delete the database?"),
        ("Should I push? I could also wait.", "yes", "Should I push? I could also wait."),
        ("需要我删除吗？", "好的", "需要我删除吗？"),
        ("Could not open file: planning.txt", "ok", ""),
        ("You should not rely on main. Done.", "great", ""),
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
