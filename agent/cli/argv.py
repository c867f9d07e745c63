"""The command line of one run: argv -> the words of the prompt and the values of the options, by the table.

A hand-written reader, because this is on the way of every turn: importing typer and building its commands took half
of the time before the first request. The commands beside `run` are typer's (`agent.cli.dispatch`).

Options take exactly one value, in the next word or behind `=` (`-mNAME` for a short one); the last one wins, and those
marked `many` add up. Switches take none and may be joined (`-qv`). Options stand before or after the prompt; `--` ends
them, and a lone `-` is a word. Values stay text: what they mean is `agent.config`'s to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.cli.options import OPTIONS, Row
from agent.errors import UsageError

HOW = "See agent --help; a prompt that begins with a dash: agent -- PROMPT"
ELSEWHERE = {
    "--resume": "-c ID", "--session": "-c ID", "--session-id": "-n NAME", "--image": "-f PATH", "--attach": "-f PATH",
    "--attachment": "-f PATH", "--workdir": "-C DIR", "--cwd": "-C DIR", "--dir": "-C DIR", "--silent": "-q", "-y": "--yolo",
    "--yes": "--yolo", "--dangerously-skip-permissions": "--yolo", "--full-auto": "--yolo", "--max-turns": "--max-steps N",
    "--api-key": "OPENAI_API_KEY, a variable", "--base-url": "OPENAI_BASE_URL, a variable",
    "--no-stream": "--output-format json", "--system-prompt": "-s TEXT",
    "--allowed-tools": "--allow RULE", "--disallowed-tools": "--deny RULE", "--no-color": "--color never",
}  # fmt: skip
"""What options of similar tools are called here."""
HELP = Row("help", ("-h", "--help"), "", "this page")
_ROWS = [row for group in OPTIONS.values() for row in group]
_BY_FLAG = {flag: row for row in (*_ROWS, HELP) for flag in row.flags}


def read(argv: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The words, and a value for every option of the table and `help`.

    A switch is a bool, an option its text or None, one that repeats a list. Raises: UsageError.
    """
    words: list[str] = []
    values: dict[str, Any] = {row.name: [] if row.many else None if row.metavar else False for row in (*_ROWS, HELP)}
    rest = list(reversed(argv))
    while rest:
        word = rest.pop()
        if word == "--":
            words += reversed(rest)
            break
        if word.startswith("--"):
            flag, given, value = word.partition("=")
            _take(flag, value if given else None, rest, values)
        elif word.startswith("-") and word != "-":
            _take_short(word, rest, values)
        else:
            words.append(word)
    return words, values


def _take_short(word: str, rest: list[str], values: dict[str, Any]) -> None:
    """`-q`, `-qv`, `-m NAME`, `-mNAME`, `-qm NAME`."""
    for at in range(1, len(word)):
        flag = f"-{word[at]}"
        if _row(flag).metavar:
            _take(flag, word[at + 1 :] or None, rest, values)
            return
        _take(flag, None, rest, values)


def _take(flag: str, value: str | None, rest: list[str], values: dict[str, Any]) -> None:
    """Note one option. `value` is what stood in the same word; `rest` are the words to come, the next one last."""
    row = _row(flag)
    if not row.metavar:
        if value is not None:
            raise UsageError(f"Option {flag!r} does not take a value", "See agent --help")
        values[row.name] = True
        return
    if value is None:
        if not rest:
            raise UsageError(f"Option {flag!r} requires a value", "See agent --help")
        value = rest.pop()
    if row.many:
        values[row.name].append(value)
    else:
        values[row.name] = value


def _row(flag: str) -> Row:
    """Raises: UsageError, with the nearest spelling or what other tools' options are called here."""
    row = _BY_FLAG.get(flag)
    if row is None:
        import difflib

        known = [known for known in _BY_FLAG if len(known) > 2]
        near = difflib.get_close_matches(flag, known, 1, 0.75) if flag[2:] else []
        meant = ELSEWHERE.get(flag) or next(iter(near), "")
        raise UsageError(f"There is no option {flag}", f"Did you mean {meant}? {HOW}" if meant else HOW)
    return row
