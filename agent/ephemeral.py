"""A session that leaves nothing on disk (`--no-session`): the same interface, generations kept in memory.

Spilled outputs need a file all the same; they go to a private temporary directory that is removed at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.entries import Entry
from agent.logfile import fresh_meta, new_id
from agent.session import Session


class Ephemeral(Session):
    """`Session` with the three places that touch the disk replaced."""

    def __init__(self, meta: Entry) -> None:
        id = new_id()
        super().__init__("")
        self.id = id
        self.meta = fresh_meta(meta, id)
        self._archived: list[tuple[str, Entry, list[Entry]]] = []
        self._folder = ""

    def generations(self) -> Iterator[tuple[str, Entry, list[Entry]]]:
        yield from self._archived
        yield "current", self.meta, self.entries

    def files_dir(self) -> str:
        if not self._folder:
            import tempfile

            self._folder = tempfile.mkdtemp(prefix="agent-")
        return self._folder

    def close(self) -> None:
        if self._folder:
            import shutil

            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""

    def _write(self, line: bytes) -> None:
        pass  # the entry in memory is all there is

    def _replace(self, meta: Entry, counts: dict[str, int], entries: list[Entry]) -> str:
        name = f"{len(self._archived) + 1:04d}"
        self._archived.append((name, self.meta, self.entries))
        self.meta = meta | {"counts": counts | {"generation": len(self._archived)}}
        self.entries = list(entries)
        return name
