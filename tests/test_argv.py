"""The command line of a run, as a table of what is typed and what is read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cli.argv import read
from agent.cli.options import OPTIONS
from agent.errors import UsageError

ROWS = [row for group in OPTIONS.values() for row in group]


def told(argv: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The words, and only the options that were given."""
    words, values = read(argv)
    return words, {name: value for name, value in values.items() if value not in (None, False, [])}


@pytest.mark.parametrize(
    ("line", "words", "given"),
    [
        ("say hello", ["say", "hello"], {}),
        ("-q say --json hello -v", ["say", "hello"], {"quiet": True, "json": True, "verbose": True}),
        ("-qv hi", ["hi"], {"quiet": True, "verbose": True}),
        ("-m gpt hi", ["hi"], {"model": "gpt"}),
        ("-mgpt hi", ["hi"], {"model": "gpt"}),
        ("-qmgpt hi", ["hi"], {"quiet": True, "model": "gpt"}),
        ("--model=a=b hi", ["hi"], {"model": "a=b"}),
        ("--model= hi", ["hi"], {"model": ""}),
        ("-m one -m two", [], {"model": "two"}),
        ("--allow net --allow=write_file", [], {"allow": ["net", "write_file"]}),
        ("-c -x hi", ["hi"], {"continue_id": "-x"}),
        ("explain - please", ["explain", "-", "please"], {}),
        ("-q -- --model -x", ["--model", "-x"], {"quiet": True}),
        ("-h", [], {"help": True}),
    ],
)
def test_a_line_is_read(line: str, words: list[str], given: dict[str, Any]) -> None:
    assert told(line.split()) == (words, given)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (
            "--modle x hi",
            "There is no option --modle. Did you mean --model? See agent --help; a prompt that begins with a dash: agent -- PROMPT",
        ),
        ("-x hi", "There is no option -x. See agent --help; a prompt that begins with a dash: agent -- PROMPT"),
        ("-qx hi", "There is no option -x. See agent --help; a prompt that begins with a dash: agent -- PROMPT"),
        (
            "--resume x hi",
            "There is no option --resume. Did you mean -c ID? See agent --help; a prompt that begins with a dash: agent -- PROMPT",
        ),
        (
            "--frobnicate hi",
            "There is no option --frobnicate. See agent --help; a prompt that begins with a dash: agent -- PROMPT",
        ),
        ("hi -m", "Option '-m' requires a value. See agent --help"),
        ("--last=yes hi", "Option '--last' does not take a value. See agent --help"),
    ],
)
def test_a_mistake_is_named(line: str, error: str) -> None:
    with pytest.raises(UsageError) as found:
        read(line.split())
    assert str(found.value) == error


@given(st.lists(st.one_of(st.text(max_size=8), st.sampled_from([flag for row in ROWS for flag in row.flags]))))
def test_any_line_is_read_or_refused(argv: list[str]) -> None:
    """Total: every option of the table has a value of its kind, and what stands behind -- is never an option."""
    try:
        words, values = read([*argv, "--", *argv])
    except UsageError:
        return
    for row in ROWS:
        assert type(values[row.name]) in ((list,) if row.many else (str, type(None)) if row.metavar else (bool,))
    assert words[len(words) - len(argv) :] == argv
