"""Disks for tests: one that is quick, one that fails on cue, one that records, and the worlds a crash may leave.

`worlds` is a model of what POSIX promises: a file's bytes are safe once the file was synced, a name once its directory
was. Whatever was not safe when the power went may be there or not, in any combination; a write may be there whole,
half, or as zeros (the length reached the disk and the bytes did not).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.log.disk import Disk


class Quick(Disk):
    """Syncs nothing: for states that are looked at and thrown away."""

    def fsync(self, fd: int) -> None:
        pass

    def fsync_dir(self, path: str) -> None:
        pass


CUTS = int(os.environ.get("AGENT_TEST_CUTS", "60"))
"""Places at which a write is cut by a kill; a large number means every byte."""


class Killed(BaseException):
    """The process died here: nothing after it runs but what the kernel does."""


OPERATIONS = ("create", "open", "write", "fsync", "truncate", "date", "link", "replace", "unlink", "mkdir", "fsync_dir")


class Failing(Disk):
    """Fails operations with `error`: the one numbered `nth` (from 1), or all from it on with `forever`.

    A failing write first takes half of its bytes, as a disk that fills up does. `dead`: after the failure even the
    clean-up fails, as for a killed process.
    """

    def __init__(self, nth: int, error: BaseException, *, forever: bool = False) -> None:
        self.nth, self.error, self.forever, self.count = nth, error, forever, 0
        self.names: list[str] = []

    def _due(self, name: str) -> bool:
        self.count += 1
        self.names.append(name)
        return self.count == self.nth or (self.forever and self.count > self.nth)

    def __getattribute__(self, name: str) -> Any:
        method = super().__getattribute__(name)
        if name not in OPERATIONS:
            return method

        def tried(*args: Any) -> Any:
            if self._due(name):
                if name == "write":
                    method(args[0], bytes(args[1])[: len(args[1]) // 2])
                raise self.error
            return method(*args)

        return tried


@dataclass(frozen=True)
class Op:
    """One recorded operation. `ino` is the file, `path` the name it changes, `data` and `at` a write's bytes."""

    kind: str
    ino: int = 0
    path: str = ""
    source: str = ""
    at: int = 0
    data: bytes = b""


class Recorder(Quick):
    """Does everything, and writes down what changed the disk and what made it safe."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.kill_at: int | None = None
        """From operation number `kill_at` (from 0) on, `Killed` is raised instead: the process does nothing more."""

    def _note(self, op: Op) -> None:
        if len(self.ops) == self.kill_at:
            raise Killed
        self.ops.append(op)

    def create(self, path: str) -> int:
        fd = super().create(path)
        try:
            self._note(Op("create", os.fstat(fd).st_ino, path))
        except Killed:
            os.close(fd)
            os.unlink(path)
            raise
        return fd

    def write(self, fd: int, data: bytes | memoryview) -> int:
        status = os.fstat(fd)
        self._note(Op("write", status.st_ino, at=status.st_size, data=bytes(data)))
        return super().write(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        self._note(Op("truncate", os.fstat(fd).st_ino, at=size))
        super().truncate(fd, size)

    def fsync(self, fd: int) -> None:
        self._note(Op("sync", os.fstat(fd).st_ino))

    def date(self, fd: int, written: int) -> None:
        self._note(Op("date", os.fstat(fd).st_ino, at=written))
        super().date(fd, written)

    def link(self, source: str, target: str) -> None:
        self._note(Op("link", os.stat(source).st_ino, target))
        super().link(source, target)

    def replace(self, source: str, target: str) -> None:
        self._note(Op("replace", os.stat(source).st_ino, target, source))
        super().replace(source, target)

    def unlink(self, path: str) -> None:
        os.stat(path)  # what is not there is not worth a line
        self._note(Op("unlink", path=path))
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self._note(Op("mkdir", path=path))
        super().mkdir(path)

    def fsync_dir(self, path: str) -> None:
        self._note(Op("syncdir", path=path))


class CopyingRecorder(Recorder):
    """A file system that refuses hard links."""

    def link(self, source: str, target: str) -> None:
        raise PermissionError(1, "no links here")


@dataclass
class World:
    """A state of the disk: files by number, when each was last written (0: just now), names, directories."""

    files: dict[int, bytes] = field(default_factory=dict)
    dates: dict[int, int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, root: Path) -> World:
        """What is on the real disk under `root`."""
        world = cls(folders={str(root)})
        for path in root.rglob("*"):
            if path.is_dir():
                world.folders.add(str(path))
            elif path.suffix != ".lock":
                world.names[str(path)] = path.stat().st_ino
                world.files[path.stat().st_ino] = path.read_bytes()
                world.dates[path.stat().st_ino] = path.stat().st_mtime_ns
        return world

    def copy(self) -> World:
        return World(dict(self.files), dict(self.dates), dict(self.names), set(self.folders))

    def lay_out(self, root: Path, onto: Path) -> None:
        """Make this state real under `onto`, an empty directory. A name whose directory was lost is lost."""
        for path, ino in self.names.items():
            if os.path.dirname(path) in self.folders:
                target = onto / os.path.relpath(path, root)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(self.files.get(ino, b""))

    def apply(self, op: Op, how: str = "whole") -> None:
        """One operation reaching the disk; `how` is for writes: whole, half or zeros."""
        if op.kind == "create":
            self.names[op.path] = op.ino
            self.files.setdefault(op.ino, b"")
        elif op.kind == "write":
            data = {"whole": op.data, "half": op.data[: len(op.data) // 2], "zeros": bytes(len(op.data))}[how]
            before = self.files.get(op.ino, b"")
            self.files[op.ino] = before[: op.at].ljust(op.at, b"\0") + data + before[op.at + len(data) :]
            self.dates[op.ino] = 0
        elif op.kind == "date":
            self.dates[op.ino] = op.at
        elif op.kind == "truncate":
            self.files[op.ino] = self.files[op.ino][: op.at]
        elif op.kind == "link":
            self.names[op.path] = op.ino
        elif op.kind == "replace":
            self.names.pop(op.source, None)
            self.names[op.path] = op.ino
        elif op.kind == "unlink":
            self.names.pop(op.path, None)
        elif op.kind == "mkdir":
            self.folders.add(op.path)


def is_safe(op: Op, later: list[Op]) -> bool:
    """True when something after `op` made it survive a loss of power."""
    if op.kind in ("write", "truncate", "date"):
        return any(o.kind == "sync" and o.ino == op.ino for o in later)
    return any(o.kind == "syncdir" and o.path == os.path.dirname(op.path) for o in later)


def choices(op: Op) -> tuple[str, ...]:
    """What may be left of an operation that was not safe."""
    return ("lost", "half", "zeros", "whole") if op.kind == "write" else ("lost", "whole")


def after_power_loss(start: World, ops: list[Op]) -> Iterator[World]:
    """Every state the disk may be in when the power goes after `ops`."""
    changes = [op for op in ops if op.kind not in ("sync", "syncdir")]
    safe = [is_safe(op, ops[ops.index(op) + 1 :]) for op in changes]
    for picks in itertools.product(*(("whole",) if s else choices(op) for op, s in zip(changes, safe, strict=True))):
        world = start.copy()
        for op, how in zip(changes, picks, strict=True):
            if how != "lost":
                world.apply(op, how)
        yield world


def after_kill(start: World, ops: list[Op]) -> Iterator[World]:
    """The states when the process dies in `ops[-1]`: all before it is there, a write is there up to any of its cuts."""
    world = start.copy()
    for op in ops[:-1]:
        world.apply(op)
    yield world.copy()
    if ops and ops[-1].kind == "write":
        data = ops[-1].data
        for cut in [*range(1, len(data), 1 + len(data) // CUTS), len(data) - 1]:
            torn = world.copy()
            torn.apply(Op("write", ops[-1].ino, at=ops[-1].at, data=data[:cut]))
            yield torn
    if ops:
        world.apply(ops[-1])
        yield world


def worlds(start: World, ops: list[Op]) -> Iterator[tuple[int, World]]:
    """(how many operations were issued, state) for every place at which a crash can come."""
    for count in range(len(ops) + 1):
        for world in itertools.chain(after_kill(start, ops[:count]), after_power_loss(start, ops[:count])):
            yield count, world
