"""A foreign file as it is read: regular, not too large, its digest, and its JSON lines one at a time.

Nothing is written and no lock is taken; a file that another program is still writing is read as far as it goes.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from agent.importers.conversation import Conversation, Unreadable
from agent.log.entries import BOM, parse

LIMIT = 1 << 30
"""Bytes of one file. A conversation beyond it is a dump of something else."""
BLOCK = 1 << 20
HEAD = 1 << 16
SQLITE = b"SQLite format 3\0"

_COMPRESSED = {
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"PK\x03\x04": ("zip", "unzip"),
}

Progress = Callable[[int, int], None]


@dataclass
class Source:
    """One file: its path as given, `size` in bytes, its first `HEAD` bytes; `progress(done, of)` is told how far."""

    path: str
    size: int
    head: bytes
    progress: Progress = lambda done, of: None
    force: bool = False
    """Read also what lacks its beginning."""
    bad: int = field(default=0, init=False)
    """Lines that are no JSON object, counted by `records`."""

    def sha256(self) -> str:
        """Hex digest of the whole file. Raises OSError."""
        import hashlib

        digest, done = hashlib.sha256(), 0
        with open(self.path, "rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
                done += len(block)
                self.progress(done // 2, self.size)
        return digest.hexdigest()

    def text(self) -> str:
        """The whole file as text with plain line ends; bytes that are not UTF-8 become U+FFFD."""
        with open(self.path, "rb") as file:
            return file.read().removeprefix(BOM).decode("utf-8", "replace").replace("\r\n", "\n")

    def whole(self) -> dict[str, Any]:
        """The one JSON object that the file is, over however many lines; {} when it is none."""
        if not self.head.removeprefix(BOM).lstrip().startswith(b"{"):
            return {}
        try:
            with open(self.path, "rb") as file:
                value = parse(file.read().removeprefix(BOM))
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def records(self, conversation: Conversation | None = None) -> Iterator[dict[str, Any]]:
        """The JSON objects of the lines, in order. Lines that are none are counted in `bad` and as dropped."""
        done = 0
        with open(self.path, "rb") as file:
            for line in file:
                done += len(line)
                self.progress(self.size // 2 + done // 2, self.size)
                line = line.removeprefix(BOM).strip(b" \t\r\n")
                if not line:
                    continue
                try:
                    record = parse(line)
                except ValueError:
                    record = None
                if isinstance(record, dict):
                    yield record
                    continue
                self.bad += 1
                if conversation is not None:
                    conversation.drop("unreadable lines")


def open_source(path: str, progress: Progress = lambda done, of: None, force: bool = False) -> Source:
    """The file, looked at. Raises Unreadable for whatever is no file of a conversation, with one sentence."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                every = f"find {shlex.quote(path)} -type f -exec agent sessions import {{}} +"
                raise Unreadable("it is a directory", f"Name its files: {every}")
            if not stat.S_ISREG(status.st_mode):
                raise Unreadable("it is no regular file", "Save it to a file first")
            head = os.read(fd, HEAD)
        finally:
            os.close(fd)
    except (OSError, ValueError) as problem:
        raise Unreadable(getattr(problem, "strerror", None) or str(problem), "Check the path") from None
    if not head:
        raise Unreadable("it is empty", "There is nothing to import")
    for magic, (name, tool) in _COMPRESSED.items():
        if head.startswith(magic):
            raise Unreadable(f"it is compressed ({name})", f"Unpack it first: {tool} {path}")
    if status.st_size > LIMIT:
        raise Unreadable(f"it is larger than {LIMIT >> 30} GB", "Cut it into conversations first")
    return Source(path, status.st_size, head, progress, force)
