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
    attempt     {"type":"attempt","n","at","reason","outcome","text","tokens","checks",...}: a compaction that asked a model
                 and changed nothing
    pin         {"type":"pin","n","at","text"}: what no compaction may drop
    undo        {"type":"undo","n","at","undid":<n>,"archive","redo"?:true,"refused"?:true}
    failed      {"type":"failed","n","at","prompt":<n>,"error":{"kind","text"}}: a turn that failed

Ledger: 0, the file of a smaller program (no `version`, no `n`: an entry's place is its `n`); 1, this one. A file of a
later version is read, never written. Types and keys that a version does not know are kept.

GENERATIONS. A rewrite (compaction, prune, undo, redo, rename, repair) makes a new file and keeps the whole old one as
`<id>.archive/NNNN.jsonl`, never touched again. `meta.counts` says what had been used up when a generation began, so
opening reads one file however long the life; `meta.archived` holds the SHA-256 of the file before, so the generations
are a chain in which no byte can change unseen. `request.k` numbers the task requests of the life from 1. Request K was made
of what stands before the answer that carries K, in the newest generation whose `counts.requests` is below K (or its repair).

WRITING. Append: one write with the newline, then fsync; an error cuts the file back. Rewrite: temporary file, fsync;
link the old file into the archive (copy where links are refused), fsync that directory; replace; fsync the directory.
The path is a whole log at every instant, and the archive is durable before the path changes.

DAMAGE. A line that ends in LF was promised; what stands after the last LF was not.
    unterminated, parses          it gets its LF, with a notice
    unterminated, does not parse  (torn record, NUL block) moved to `<id>.archive/torn-NNNN`, with a notice; of NULs
                                  after a whole record, the NULs only
    terminated and bad            `SessionCorrupt` naming the line, before anything is written: bad JSON, NULs, bytes
                                  not UTF-8, two records on one line, a record broken by a raw newline, no type
    BOM at the start of the file  ignored, with a notice;  CRLF: the CR is white space;  blank lines: ignored
    lone surrogates (escaped)     kept as they are, written back as escapes
    no meta line                  the session opens with one made up, with a notice; an empty file gets one
    meta of the wrong kind        the key is left out, with a notice; for `tools`: none
    no `n` beside others' `n`     it gets one above all, with a notice
`agent.log.mend` repairs what is corrupt. No byte is ever dropped: each is in the log, an archive, or a side file.

Side files: `<id>.lock`, `<id>.archive/` (generations, torn tails, quarantined lines), `<id>.files/` (spilled outputs,
backups), `<id>.tmp` (a rewrite that was not finished; no session). It knows no summaries, tools or tokens.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from agent.errors import SessionError, StorageError
from agent.log.disk import DISK, Disk, forget, make_directory, make_side_directory, storing
from agent.log.entries import Entry, encode, largest_request, number, replay
from agent.log.lock import Lock
from agent.log.logfile import (
    Loaded,
    believed,
    beside,
    check_version,
    corrupt,
    counts_of,
    existing,
    fresh_meta,
    generation_paths,
    load,
    log_path,
    new_id,
    now,
    without_secrets,
)
from agent.log.writer import Writer
from agent.messages import Message

__all__ = ["Entry", "Session", "replay"]

_RECORDS = ("compaction", "undo")


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
        self.damaged: set[str] = set()
        self._disk = disk
        self._lock: Lock | None = None
        self._writer: Writer | None = None
        self._top = 0
        self._requests = 0

    @classmethod
    def create(cls, store: str, meta: Entry, *, id: str | None = None, disk: Disk = DISK) -> Session:
        """A new session, its meta line on disk; a missing store is made. Raises: SessionError if `id` exists, StorageError."""
        path = log_path(store, id or new_id())
        session = cls(path, disk)
        session.meta = fresh_meta(without_secrets(meta), session.id)
        with storing(f"create a session in {store}"):
            make_directory(disk, store)
        session._lock = Lock(beside(path, "lock"))
        session.notices += session._lock.notices
        try:
            with storing(f"create a session in {store}"):
                session._writer = Writer.new(path, encode(session.meta), disk)
        except StorageError as error:
            session.close()
            if not isinstance(error.__cause__, FileExistsError):
                raise
            raise SessionError(f"session {session.id} exists already", f"Continue it: agent -c {session.id}") from None
        return session

    @classmethod
    def open(cls, store: str, id: str, *, wait: float = 0.0, damaged: bool = False, disk: Disk = DISK) -> Session:
        """Continue a session; a torn tail is put right. `wait` seconds for the lock.

        `damaged` is for a repair: bad lines are left out of `entries` instead of refused.
        Raises: SessionNotFound, SessionBusy, SessionCorrupt (nothing was written), StorageError.
        """
        session = cls(existing(store, id), disk)
        session._lock = Lock(beside(session.path, "lock"), wait=wait)
        try:
            if not os.path.lexists(session.path):  # removed while we waited: so is its lock
                forget(disk, beside(session.path, "lock"))
            existing(store, id)
            session.notices += session._lock.notices
            session._load(damaged)
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
            session.notices.append(f"the last {len(loaded.tail)} bytes are not a complete record and were skipped")
        return session

    @classmethod
    def ephemeral(cls, meta: Entry) -> Session:
        """--no-session: the same, and nothing on disk."""
        return Ephemeral(meta)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file and the lock. Safe to call twice."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._lock is not None:
            self._lock.release()

    # -- reading

    def view(self) -> list[Message]:
        """The messages the model is to see: `replay` of the entries."""
        return replay(self.entries)

    def generations(self, only: str = "") -> Iterator[tuple[str, Entry, list[Entry]]]:
        """(name, meta, entries) of each archived generation, oldest first, then of the log itself as "current".

        `only` names the single one to read. Bad lines of an archive are left out, and its name joins `damaged`:
        `agent.log.archive.check` finds them.
        """
        for path in generation_paths(self.path):
            name = os.path.basename(path).removesuffix(".jsonl")
            if only in ("", name):
                with storing(f"read archive {name} of session {self.id}"):
                    loaded = load(path)
                if loaded.bad:
                    self.damaged.add(name)
                yield name, loaded.meta, loaded.entries
        if only in ("", "current"):
            yield "current", self.meta, self.entries

    def originals(self) -> Iterator[Entry]:
        """Every message entry of the session's life, in order of `n`, as it was before any shortening. A line that was
        copied by hand, with the same `n` and other text, comes as well. A number is new in one generation only.
        """
        top = -1
        fresh: dict[int, list[Entry]] = {}
        for name, _, entries in self.generations():
            for entry in entries:
                if entry["type"] == "message" and entry["n"] > top:
                    same = fresh.setdefault(entry["n"], [])
                    if not same or not (entry.get("pruned") or entry["message"] in [e["message"] for e in same]):
                        same.append(entry)
            if name not in self.damaged:  # that one is read with the next, where it was mended
                yield from (entry for n in sorted(fresh) for entry in fresh[n])
                top = max(fresh, default=top)
                fresh = {}
        yield from (entry for n in sorted(fresh) for entry in fresh[n])

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
        self._write(encode(stored), lambda: self._landed(stored))
        return stored

    def _landed(self, stored: Entry) -> None:
        self.entries.append(stored)
        self._requests = largest_request((stored,), self._requests)

    def rewrite(self, entries: list[Entry], **meta_changes: Any) -> str:
        """Replace the log by `entries` (complete, with `n`) and keep the old file whole; the archive's name.

        `counts` are brought up to date here, and a new record without its "archive" gets the name. Raises StorageError:
        then the log is as it was.
        """
        old = counts_of(self.meta)
        known = {e["n"] for e in self.entries}
        made = sum(e["type"] == "compaction" and e["n"] not in known and e["n"] > old["n"] for e in entries)
        self._top = number(entries, max(self._top, old["n"]))
        self._requests = largest_request(entries, max(self._requests, old["requests"]))
        counts = {"n": self._top, "requests": self._requests, "compactions": old["compactions"] + made}
        meta = fresh_meta(self.meta | without_secrets(meta_changes), self.id)
        name = self.next_archive()
        recorded = [
            e | {"archive": name} if e["type"] in _RECORDS and not e.get("archive") and e["n"] not in known else e
            for e in entries
        ]
        return self._replace(meta, {**old, **counts}, recorded)

    def digest_ahead(self) -> None:
        """Read the file now for what the next rewrite says of it; what goes wrong is that rewrite's to tell."""
        with suppress(OSError, StorageError):
            self._open_writer().digest()

    def next_archive(self) -> str:
        """The name that the present file will have in the archive after the next rewrite: "0001"."""
        wanted = counts_of(self.meta)["generation"] + 1
        while True:
            path = os.path.join(beside(self.path, "archive"), f"{wanted:04d}.jsonl")
            if not os.path.lexists(path) or os.path.samefile(path, self.path):  # same: a rewrite that stopped half-way
                return f"{wanted:04d}"
            wanted += 1

    def rename(self, name: str) -> str:
        """Name the session; the archive's name, or "" when it has that name already.

        The entries, the counts of requests and the time of the last write stay: a name is not a word said in it.
        """
        if self.meta.get("name") == name:
            return ""
        meta = fresh_meta(self.meta | {"name": name}, self.id)
        return self._replace(meta, counts_of(self.meta), self.entries, silent=True)

    def files_dir(self) -> str:
        """`<id>.files`, made 0700 when first asked for."""
        path = beside(self.path, "files")
        with storing(f"make {path}"):
            make_side_directory(self._disk, path)
        return path

    # -- how

    def _load(self, damaged: bool) -> None:
        """Read, refuse what is corrupt before anything is written, put a torn tail right, take the content on."""
        with storing(f"open session {self.id}"):
            writer = self._writer = Writer(self.path, self._disk)
            loaded = load(self.path, writer.fd)
            check_version(self.id, loaded.meta)
            if loaded.bad and not damaged:
                raise corrupt(self.id, self.path, loaded)
            self._adopt(loaded)
            if loaded.tail:
                target = writer.set_aside(loaded.tail)
                self.notices.append(f"{len(loaded.tail)} bytes of an unfinished record were moved to {target}")
            if loaded.unended:
                writer.put(b"\n")
                self.notices.append("the last record lacked its line end, which was added")
            if writer.size == 0:
                writer.put(encode(fresh_meta(self.meta, self.id)))
                self.notices.append("the file was empty: the session starts anew")

    def _adopt(self, loaded: Loaded) -> None:
        self.meta, odd = believed(loaded.meta)
        self.entries, counts = loaded.entries, counts_of(self.meta)
        self._top = max(counts["n"], max((e["n"] for e in loaded.entries), default=0))
        self._requests = largest_request(loaded.entries, counts["requests"])
        self.notices += loaded.notices + odd

    def _write(self, line: bytes, landed: Callable[[], None]) -> None:
        """Put a line on disk. `landed` is called when it is there, even if a signal comes right after."""
        writer = self._open_writer()
        before = writer.size
        try:
            with storing(f"write to session {self.id}"):
                writer.put(line)
        finally:
            if writer.size != before:
                landed()

    def _replace(self, meta: Entry, counts: dict[str, int], entries: list[Entry], *, silent: bool = False) -> str:
        writer = self._open_writer()
        name = self.next_archive()
        with storing(f"rewrite session {self.id}"):
            archived = {"name": name, "bytes": writer.size, "sha256": writer.digest()}
            meta = meta | {"counts": counts | {"generation": int(name)}, "archived": archived}
            archive = os.path.join(beside(self.path, "archive"), f"{name}.jsonl")
            writer.replace(map(encode, [meta, *entries]), archive, silent=silent)
        self.meta, self.entries = meta, list(entries)
        return name

    def _open_writer(self) -> Writer:
        if self._writer is None:
            raise StorageError(f"session {self.id} is not open for writing")
        self._writer.check_owned()
        return self._writer


class Ephemeral(Session):
    """A session that leaves nothing on disk: the places that touch it are replaced, generations are kept in memory.

    Spilled outputs need a file all the same; they go to a private temporary directory that `close` removes.
    """

    def __init__(self, meta: Entry) -> None:
        id = new_id()
        super().__init__("")
        self.id = id
        self.meta = fresh_meta(meta, id)
        self._archived: list[tuple[str, Entry, list[Entry]]] = []
        self._folder = ""

    def generations(self, only: str = "") -> Iterator[tuple[str, Entry, list[Entry]]]:
        for generation in [*self._archived, ("current", self.meta, self.entries)]:
            if only in ("", generation[0]):
                yield generation

    def next_archive(self) -> str:
        return f"{len(self._archived) + 1:04d}"

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

    def _write(self, line: bytes, landed: Callable[[], None]) -> None:
        landed()

    def _replace(self, meta: Entry, counts: dict[str, int], entries: list[Entry], *, silent: bool = False) -> str:
        name = self.next_archive()
        self._archived.append((name, self.meta, self.entries))
        self.meta = meta | {"counts": counts | {"generation": len(self._archived)}}
        self.entries = list(entries)
        return name
