"""`-o FILE`: the answer in a file too, whole or not at all.

A regular file, or the one a symlink points to, is replaced in one step by one with its mode. What is no regular file (a
terminal, a pipe, /dev/null) is written to and never replaced. Whether it can be written is asked before the first
request is paid for.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from agent.errors import UsageError


def check(path: str) -> None:
    """Raises: UsageError when an answer could not be written there."""
    if path == "-":
        raise UsageError("-o - : the answer is on standard output anyway", "Give -o a file, or leave it out")
    if os.path.isdir(path):
        raise UsageError(f"Cannot write the answer to {path}: it is a directory", "Give -o a file")
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"Cannot write the answer to {path}: there is no directory {folder}", "Make it first")
    fits = not os.path.exists(path) or os.access(path, os.W_OK)
    if _replaced(path):
        fits = fits and os.access(folder, os.W_OK | os.X_OK)
    if not fits:
        raise UsageError(f"Cannot write the answer to {path}", "Give -o a file in a directory that you may write")


def write(path: str, text: str) -> None:
    """Write the answer with a final newline. Raises: OSError; a pipe that nobody reads is one, not a wait."""
    data = text.encode("utf-8", "replace")
    data = data if data.endswith(b"\n") or not data else data + b"\n"
    if not _replaced(path):
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "wb") as file:
            os.set_blocking(fd, True)
            file.write(data)
        return
    path = os.path.realpath(path)
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file:
            if os.path.exists(path):
                os.fchmod(file.fileno(), stat.S_IMODE(os.stat(path).st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(part)
        raise


def _replaced(path: str) -> bool:
    """Whether a file takes its place in one step: what is there is a regular file, or nothing."""
    return not os.path.exists(path) or os.path.isfile(path)
