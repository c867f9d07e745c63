"""A text in the smallest pieces that still say something."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.compaction.cutting import LAYOUT, LONG, clauses, is_code, layouts, told_and_asked


@given(st.text(st.sampled_from("ab ,，:and but"), max_size=900))
def test_clauses_are_short_and_lose_no_letter(sentence: str) -> None:
    pieces = list(clauses(sentence))
    assert all(len(piece) <= LONG for piece in pieces)
    assert "".join(pieces).translate(str.maketrans("", "", " ,，")) == sentence.translate(str.maketrans("", "", " ,，"))


def test_a_long_sentence_is_cut_where_clauses_begin() -> None:
    first = (
        "so the courier who brings the small parts for the pumps in the cellar of the old house only comes on tuesdays"
    )
    second = "and the gate at the back of the yard is locked from six in the evening on so that nobody walks in"
    assert list(clauses(f"{first} {second}")) == [first, second]


def test_lists_tables_and_blocks_are_layouts() -> None:
    text = "Please do:\n- buy milk\n- call Ann\nand then\n| a | b |\n|---|---|\n| 1 | 2 |\nor\n```yaml\nreplicas: 3\n```\nBye"
    assert [(piece.strip(), laid_out) for piece, laid_out in layouts(text)] == [
        ("Please do:", False),
        ("- buy milk\n- call Ann", True),
        ("and then", False),
        ("| a | b |\n|---|---|\n| 1 | 2 |", True),
        ("or", False),
        ("```yaml\nreplicas: 3\n```", True),
        ("Bye", False),
    ]


def test_layouts_whatever_ends_their_lines() -> None:
    assert list(layouts("```\r\nfoo\r\n```\r\n")) == [("", False), ("```\nfoo\n```", True), ("\n", False)]
    wrapped = "- first that wraps\n  over two lines\n- second\n"
    assert list(layouts(wrapped)) == [("", False), (wrapped.strip(), True), ("", False)]


def test_a_long_block_does_not_turn_the_text_after_it_into_one() -> None:
    text = "```\n" + "x\n" * 60 + "```\nThen text.\n```\nb\n```\n"
    assert [piece for piece, laid_out in layouts(text) if laid_out][1:] == ["```\nb\n```"]


def test_rows_of_a_table_and_short_lines_are_no_code() -> None:
    assert not is_code("| wrens | Aiko | 8432 | blocked |")
    assert not is_code("FAIL: lex_a3 (123 ms)")
    assert is_code("for (int i = 0; i < n; i++) { f(i); }")
    assert is_code("| grep -v '^#' | awk '{print $1}' | sort;")


@given(st.text(max_size=200))
def test_told_and_asked_lose_nothing_but_the_comma(sentence: str) -> None:
    pieces = told_and_asked(sentence)
    assert pieces == [sentence] or (len(pieces) == 2 and all(piece in sentence for piece in pieces))


@given(st.text(st.sampled_from("a1 \n\n\r\t-*+.)|`"), max_size=40) | st.from_regex(LAYOUT))
def test_no_layout_is_passed_over_by_the_quick_look(text: str) -> None:
    found = LAYOUT.search(text.replace("\r\n", "\n"))
    assert any(laid_out for _, laid_out in layouts(text)) == bool(found)
