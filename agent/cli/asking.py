"""Asking the user whether a tool call may run: on a terminal, and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Callable

from agent.messages import ToolCall
from agent.render import Output

ANSWERS = {"y": "yes", "yes": "yes", "a": "always", "always": "always", "n": "no", "no": "no", "": "no"}


def asker(may_ask: bool, err: Output) -> Callable[[ToolCall, str], str] | None:
    """A function that shows a call and reads `y`, `a` (always, for this run) or `n`; None where nobody can answer.

    Both standard input and stderr must be terminals: a question nobody sees is a denial.
    """
    if not (may_ask and os.isatty(0) and err.is_terminal()):
        return None

    def ask(call: ToolCall, text: str) -> str:
        while True:
            err.write(f"{call.name} wants to run:\n  {text}\nAllow? [y]es / [a]lways this one / [N]o: ".encode())
            line = _read_line()
            if line is None:
                err.write(b"\n")
                return "no"
            answer = ANSWERS.get(line.strip().lower())
            if answer is not None:
                return answer

    return ask


def _read_line() -> str | None:
    """One line from the terminal; None at its end."""
    data = b""
    while not data.endswith(b"\n"):
        more = os.read(0, 4096)
        if not more:
            return None
        data += more
    return data.decode("utf-8", "replace")
