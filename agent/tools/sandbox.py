"""Starting a command; confinement comes here."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from agent.tools.process import Attended
from agent.tools.protocol import ToolContext


def mechanism(mode: str) -> str:
    return "none"


def hint(context: ToolContext) -> str:
    return ""


@contextmanager
def started(command: str, context: ToolContext) -> Iterator[tuple[subprocess.Popen[bytes], Attended | None]]:
    child = subprocess.Popen(
        ["bash", "-c", command], cwd=context.cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )
    yield child, None
