"""Who may write: one process a session, for its whole run.

The lock is `flock` on `<id>.lock`, a file beside the log and not the log itself, whose inode changes at a rewrite. The
kernel lets go of it when the process ends, however it ends, so a stale lock file is no obstacle and is never removed
to "break" a lock. The file's content, the owner's pid, is for people only; nothing is decided by it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from agent.errors import SessionBusy
from agent.log.disk import FILE_MODE, explained

POLL = 0.05
"""Seconds between two tries while waiting."""

_UNSUPPORTED = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


# ---- effects ---------------------------------------------------------------------------------------------------------


class Lock:
    """A held lock. `notices` has a sentence when the file system cannot lock at all."""

    def __init__(self, path: str, *, wait: float = 0.0) -> None:
        """Take it, trying for `wait` seconds. Raises: SessionBusy (naming the owner), StorageError."""
        self.path = path
        self.notices: list[str] = []
        deadline = time.monotonic() + wait
        while True:
            self._fd = _open(path)
            if self._try():
                break
            owner = _owner(self._fd)
            os.close(self._fd)
            if time.monotonic() >= deadline:
                name = os.path.basename(path).removesuffix(".lock")
                by = f" (process {owner})" if owner else ""
                still = f"is still in use after {wait:g} s" if wait else "is in use by another run"
                longer = "Wait longer" if wait else "Wait for it with --wait SECONDS"
                raise SessionBusy(f"session {name} {still}{by}", f"{longer}; a turn can go on in a copy: --fork")
            time.sleep(POLL)
        self._sign()

    def _try(self) -> bool:
        """True when the lock is ours *and* the file still has its name (a removed session takes its lock with it)."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise explained(error, f"lock {self.path}") from error
            self.notices = ["this file system cannot lock files: do not run two turns of one session at once"]
        try:
            return os.fstat(self._fd).st_ino == os.stat(self.path).st_ino
        except FileNotFoundError:
            return False

    def _sign(self) -> None:
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)
        except OSError:
            pass  # a full disk does not make the lock less held

    def release(self) -> None:
        """Let go. Safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open(path: str) -> int:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, FILE_MODE)
        os.fchmod(fd, FILE_MODE)
    except OSError as error:
        raise explained(error, f"lock the session at {path}") from error
    return fd


def _owner(fd: int) -> int:
    """The pid that the holder wrote, or 0 when it has not yet."""
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else 0
