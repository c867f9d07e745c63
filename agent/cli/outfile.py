"""`-o FILE`: the answer in a file too, whole or not at all.

A regular file, or the one a symlink points to, is replaced in one step. What is no regular file (a terminal, a pipe,
/dev/null) is written to and never replaced. Whether it can be written is asked before the first request is paid for.
"""

from __future__ import annotations

import os

from agent.errors import UsageError


def check(path: str) -> None:
    """Raises: UsageError when an answer could not be written there."""
    if path == "-":
        raise UsageError("-o - : the answer is on standard output anyway", "Give -o a file, or leave it out")
    if os.path.isdir(path):
        raise UsageError(f"Cannot write the answer to {path}: it is a directory", "Give -o a file")
    if os.path.exists(path):
        fits = os.access(path, os.W_OK)
    else:
        folder = os.path.dirname(os.path.realpath(path))
        fits = os.access(folder, os.W_OK | os.X_OK)
    if not fits:
        raise UsageError(f"Cannot write the answer to {path}", "Give -o a file in a directory that you may write")


def write(path: str, text: str) -> None:
    """Write the answer with a final newline. Raises: OSError; a pipe that nobody reads is one, not a wait."""
    data = text.encode("utf-8", "replace")
    data = data if data.endswith(b"\n") or not data else data + b"\n"
    if os.path.exists(path) and not os.path.isfile(path):
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "wb") as file:
            os.set_blocking(fd, True)
            file.write(data)
        return
    path = os.path.realpath(path)
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError:
        if os.path.exists(part):
            os.unlink(part)
        raise
