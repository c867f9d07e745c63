"""The writer of one log: the order of operations that makes an append and a rewrite safe against a crash.

Append: one write, fsync; an error cuts the file back to what it was. Rewrite: the new file is whole and synced under
another name, the old one has its archive name durably, and only then does the path change hands. Before the first
append the file's name is made durable, so that a crash cannot bring back a file that a rewrite had replaced.

It does not know what the bytes mean. All methods raise OSError; `agent.session` says it in words.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from agent.errors import StorageError
from agent.log.disk import (
    Disk,
    digest_file,
    explained,
    forget,
    keep_copy,
    make_side_directory,
    save_aside,
    write_all,
    write_new,
)

BATCH = 1 << 20
"""Bytes per write of a rewrite."""


def in_batches(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines, joined into pieces of about a megabyte."""
    batch, size = [], 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= BATCH:
            yield b"".join(batch)
            batch, size = [], 0
    yield b"".join(batch)


# ---- effects ---------------------------------------------------------------------------------------------------------


class Writer:
    """An open log. `size` is the number of bytes known to be good and durable; `fd` may be read from."""

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self._stem = path.removesuffix(".jsonl")
        self._name = os.path.basename(self._stem)
        self._disk = disk
        self.fd = disk.open(path)
        self.size = os.fstat(self.fd).st_size
        self._dirty = False
        """A failed append may have left bytes after `size`."""
        self._digest: tuple[tuple[int, int, int], str] = ((0, 0, 0), "")
        """What the file was, and its digest then."""
        self._settled = False
        """The name in the directory is known to be durable."""

    @classmethod
    def new(cls, path: str, first_line: bytes, disk: Disk) -> Writer:
        """A new file that holds one line, durable with its name; nothing is left behind on an error."""
        disk.close(disk.create(path))
        writer = None
        try:
            writer = cls(path, disk)
            writer.put(first_line)
        except BaseException:
            if writer is not None:
                writer.close()
            forget(disk, path)
            raise
        return writer

    def close(self) -> None:
        self._disk.close(self.fd)

    def digest(self) -> str:
        """SHA-256 of the file, hex; it is not read again while it is as it was."""
        about = os.fstat(self.fd)
        mark = (about.st_ino, about.st_size, about.st_ctime_ns)
        if self._digest[0] != mark:
            self._digest = (mark, digest_file(self.path))
        return self._digest[1]

    def put(self, data: bytes) -> None:
        """Bytes at the end, durable when this returns; on an error the file is as it was."""
        try:
            if self._dirty:
                self._cut_back()
            self._settle()
            write_all(self._disk, self.fd, data)
            self._disk.fsync(self.fd)
            self.size += len(data)
        except BaseException:  # also Ctrl-C between write and fsync
            self._dirty = True
            try:
                self._cut_back()
            except OSError:
                pass  # tried again before the next append; if there is none, it is a torn tail
            raise

    def _cut_back(self) -> None:
        self._disk.truncate(self.fd, self.size)
        self._disk.fsync(self.fd)
        self._dirty = False

    def _settle(self) -> None:
        if not self._settled:
            self._disk.fsync_dir(os.path.dirname(self.path))
            self._settled = True

    def set_aside(self, tail: bytes) -> str:
        """Copy the torn bytes at the end to a side file, durably; only then cut them off. The side file's path."""
        target = save_aside(self._disk, f"{self._stem}.archive", "torn", tail)
        self.size -= len(tail)
        self._cut_back()
        return target

    def replace(self, lines: Iterable[bytes], archive: str, *, silent: bool = False) -> None:
        """Make `lines` the log, and the present file `archive`. On an error the log is as it was.

        `silent`: the log goes on to say that it was last written to when it was.
        """
        if self._dirty:
            self._cut_back()
        temporary = f"{self._stem}.tmp"
        forget(self._disk, temporary)
        written = os.fstat(self.fd).st_mtime_ns if silent else None
        fd = write_new(self._disk, temporary, in_batches(lines), written)
        try:
            make_side_directory(self._disk, os.path.dirname(archive))
            if os.path.lexists(archive):  # this very file: a rewrite stopped half-way, before the path changed
                self._disk.fsync_dir(os.path.dirname(archive))
            else:
                keep_copy(self._disk, self.path, archive)
            self._disk.replace(temporary, self.path)
        except BaseException:
            self._disk.close(fd)
            forget(self._disk, temporary)
            raise
        self._disk.close(self.fd)
        self.fd, self.size, self._settled = fd, os.fstat(fd).st_size, False
        try:
            self._settle()
        except OSError:
            pass  # the rewrite stands; its name is made durable before the next append

    def check_owned(self) -> None:
        """Raises StorageError unless the path still leads to this file and nobody else wrote to it."""
        mine = os.fstat(self.fd)
        try:
            there = os.lstat(self.path)
        except OSError as error:
            raise explained(error, f"write to session {self._name}") from error
        grown = mine.st_size != self.size and not self._dirty
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino) or grown:
            raise StorageError(
                f"session {self._name} was changed by another program during this run; nothing was written over it",
                "Run the same command again",
            )
