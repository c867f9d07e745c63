"""Output: no control character reaches a result, and a long text keeps its ends."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from agent.tokens import estimate
from agent.tools.output import head_and_tail, one_line, readable, visible


def test_colours_go_and_other_control_characters_are_shown():
    """A title, a colour, a bell, a C1 introducer, a turned direction: none is left to act."""
    raw = "\x1b]0;pwned\x07\x1b[31mred\x1b[0m bell\x07 \x9b31m \u202egnp.exe \x1b[2J\x1bc".encode()
    assert readable(raw) == "red bell\\x07 \\x9b31m \\u202egnp.exe \\x1bc"


def test_line_ends_become_newlines_and_bad_bytes_marks():
    """What stands before and after a bad byte both arrive."""
    assert readable(b"a\r\nb\rc\n\xff\xfe\x00d") == "a\nb\nc\n��\\x00d"


@given(st.binary(max_size=300))
def test_nothing_readable_can_drive_a_terminal(raw):
    """For all bytes: only LF and TAB among the control characters."""
    left = [c for c in readable(raw) if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]
    assert left == []


@given(st.text(max_size=200))
def test_visible_changes_nothing_else(text):
    """Text without control characters stays as it is, and showing twice is showing once."""
    assert visible(visible(text)) == visible(text)
    if text.isprintable():
        assert visible(text) == text


def left_out(characters: int, lines: int) -> str:
    return f"[... {characters} characters, {lines} lines ...]"


def test_a_long_text_keeps_head_and_tail():
    """Cut at line ends, with a count of what is between."""
    text = "".join(f"line {n}\n" for n in range(1000))
    cut, was_cut = head_and_tail(text, 60, left_out)
    assert (was_cut, cut) == (True, CUT)


CUT = """\
line 0
line 1
line 2
line 3
line 4
line 5
line 6
line 7
[... 8771 characters, 985 lines ...]
line 993
line 994
line 995
line 996
line 997
line 998
line 999
"""


@given(st.text(alphabet="ab \n汉😀{", max_size=3000), st.integers(30, 300))
def test_a_cut_text_fits_and_is_made_of_its_ends(text, cap):
    """Never more tokens than the cap, whatever the script; what is kept is a prefix and a suffix."""
    cut, was_cut = head_and_tail(text, cap, left_out)
    assert estimate(cut) <= cap
    if not was_cut:
        assert cut == text
        return
    head, _, rest = cut.partition("\n[... ")
    assert text.startswith(head)
    assert text.endswith(rest.partition("...]\n")[2])


def test_one_line_is_one_visible_line():
    assert one_line("a\nb\x1b[1m\tc" + "x" * 200, 20) == "a ⏎ b\\x1b[1m cxxxxx…"
