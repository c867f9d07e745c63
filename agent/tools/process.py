"""One child process, watched from start to finish: its output, its time, its descendants.

Invariants: memory is bounded whatever the child prints; nothing the child started outlives the call, also not what
left its process group or ignores SIGTERM; a child that has ended is not waited for because something it left behind
holds the pipe. Descendants are found because the agent is their *subreaper*: orphans of a command become children of
the agent (Linux; elsewhere only the process group is ended).

Not for use from several threads at once: a second command's processes would be taken for left-overs of the first.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import BinaryIO, NamedTuple, Protocol

GRACE_AFTER_EXIT = 0.15
"""Seconds that output still on its way is waited for, once the command itself has ended."""
GRACE_AFTER_TERM = 0.4
MOST_OUTPUT = 256 * 1024 * 1024
"""Bytes of output after which a command is stopped."""
MOST_PROCESSES = 1_000
"""Processes of one command at a time, beyond which it counts as a fork bomb."""
KEPT = 512 * 1024
"""Bytes kept in memory of each end of the output."""
_MOST_SPILLED = 64 * 1024 * 1024
LARGEST_PIPE = 1 << 20
"""Bytes that an ordinary user's pipe may hold, at most."""
_PIECE = 1 << 18
_CAN_LOOK = hasattr(os, "waitid")
_HELD = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM}


class Ended(NamedTuple):
    """How a command ended. `exit_code` is 128 + N for signal N. `why` is "", "timeout", "output" or "processes"."""

    exit_code: int
    why: str
    left_over: int


class Output:
    """The output of a command: both ends in memory, all of it (to a limit) in a file once it outgrows memory.

    `open_spill` makes that file when it is first needed. Where that cannot be, or the disk is full, `problem` says why and
    only both ends are kept: the command goes on.
    """

    def __init__(self, open_spill: Callable[[], BinaryIO]) -> None:
        self._open_spill = open_spill
        self.spill: BinaryIO | None = None
        self.problem = ""
        self.size = 0
        self._spilled = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, piece: bytes) -> None:
        """Take the next bytes."""
        self.size += len(piece)
        room = max(0, KEPT - len(self._head))
        self._head += piece[:room]
        self._tail += piece[room:]
        if self.spill is not None:
            if self._spilled < _MOST_SPILLED:
                self._write(piece)
        elif self.size > 2 * KEPT:
            self.spill_all()
        if len(self._tail) > 2 * KEPT:
            del self._tail[:-KEPT]

    def spill_all(self) -> None:
        """Have everything so far in the spill file, unless that was tried in vain."""
        if self.spill is None and not self.problem:
            self._write(bytes(self._head + self._tail))

    def _write(self, piece: bytes) -> None:
        try:
            self.spill = self.spill or self._open_spill()
            self._spilled += self.spill.write(piece)
            self.spill.flush()
        except OSError as error:
            self.problem = error.strerror or str(error)
            self.close()
            self.spill = None

    def close(self) -> None:
        """Close the spill file, if there is one."""
        if self.spill is not None:
            with suppress(OSError):
                self.spill.close()

    @property
    def complete(self) -> bool:
        """Whether the spill (or memory) holds every byte."""
        return not self.problem and (self.spill is None or self._spilled == self.size)

    @property
    def overflowed(self) -> bool:
        """Whether memory holds only both ends."""
        return self.size > len(self._head) + len(self._tail)

    def ends(self) -> tuple[bytes, bytes]:
        """The first bytes and the last ones; together the whole output when it is not larger than both."""
        if not self.overflowed:
            return bytes(self._head + self._tail), b""
        return bytes(self._head), bytes(self._tail[-KEPT:])


def descendants(roots: set[int], parents: Mapping[int, int]) -> set[int]:
    """`roots` and every process that comes from one, by a map of processes to their parents."""
    found = set(roots)
    new: set[int] = set(roots)
    while new:
        new = {pid for pid, parent in parents.items() if parent in found} - found
        found |= new
    return found


# ---- effects ----


class Attended(Protocol):
    """Something else to answer while a command runs: `answer` is called when `fileno()` is readable."""

    def fileno(self) -> int: ...

    def answer(self) -> None: ...


def watch(
    child: subprocess.Popen[bytes],
    output: Output,
    timeout: float,
    known: set[int],
    attended: Attended | None = None,
) -> Ended:
    """Read `child.stdout` until the child has ended or has to be ended.

    `timeout` is in seconds; `known` are the `children()` before this one was started. Descendants are gone when this
    returns or raises.
    """
    pipe = child.stdout
    assert pipe is not None
    os.set_blocking(pipe.fileno(), False)
    why = "interrupted"
    left_over = 0
    try:
        pump = _Pump(child, pipe.fileno(), output, known, attended)
        why = pump.run(timeout)
        if why in ("timeout", "output"):
            signal_group(child, signal.SIGTERM)
            pump.run(GRACE_AFTER_TERM)
    finally:
        held = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)  # a second Ctrl-C waits until all is gone
        try:
            left_over = end_all(child, known)
            drain(pipe.fileno(), output)
            pipe.close()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
    code = child.returncode
    return Ended(124 if why == "timeout" else code if code >= 0 else 128 - code, why, left_over)


def drain(pipe: int, output: Output) -> None:
    """What was printed and not yet read when waiting ended: as much as a pipe holds."""
    os.set_blocking(pipe, False)
    read = 0
    with suppress(BlockingIOError):
        while read < LARGEST_PIPE and (piece := os.read(pipe, _PIECE)):
            output.add(piece)
            read += len(piece)


class _Pump:
    """Waits for output, the end of the child, and whatever else is attended to."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        pipe: int,
        output: Output,
        known: set[int],
        attended: Attended | None,
    ) -> None:
        self._child = child
        self._known = known
        self._pipe = pipe
        self._output = output
        self._attended = attended
        self._tasks = tasks()
        self._at_end = False
        self._counted = 0.0

    def run(self, timeout: float) -> str:
        """Wait; the answer is why waiting ended: "" when the child has."""
        poller = select.poll()
        if not self._at_end:
            poller.register(self._pipe, select.POLLIN)
        if self._attended is not None:
            poller.register(self._attended.fileno(), select.POLLIN)
        ending = os.pidfd_open(self._child.pid) if hasattr(os, "pidfd_open") else -1
        try:
            if ending >= 0:
                poller.register(ending, select.POLLIN)
            return self._wait(poller, time.monotonic() + timeout, ending)
        finally:
            if ending >= 0:
                os.close(ending)

    def _wait(self, poller: select.poll, deadline: float, ending: int) -> str:
        ended = False
        while True:
            now = time.monotonic()
            if not ended and has_ended(self._child):
                ended, deadline = True, min(deadline, now + GRACE_AFTER_EXIT)
                if ending >= 0:
                    poller.unregister(ending)  # it stays readable: waiting would not wait
            if ended and (self._at_end or now >= deadline):
                return ""
            if not ended and (why := self._limit(now, deadline)):
                return why
            tick = 0.1 if ending >= 0 else 0.01
            for descriptor, _ in poller.poll(max(0.0, min(tick, deadline - now)) * 1000):
                if descriptor == self._pipe:
                    self._read(poller)
                elif self._attended is not None and descriptor == self._attended.fileno():
                    self._attended.answer()

    def _limit(self, now: float, deadline: float) -> str:
        if now >= deadline:
            return "timeout"
        if self._output.size > MOST_OUTPUT:
            return "output"
        if now - self._counted > 0.05:
            self._counted = now
            if tasks() - self._tasks > MOST_PROCESSES and self._descendants() > MOST_PROCESSES:
                return "processes"
        return ""

    def _descendants(self) -> int:
        """How many processes come from the command, orphans included: others may be busy on this machine."""
        return len(descendants({self._child.pid} | (children() - self._known), parents()))

    def _read(self, poller: select.poll) -> None:
        try:
            piece = os.read(self._pipe, _PIECE)
        except BlockingIOError:
            return
        if piece:
            self._output.add(piece)
        else:
            self._at_end = True
            poller.unregister(self._pipe)


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether the child has ended; it is not reaped, so that its process group keeps its number (macOS has no way)."""
    if child.returncode is not None or not _CAN_LOOK:
        return child.poll() is not None
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_all(child: subprocess.Popen[bytes], known: set[int]) -> int:
    """Kill the child's group and every descendant, reap them, and say how many had been left running."""
    alive = {pid for pid in children() - known - {child.pid} if _is_alive(pid)} if has_ended(child) else set()
    signal_group(child, signal.SIGKILL)
    child.wait()
    deadline = time.monotonic() + 5
    empty = 0
    while empty < 2 and time.monotonic() < deadline:
        strays = children() - known
        for pid in strays:
            _kill_and_reap(pid)
        empty = 0 if strays else empty + 1
        if strays:
            time.sleep(0.002)
    return len(alive)


def _kill_and_reap(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, os.WNOHANG)
    except (ProcessLookupError, ChildProcessError):
        pass


def signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the child's process group, unless the child is reaped: the number may be another's then."""
    if child.returncode is not None and _CAN_LOOK:
        return
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # ended already; macOS says "not permitted" of a zombie's group


def children() -> set[int]:
    """The processes that are children of this one, zombies included; empty where the system does not tell."""
    found: set[int] = set()
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children") as file:
                found.update(map(int, file.read().split()))
    except OSError:
        return set()
    return found


def tasks() -> int:
    """How many tasks run on this system; 0 where the system does not tell."""
    try:
        with open("/proc/loadavg") as file:
            return int(file.read().split()[3].split("/")[1])
    except (OSError, ValueError, IndexError):
        return 0


def parents() -> dict[int, int]:
    """Every process of this system and its parent; empty where the system does not tell."""
    found = {}
    try:
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError), open(f"/proc/{pid}/stat") as file:
                found[int(pid)] = int(file.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return {}
    return found


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            name, state = file.read().split("(", 1)[1].rsplit(")", 1)
        return state.split()[0] not in ("Z", "X") and name != "bwrap"  # the sandbox's own process is no left-over
    except OSError:
        return False
