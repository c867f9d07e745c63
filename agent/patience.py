"""Patience: a line on a terminal that says what is waited for, and for how long.

It comes when nothing was shown for a while, counts the seconds, and is gone before anything else is written. It knows
neither what it waits for nor when that comes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from agent.signals import held

FIRST, STEP = 3.0, 1.0
"""Seconds until the line comes, and from one count to the next."""


class Patience:
    """Begins when it is made; `what` may be changed meanwhile. Until `end` nobody else may write where it writes."""

    def __init__(self, write: Callable[[bytes], None], what: str, after: float = 0.0) -> None:
        """`after` seconds more than usual pass before it comes."""
        self.what = what
        self._after = after
        self._write = write
        self._began = time.monotonic()
        self._over = threading.Event()
        self._shown = False
        self._thread = threading.Thread(target=self._count, daemon=True)
        with held():  # a signal is for the main thread alone
            self._thread.start()

    def _count(self) -> None:
        wait = FIRST + self._after
        while not self._over.wait(wait):
            seconds = time.monotonic() - self._began
            self._write(f"\r\x1b[K{self.what} … {seconds:.0f} s".encode())
            self._shown, wait = True, STEP

    def end(self) -> None:
        """Take the line away. May be called again."""
        self._over.set()
        self._thread.join()
        if self._shown:
            self._write(b"\r\x1b[K")
            self._shown = False
