"""What was gathered of a session so far, kept beside its archive: a compaction then reads only what is new.

The JSON lines are the only truth. The file holds the statements worth most of all messages up to the last compaction,
the digest of the archive that this one made, and size and time of every archive; where that is not the newest archive,
one of them was changed or is gone, or the file is torn, altered, gone or cannot be written, everything is read again.
So it can be deleted at any time, and never says what the originals do not; but of a message that the user has corrected in
the session file since, what it says now. Two lines: what it is of, with a digest of the second; the statements.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Mapping
from typing import Any

from agent.compaction import record
from agent.compaction.statements import Statement, pinned
from agent.log.disk import digest_file
from agent.log.entries import Entry, encode, parse
from agent.log.logfile import beside, generation_paths
from agent.messages import text_of
from agent.session import Session

VERSION = 4
KEPT = 3_000
"""Statements that are kept from one compaction to the next, up to twice as many before they are thinned again: several
times what a large record holds."""
LARGEST = 64 << 20
"""Bytes: no file of ours is larger."""


def gather(session: Session, *, archives: bool = True) -> record.Gathered:
    """All statements of the session's life, pins first; without `archives` those of the present file alone.

    Raises: StorageError when an archive cannot be read.
    """
    loaded = _load(session)
    if loaded is not None:
        known, top = loaded[0], loaded[0].last
        corrected = [e for e in _messages(session) if e["n"] <= top and loaded[1].get(str(e["n"]), mark(e)) != mark(e)]
        if corrected:
            known = _corrected(known, corrected)
        found = record.gather((e for e in _messages(session) if e["n"] > top), known)
    elif archives:
        size = sum(len(text_of(e["message"])) for e in session.originals() if e["message"]["role"] != "user")
        found = record.gather(session.originals(), None, size)
    else:
        found = record.gather(_messages(session))
    return record.Gathered([*pinned(pins(session)), *found.statements], found.last)


def pins(session: Session) -> list[str]:
    """What the user pinned, in order."""
    return [e["text"] for e in session.entries if e.get("type") == "pin" and isinstance(e.get("text"), str)]


def packed(gathered: record.Gathered) -> bytes:
    """The best of the statements, as the second line of the file."""
    best = gathered.of(lambda n: n > 0)
    if len(best.statements) > 2 * KEPT:
        record.thin(best, KEPT)
    return encode({"statements": [tuple(statement) for statement in best.statements]})


def keep(session: Session, last: int, statements: bytes, marks: Mapping[int, str]) -> None:
    """Put what was packed of the messages up to `last` beside the archive that was just made; `marks` are those that are
    known already, by the identity of the entry. Does nothing where that cannot be."""
    archive = _newest(session)
    if not archive:
        return
    stayed = (entry for entry in _messages(session) if entry["n"] <= last)
    kept = {str(entry["n"]): marks.get(id(entry)) or mark(entry) for entry in stayed}
    head = {"version": VERSION, "archive": archive, "archives": _marks(session), "last": last, "kept": kept}
    told = encode(head | {"sha256": _digest(archive, last, statements)}) + statements
    path = _path(session)
    try:
        if os.path.lexists(f"{path}.tmp"):
            os.unlink(f"{path}.tmp")
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(f"{path}.tmp", flags, 0o600), "wb") as file:
            file.write(told)
        os.replace(f"{path}.tmp", path)
    except OSError:
        pass


def mark(entry: Entry) -> str:
    """What tells whether a message that stayed in the file was edited there by hand."""
    text = text_of(entry["message"])
    return f"{len(text)} {zlib.crc32(text.encode('utf-8', 'surrogatepass')):x}"


def _corrected(known: record.Gathered, corrected: list[Entry]) -> record.Gathered:
    """What is known, but of these messages what they say now."""
    numbers = {entry["n"] for entry in corrected}
    said = [*known.of(lambda n: n not in numbers).statements, *record.gather(corrected).statements]
    return record.Gathered(sorted(said, key=lambda statement: statement.n), known.last)


def _load(session: Session) -> tuple[record.Gathered, dict[str, str]] | None:
    """What is kept, if it is of the newest archive and whole, and the marks of the messages that stayed in the file."""
    archive = _newest(session)
    try:
        head, statements = _read(_path(session)).split(b"\n", 1) if archive else (b"", b"")
        told = parse(head)
        if told["archive"] != archive or told["sha256"] != _digest(archive, told["last"], statements):
            return None
        if told["archives"] != _marks(session):
            return None
        found = [Statement(*each) for each in parse(statements)["statements"]]
        kinds = {tuple(map(type, each)) for each in found}
        if not kinds <= {(int, str, str, dict, bool, int)} or not isinstance(told["kept"], dict):
            return None
        return record.Gathered(found, int(told["last"])), told["kept"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read(path: str) -> bytes:
    """A plain file's bytes. Raises: OSError for anything else, or one that is too large."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            raise OSError(f"{path} is no file of ours")
        return file.read()


def _digest(archive: str, last: object, statements: bytes) -> str:
    return hashlib.sha256(b"%d %b %b\n%b" % (VERSION, archive.encode(), repr(last).encode(), statements)).hexdigest()


def _marks(session: Session) -> list[list[Any]]:
    """[name, bytes, nanoseconds] of each archive: what an edit by hand changes."""
    found = [(os.path.basename(path), os.stat(path)) for path in generation_paths(session.path)]
    return [[name, about.st_size, about.st_mtime_ns] for name, about in found]


def missing(session: Session) -> list[str]:
    """Names of archives that were made and are not there, and of those whose lines cannot all be read."""
    archived = session.meta.get("archived")
    newest = str(archived.get("name", "")) if session.path and isinstance(archived, dict) else ""
    there = (
        {os.path.basename(path).removesuffix(".jsonl") for path in generation_paths(session.path)} if newest else set()
    )
    made = {f"{number:04d}" for number in range(1, int(newest) + 1)} if newest.isdigit() else set()
    return sorted((made - there) | (session.damaged - _repaired(session)))


def _repaired(session: Session) -> set[str]:
    """Names of damaged archives that were damaged when they were archived: what follows them is their repair."""
    if not session.damaged:
        return set()
    paths = {os.path.basename(path).removesuffix(".jsonl"): path for path in generation_paths(session.path)}
    said = [archived for _, meta, _ in session.generations() if isinstance(archived := meta.get("archived"), dict)]
    known = {archived.get("name"): archived.get("sha256") for archived in said}
    return {name for name in session.damaged if name in paths and known.get(name) == digest_file(paths[name])}


def _newest(session: Session) -> str:
    """The digest of the newest archive, or "" where nothing is archived on disk."""
    archived = session.meta.get("archived")
    digest = archived.get("sha256") if session.path and isinstance(archived, dict) else None
    return digest if isinstance(digest, str) else ""


def _messages(session: Session) -> list[Entry]:
    """The messages of the present file in order of n."""
    return sorted((e for e in session.entries if e["type"] == "message"), key=lambda e: int(e["n"]))


def _path(session: Session) -> str:
    return os.path.join(beside(session.path, "archive"), "gleaned.json")
