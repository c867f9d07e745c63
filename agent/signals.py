"""Signals and the wall clock: what ends a run early.

SIGINT, SIGTERM, SIGHUP and `--timeout` raise `Stopped` once; it is a KeyboardInterrupt, so that no `except Exception`
on the way swallows it. A second signal ends the process at once: the log is whole at every instant, so there is nothing
to wait for.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agent.errors import Exit, Interrupted

_TEXTS = {
    signal.SIGINT: (Exit.INTERRUPTED, "Interrupted"),
    signal.SIGTERM: (143, "Terminated"),
    signal.SIGHUP: (129, "The terminal was closed"),
    signal.SIGALRM: (Exit.TIMEOUT, "Time is up (--timeout)"),
}
_ALL = frozenset(_TEXTS)


class Stopped(KeyboardInterrupt):
    """The run was told to stop; `exit_code` says by what."""

    def __init__(self, number: int) -> None:
        self.exit_code, self.text = _TEXTS[signal.Signals(number)]
        super().__init__(self.text)


def as_error(stop: KeyboardInterrupt, way_on: str) -> Interrupted:
    """The error a stopped run ends with. `way_on` is the command that continues its session, "" where none is kept."""
    text = getattr(stop, "text", "Interrupted")
    told = f'{text}; everything received so far is saved. Continue: {way_on} "go on"' if way_on else text
    return Interrupted(told, int(getattr(stop, "exit_code", Exit.INTERRUPTED)))


def end_at_once() -> None:
    """While modules load Ctrl-C ends the process, as nothing is open yet: a KeyboardInterrupt in the middle of its loading
    makes orjson crash."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_again() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt."""
    import orjson  # noqa: F401  the last moment

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def stopping() -> Iterator[None]:
    """Within: the first signal raises `Stopped` in the main thread, the second ends the process."""
    stopped = False

    def stop(number: int, frame: Any) -> None:
        nonlocal stopped
        if stopped:
            os._exit(128 + number)
        stopped = True
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in _ALL if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """Within: a signal waits until the end. For a call whose result must be in hand before anything is raised."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_after(seconds: float | None) -> None:
    """Start the wall clock of `--timeout`; None starts none."""
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
