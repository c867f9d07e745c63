"""From argv to the command it names: a run, which is nearly always meant, or one of the few commands beside it.

The first word alone may be a command, from the frozen list `RESERVED`; anything else is a prompt, and `agent run ...`
is the explicit form. A mistake that would send a command to a model as a prompt is exit 2 and the right spelling.

A run is read by `agent.cli.argv` and never loads typer. The other commands are typer's (`agent.cli.dispatch`). Nothing
here imports httpx or tiktoken: `--help`, completion and lists start fast.
"""

from __future__ import annotations

import os
import sys

from agent.cli import argv as line
from agent.cli.options import COMMANDS, RESERVED, VERBS, front_page, version_line
from agent.errors import UsageError
from agent.signals import raise_again


def invoke(argv: list[str]) -> int:
    """Parse and run one command line; its exit code.

    Raises: AgentError, also for what is wrong with the command line (UsageError).
    """
    if argv[:1] == ["help"]:
        if len(argv) > 1 and argv[1] not in COMMANDS:
            raise UsageError(f"There is no command {argv[1]!r}", f"A prompt: agent -- {' '.join(argv)}")
        argv = [*argv[1:3], "--help"]
    if argv and argv[0] in RESERVED and argv[0] != "run":
        from agent.cli.dispatch import command

        raise_again()
        return command(argv)
    try:
        words, values = line.read(argv[1:] if argv[:1] == ["run"] else argv)
    except UsageError:
        check_order(argv)
        raise
    if values.pop("help"):
        sys.stdout.write(front_page())
        return 0
    if values.pop("version"):
        sys.stdout.write(f"{version_line()}\n")
        return 0
    check_words(words, argv, continues=values["last"] or values["continue_id"] is not None)
    from agent.cli.asked import Ask
    from agent.cli.run import run

    raise_again()
    return run(Ask.of(words, values), os.environ)


def check_order(argv: list[str]) -> None:
    """Options before a command are read as a run's, and the command's own are then unknown.

    Raises: UsageError with the right order, where that is what happened.
    """
    for at, word in enumerate(argv[:-1]):
        command = word in RESERVED and word != "run" and (argv[at + 1] in VERBS or word != "sessions")
        if at and command and "--" not in argv:
            right = " ".join([*argv[at:], *argv[:at]])
            raise UsageError(f"{word!r} is a command, but options came before it", f"The command: agent {right}")


ALONE = {verb: f"sessions {verb}" for verb in VERBS} | {
    "version": "--version",
    "resume": "--last PROMPT",
    "continue": "--last PROMPT",
}
"""Words that are hardly a prompt where they stand alone, and the command each is meant to be."""


def check_words(words: list[str], argv: list[str], *, continues: bool) -> None:
    """Refuse a prompt that looks like a misplaced or misspelt command. `argv` is the whole command line; `continues` says
    whether it names a session, which no command does.

    One word is a prompt where an option stands before it, but for a command's own name, whose options may have come first.
    Raises: UsageError with the right spelling.
    """
    if not words or "--" in argv or argv[:1] == ["run"]:
        return
    first, rest = words[0], " ".join(words)
    if words == [first] and first != argv[0] and (continues or first not in RESERVED):
        return
    if words == [first] and first in ALONE:
        raise UsageError(
            f"There is no command {first!r}", f"Did you mean: agent {ALONE[first]}? A prompt: agent -- {first}"
        )
    if first in RESERVED:
        at = argv.index(first)
        command, prompt = " ".join([*argv[at:], *argv[:at]]), " ".join([*argv[:at], "--", *argv[at:]])
        hint = f"The command: agent {command}. A prompt: agent {prompt}"
        raise UsageError(f"{first!r} is a command, but options came before it", hint)
    meant = _meant(first, 0.7) if len(words) > 1 and words[1] in VERBS else _meant(rest, 0.8)
    if meant:
        right = " ".join([meant, *words[1:]])
        raise UsageError(f"There is no command {first!r}", f"Did you mean: agent {right}  A prompt: agent -- {rest}")


def _meant(word: str, likeness: float) -> str | None:
    """The command that a misspelt word was meant to be."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, RESERVED, 1, likeness)), None)
