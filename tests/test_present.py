"""Whether something stands in a context anyway."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from agent.compaction.present import Present


@given(st.integers(0, 1 << 32), st.integers(0, 8_000), st.sampled_from([1, 6, 7, 8, 9, 15, 40]))
def test_the_quick_look_finds_whatever_stands_in_a_long_text(seed: int, at: int, length: int) -> None:
    text = "".join(random.Random(seed).choices("abc", k=8_200))
    present = Present(text)
    for piece in (text[at : at + length], text[at : at + length] + "a", "c" + text[at : at + length], "b" * length):
        assert present.holds(piece) is (piece in text)


def test_digits_are_looked_for_among_digits_in_a_row() -> None:
    present = Present("The port is 18080, the host is heron-42, a1 and b2.")
    assert [present.holds(text) for text in ("18080", "heron42", "theport", "12", "99")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_pin_is_told_by_a_line_of_its_own_and_not_by_a_quotation() -> None:
    told = Present("Hello.\nKeep to this for the whole session: use tabs\nnever touch legacy/")
    assert [told.tells(text) for text in ("use tabs", "never touch legacy/", "touch legacy/")] == [True, True, False]
    assert not Present("What of this advice, which I reject?\nBob says: use tabs").tells("use tabs")
