"""`-o FILE`: the answer in a file too, whole or not at all.

A regular file, or the one a symlink points to, is replaced in one step by one with its mode. What is no regular file (a
terminal, a pipe, /dev/null) is written to and never replaced. Whether it can be written is asked before the first
request is paid for. A file that standard output or standard error goes to is refused: replaced, it would be lost.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from agent.errors import UsageError

STREAMS = {
    "standard output": (1, ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")),
    "standard error": (2, ("/dev/stderr", "/dev/fd/2", "/proc/self/fd/2")),
}
"""Each with its descriptor and the names it goes by."""


def check(path: str) -> None:
    """Raises: UsageError when an answer could not be written there."""
    _refuse_streams(path)
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


def _refuse_streams(path: str) -> None:
    """Raises: UsageError for a name of standard output or error, and for the file that one of them goes to."""
    for stream, (fd, names) in STREAMS.items():
        if os.path.normpath(path) in names:
            why = "the answer is on standard output anyway" if fd == 1 else f"that is {stream}, not a file"
            raise UsageError(f"-o {path} : {why}", "Give -o a file, or leave it out")
        if _goes_to(fd, path):
            why = f"{stream} goes to that file, which would be replaced"
            raise UsageError(f"Cannot write the answer to {path}: {why}", "Give -o another file, or leave it out")


def _goes_to(fd: int, path: str) -> bool:
    """Whether the descriptor writes into the regular file at `path`."""
    try:
        mine = os.fstat(fd)
        return stat.S_ISREG(mine.st_mode) and os.path.samestat(mine, os.stat(path))
    except OSError:
        return False


def _replaced(path: str) -> bool:
    """Whether a file takes its place in one step: what is there is a regular file, or nothing."""
    return not os.path.exists(path) or os.path.isfile(path)
