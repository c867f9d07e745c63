"""The log: one session, one file, and the promise that nothing in it is ever lost.

THE FORMAT, version 1. A session is `<id>.jsonl` in the store: UTF-8, one JSON object a line, lines end in LF and are
split on LF only. The first line is `meta`; every other entry has `n`, a number that is never used again in the
session's life and so names the entry for ever, and `at`, an RFC 3339 time in UTC.

    meta        {"type":"meta","version":1,"id","created_at","cwd","model","name"?,"parent"?:{"id","n"},
                 "counts":{"n","requests","generation","compactions"},"archived"?:{"name","bytes","sha256"}, ...}
    message     {"type":"message","n","at","message":{role, content, tool_calls?, tool_call_id?}, ...}
                 an answer adds "model", "finish_reason", "usage", "request":{"k","sha256","messages","dialect"?},
                 "interrupted"?; a result adds "tool":{"name","ok","seconds",...}; "summary":true marks a summary;
                 "pruned":true marks a message shortened in place, whose original stands in an earlier generation
    compaction  {"type":"compaction","n","at","reason","strategy","folded","kept","archive","tokens","checks",...}
    undo        {"type":"undo","n","at","undid":<n>,"archive","redo"?:true}
    failed      {"type":"failed","n","at","prompt":<n>,"error":{"kind","text"}}: a turn that failed

Ledger: 0, the file of a smaller program (no `version`, no `n`: an entry's place is its `n`); 1, this one. A file of a
later version is read, never written. Types and keys that a version does not know are kept.

GENERATIONS. A rewrite (compaction, prune, undo, redo, rename, repair) makes a new file and keeps the whole old one as
`<id>.archive/NNNN.jsonl`, never touched again. `meta.counts` says what had been used up when a generation began, so
opening reads one file however long the life; `meta.archived` holds the SHA-256 of the file before, so the generations
are a chain in which no byte can change unseen. `request.k` counts task requests from 1 over the life: request K was
made in the last generation whose `counts.requests` is below K, from the entries before the answer that carries K.

WRITING. Append: one write with the newline, then fsync; an error cuts the file back. Rewrite: temporary file, fsync;
link the old file into the archive (copy where links are refused), fsync that directory; replace; fsync the directory.
The path is a whole log at every instant, and the archive is durable before the path changes.

DAMAGE. A line that ends in LF was promised; what stands after the last LF was not.
    unterminated, parses          it gets its LF, with a notice
    unterminated, does not parse  (torn record, NUL block) moved to `<id>.archive/torn-NNNN`, with a notice
    terminated and bad            `SessionCorrupt` naming the line, before anything is written: bad JSON, NULs, bytes
                                  not UTF-8, two records on one line, a record broken by a raw newline, no type
    BOM at the start of the file  ignored, with a notice;  CRLF: the CR is white space;  blank lines: ignored
    lone surrogates (escaped)     kept as they are, written back as escapes
    no meta line                  the session opens with one made up, with a notice
    an empty file                 the session opens without messages, and gets a meta line
`agent.mend` repairs what is corrupt. No byte is ever dropped: each is in the log, an archive, or a side file.

Side files: `<id>.lock`, `<id>.archive/` (generations, torn tails, quarantined lines), `<id>.files/` (spilled outputs,
backups), `<id>.tmp` (a rewrite that was not finished; no session). It does not know what a summary, a tool or a token
is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from agent.disk import (
    DISK,
    Disk,
    digest_file,
    explained,
    forget,
    keep_copy,
    make_directory,
    make_side_directory,
    save_aside,
    storing,
    write_all,
    write_new,
)
from agent.entries import Entry, encode, largest_request, number, replay
from agent.errors import SessionCorrupt, SessionError, StorageError
from agent.lock import Lock
from agent.logfile import (
    VERSION,
    Loaded,
    beside,
    counts_of,
    existing,
    fresh_meta,
    generation_paths,
    load,
    log_path,
    new_id,
    now,
)
from agent.messages import Message

__all__ = ["Entry", "Session", "replay"]

_BATCH = 1 << 20
"""Bytes per write of a rewrite."""


# ---- effects ---------------------------------------------------------------------------------------------------------


class Session:
    """One session, held under its lock from `create` or `open` to `close`; a context manager.

    `id`; `path`; `meta`, the first line; `entries`, all lines after it, in file order; `notices`, what loading had to
    put right, one sentence each. Entries are shared, not copied: nobody changes one in place.
    """

    def __init__(self, path: str, disk: Disk = DISK) -> None:
        self.id = os.path.basename(path).removesuffix(".jsonl")
        self.path = path
        self.meta: Entry = {}
        self.entries: list[Entry] = []
        self.notices: list[str] = []
        self._disk = disk
        self._fd = -1
        self._lock: Lock | None = None
        self._size = 0
        self._dirty = False
        """A failed append may have left bytes after `_size`."""
        self._named = True
        """The name in the directory is known to be durable."""
        self._top = 0
        self._requests = 0

    @classmethod
    def create(cls, store: str, meta: Entry, *, id: str | None = None, disk: Disk = DISK) -> Session:
        """A new session with its meta line on disk; the store is made when it is missing.

        Raises: SessionError when `id` exists, StorageError.
        """
        path = log_path(store, id or new_id())
        session = cls(path, disk)
        session.meta = fresh_meta(meta, session.id)
        with storing(f"create a session in {store}"):
            make_directory(disk, store)
        session._lock = Lock(beside(path, "lock"))
        try:
            with storing(f"create a session in {store}"):
                session._fd = disk.create(path)
                session._put(encode(session.meta))
                disk.fsync_dir(store)
        except StorageError as error:
            taken = isinstance(error.__cause__, FileExistsError)
            if session._fd >= 0:
                forget(disk, path)  # it holds nothing yet
            session.close()
            if taken:
                raise SessionError(f"session {session.id} exists already", f"agent -c {session.id}") from None
            raise
        return session

    @classmethod
    def open(cls, store: str, id: str, *, wait: float = 0.0, disk: Disk = DISK) -> Session:
        """Continue a session; a torn tail is put right. `wait` seconds for the lock.

        Raises: SessionNotFound, SessionBusy, SessionCorrupt (nothing was written), StorageError.
        """
        session = cls(existing(store, id), disk)
        session._lock = Lock(beside(session.path, "lock"), wait=wait)
        try:
            existing(store, id)  # it may have been removed while we waited
            with storing(f"open session {id}"):
                session._fd = disk.open(session.path)
                session._load()
        except BaseException:
            session.close()
            raise
        return session

    @classmethod
    def read(cls, store: str, id: str) -> Session:
        """The session to look at: no lock, no repair, never written. Bad lines are left out, with a notice for each.

        Raises: SessionNotFound, StorageError.
        """
        session = cls(existing(store, id))
        with storing(f"read session {id}"):
            loaded = load(session.path)
        session._adopt(loaded)
        session.notices += [f"line {line} cannot be read: {why}" for line, why in loaded.bad]
        if loaded.tail:
            session.notices.append(f"the last {len(loaded.tail)} bytes are no complete record and were left out")
        return session

    @classmethod
    def ephemeral(cls, meta: Entry) -> Session:
        """--no-session: the same interface, and nothing on disk."""
        from agent.ephemeral import Ephemeral

        return Ephemeral(meta)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file and the lock. Safe to call twice."""
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1
        if self._lock is not None:
            self._lock.release()

    # -- reading

    def view(self) -> list[Message]:
        """The messages the model is to see: `replay` of the entries."""
        return replay(self.entries)

    def generations(self) -> Iterator[tuple[str, Entry, list[Entry]]]:
        """(name, meta, entries) of every archived generation, oldest first, then of the log itself under "current"."""
        for path in generation_paths(self.path):
            try:
                loaded = load(path)
            except OSError:
                continue  # pruned by hand while we read
            yield os.path.basename(path).removesuffix(".jsonl"), loaded.meta, loaded.entries
        yield "current", self.meta, self.entries

    def originals(self) -> Iterator[Entry]:
        """Every message entry of the session's life, in order of `n`, once each, as it was before any shortening.

        A number is new in exactly one generation, and whatever is new there is larger than all before: so each
        generation yields what lies above the largest seen, and no message is held twice.
        """
        top = -1
        for _, _, entries in self.generations():
            fresh = [e for e in entries if e["type"] == "message" and e["n"] > top]
            fresh.sort(key=lambda e: e["n"])
            for entry in fresh:
                if entry["n"] > top:
                    top = entry["n"]
                    yield entry

    # -- writing

    def new_n(self) -> int:
        """Reserve the next `n`, for an entry that goes into a rewrite."""
        self._top += 1
        return self._top

    def next_request(self) -> int:
        """`request.k` for the next task request: one more than the largest in the session's life."""
        return self._requests + 1

    def append(self, entry: Entry) -> Entry:
        """Put one entry at the end of the log, durable when this returns; `n` and `at` are given when absent.

        Returns the entry as stored. Raises StorageError: then the log is as it was, and a later append may succeed.
        """
        stored = {"type": entry["type"], "n": entry.get("n") or self._top + 1, "at": entry.get("at") or now()} | entry
        self._top = max(self._top, stored["n"])
        before = self._size
        try:
            self._write(encode(stored))
        finally:
            if self._size != before:  # on disk, even if a signal came right after
                self.entries.append(stored)
                self._requests = largest_request((stored,), self._requests)
        return stored

    def rewrite(self, entries: list[Entry], **meta_changes: Any) -> str:
        """Replace the log by `entries` (complete, with `n`) and keep the old file whole; the archive's name.

        `counts` are brought up to date here. Raises StorageError: then the log is as it was.
        """
        old = counts_of(self.meta)
        before = {e["n"] for e in self.entries if e["type"] == "compaction"}
        made = sum(e["type"] == "compaction" and e["n"] not in before and e["n"] > old["n"] for e in entries)
        self._top = number(entries, self._top)
        counts = {"n": self._top, "requests": self._requests, "compactions": old["compactions"] + made}
        meta = fresh_meta(self.meta | meta_changes, self.id)
        return self._replace(meta, {**old, **counts}, entries)

    def rename(self, name: str) -> str:
        """Name the session. The entries stay as they are, and so do the counts of requests."""
        return self._replace(fresh_meta(self.meta | {"name": name}, self.id), counts_of(self.meta), self.entries)

    def files_dir(self) -> str:
        """`<id>.files`, made 0700 when first asked for."""
        path = beside(self.path, "files")
        with storing(f"make {path}"):
            make_side_directory(self._disk, path)
        return path

    # -- how

    def _load(self) -> None:
        """Read, refuse what is corrupt before anything is written, put a torn tail right, take the content on."""
        loaded = load(self.path, self._fd)
        if loaded.bad:
            line, why = loaded.bad[0]
            more = f" (and {len(loaded.bad) - 1} more lines)" if len(loaded.bad) > 1 else ""
            raise SessionCorrupt(
                f"session {self.id} is damaged: line {line} of {self.path}{more}: {why}",
                f"repair it, keeping every byte, with: agent doctor {self.id}",
                line,
            )
        version = loaded.meta.get("version", 0)
        if not isinstance(version, int) or version > VERSION:
            raise SessionError(f"session {self.id} was written by a later version of agent", "upgrade agent")
        self._adopt(loaded)
        self._named = False
        if loaded.tail:
            self._set_tail_aside(loaded)
        elif loaded.unended:
            self._put(b"\n")
            self.notices.append("the last record lacked its line end, which was added")
        if self._size == 0:
            self._put(encode(fresh_meta(self.meta, self.id)))
            self.notices.append("the file was empty: the session starts anew")

    def _adopt(self, loaded: Loaded) -> None:
        self.meta, self.entries, self._size = loaded.meta, loaded.entries, loaded.size
        counts = counts_of(loaded.meta)
        self._top = max((e["n"] for e in loaded.entries), default=0)
        self._top = max(self._top, counts["n"])
        self._requests = largest_request(loaded.entries, counts["requests"])
        self.notices += loaded.notices

    def _set_tail_aside(self, loaded: Loaded) -> None:
        """Copy the torn bytes to a side file, durably; only then cut them off."""
        target = save_aside(self._disk, beside(self.path, "archive"), "torn", loaded.tail)
        end = loaded.size - len(loaded.tail)
        self._disk.truncate(self._fd, end)
        self._disk.fsync(self._fd)
        self._size = end
        self.notices.append(f"{len(loaded.tail)} bytes of an unfinished record were moved to {target}")

    def _put(self, data: bytes) -> None:
        """Bytes at the end of the log, durable; on an error the file is cut back to what it was. Raises OSError."""
        try:
            if self._dirty:
                self._disk.truncate(self._fd, self._size)
                self._dirty = False
            write_all(self._disk, self._fd, data)
            self._disk.fsync(self._fd)
            self._size += len(data)
        except BaseException:  # also Ctrl-C between write and fsync
            self._dirty = True
            self._cut_back()
            raise

    def _cut_back(self) -> None:
        try:
            self._disk.truncate(self._fd, self._size)
            self._disk.fsync(self._fd)
            self._dirty = False
        except OSError:
            pass  # still dirty: tried again before the next append; if there is none, it is a torn tail

    def _write(self, line: bytes) -> None:
        self._check_owned()
        with storing(f"write to session {self.id}"):
            self._settle()
            self._put(line)

    def _settle(self) -> None:
        """Make the file's name durable, once: a crash must not bring back the file that a rewrite replaced."""
        if not self._named:
            self._disk.fsync_dir(os.path.dirname(self.path))
            self._named = True

    def _check_owned(self) -> None:
        """Refuse to write unless the path still leads to our file and nobody else wrote to it."""
        if self._fd < 0:
            raise StorageError(f"session {self.id} is not open for writing")
        mine = os.fstat(self._fd)
        try:
            there = os.lstat(self.path)
        except OSError as error:
            raise explained(error, f"write to session {self.id}") from error
        grown = mine.st_size != self._size and not self._dirty
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino) or grown:
            raise StorageError(
                f"session {self.id} was changed by another program during this run; nothing was written over it",
                "run the same command again",
            )

    def _replace(self, meta: Entry, counts: dict[str, int], entries: list[Entry]) -> str:
        """The rewrite of the module's docstring. The old file is the archive before the path changes."""
        self._check_owned()
        if self._dirty:
            self._cut_back()
        with storing(f"rewrite session {self.id}"):
            temporary = beside(self.path, "tmp")
            forget(self._disk, temporary)
            archive = self._next_archive(counts_of(self.meta)["generation"] + 1)
            name = os.path.basename(archive).removesuffix(".jsonl")
            archived = {"name": name, "bytes": self._size, "sha256": digest_file(self.path)}
            meta = meta | {"counts": counts | {"generation": int(name)}, "archived": archived}
            fd = write_new(self._disk, temporary, _batches([meta, *entries]))
            try:
                make_side_directory(self._disk, os.path.dirname(archive))
                if not os.path.exists(archive):
                    keep_copy(self._disk, self.path, archive)
                else:
                    self._disk.fsync_dir(os.path.dirname(archive))
                self._disk.replace(temporary, self.path)
            except BaseException:
                self._disk.close(fd)
                forget(self._disk, temporary)
                raise
        self._disk.close(self._fd)
        self._fd, self._size, self._dirty, self._named = fd, os.fstat(fd).st_size, False, False
        self.meta, self.entries = meta, list(entries)
        try:
            self._settle()
        except OSError:
            pass  # the rewrite stands, and is made durable before the next append
        return name

    def _next_archive(self, wanted: int) -> str:
        """The first name from `wanted` on that is free, or is this very file (a rewrite that stopped half-way)."""
        while True:
            path = os.path.join(beside(self.path, "archive"), f"{wanted:04d}.jsonl")
            if not os.path.lexists(path) or os.path.samefile(path, self.path):
                return path
            wanted += 1


def _batches(entries: list[Entry]) -> Iterator[bytes]:
    """The lines of a file, joined into writes of about a megabyte."""
    batch, size = [], 0
    for entry in entries:
        line = encode(entry)
        batch.append(line)
        size += len(line)
        if size >= _BATCH:
            yield b"".join(batch)
            batch, size = [], 0
    yield b"".join(batch)
