"""The generations of a session: what the model saw at any request, undo, redo, fork, and the proof that all is there.

A rewrite keeps the old file whole, so the past is a row of files, each a complete log. This module reads that row; the
rule for finding a request in it, and the chain of digests that binds it, are in the docstring of `agent.session`.

Undo and redo are rewrites themselves: the file they replace joins the row, so that either can be taken back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agent.errors import SessionCorrupt, SessionError, SessionNotFound, UsageError
from agent.log.disk import (
    DISK,
    Disk,
    digest_file,
    is_plain_file,
    keep_copy,
    make_directory,
    make_side_directory,
    storing,
    write_new,
)
from agent.log.entries import Entry, encode, largest_request, parse, replay
from agent.log.lock import Lock
from agent.log.logfile import (
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
from agent.log.writer import in_batches
from agent.messages import Message
from agent.session import Session
from agent.wire import Dialect, digest, prepare_for_wire


class Seen(NamedTuple):
    """What the model saw at one request: the messages as they were sent, and both digests (`recorded` may be "")."""

    k: int
    generation: str
    messages: list[Message]
    recorded: str
    computed: str

    @property
    def differs(self) -> bool:
        """Whether this is provably not what was sent."""
        return self.recorded not in ("", self.computed)


def seen(entries: Sequence[Entry], place: int, generation: str) -> Seen:
    """Show again the request whose answer stands at `place`: replay what stood before it, in its dialect."""
    request = entries[place]["request"]
    messages = prepare_for_wire(replay(entries[:place]), Dialect.from_json(request.get("dialect")))
    return Seen(request["k"], generation, messages, str(request.get("sha256") or ""), digest(messages))


def places(entries: Sequence[Entry], after: int) -> Iterator[tuple[int, int]]:
    """(k, place) of every answer among the entries whose request is numbered above `after`."""
    for place, entry in enumerate(entries):
        request = entry.get("request")
        if isinstance(request, dict) and isinstance(request.get("k"), int) and request["k"] > after:
            yield request["k"], place


def without_compaction(entries: Sequence[Entry], archived: Sequence[Entry], record: Entry) -> list[Entry]:
    """The archived entries, and what came after the compaction `record` that the archive does not have."""
    known = {entry["n"] for entry in archived} | {record["n"]}
    return [*archived, *(e for e in entries if e["n"] not in known and not e.get("summary"))]


def without_undo(entries: Sequence[Entry], archived: Sequence[Entry], record: Entry) -> list[Entry]:
    """The entries as they were before the undo `record`, and what came after it."""
    known = {entry["n"] for entry in archived}
    return [*archived, *(e for e in entries if e["n"] > record["n"] and e["n"] not in known)]


Without = Callable[[Sequence[Entry], Sequence[Entry], Entry], list[Entry]]


def newest(entries: Sequence[Entry], kind: str) -> Entry | None:
    """The newest compaction, or the newest undo that is not itself a redo. What a run took back itself nobody undid."""
    found = [e for e in entries if e["type"] == kind and not e.get("redo") and not e.get("refused")]
    return max(found, key=lambda e: int(e["n"]), default=None)


# ---- effects ---------------------------------------------------------------------------------------------------------


def archived_entries(session: Session, name: str) -> list[Entry]:
    """The entries of one archived generation. Raises SessionNotFound, SessionCorrupt naming the line."""
    path = _path_of(session, name)
    with storing(f"read archive {name} of session {session.id}"):
        bad = load(path).bad if path else []
    if bad:
        line, why = bad[0]
        raise SessionCorrupt(f"{path} is damaged: line {line}: {why}", "Nothing was changed", line)
    for _found, _meta, entries in session.generations(name):
        return entries
    raise SessionNotFound(f"session {session.id} has no archive {name!r}", f"See: agent doctor {session.id}")


def _path_of(session: Session, name: str) -> str:
    """Where an archived generation is, or "": a name found in a file never becomes a path by itself."""
    paths = generation_paths(session.path) if session.path else []
    return next((path for path in paths if os.path.basename(path) == f"{name}.jsonl"), "")


def undo(session: Session) -> dict[str, Any]:
    """Take back the newest compaction: the originals, plus what came after. Raises SessionError when there is none.

    The record of it, with "messages" before and after, and "problems": what `check_chain` finds on the way to the archive
    that was restored.
    """
    record = newest(session.entries, "compaction")
    if record is None:
        raise SessionError(f"session {session.id} has no compaction to undo")
    return _take_back(session, record, without_compaction, {"undid": record["n"]})


def redo(session: Session) -> dict[str, Any]:
    """Take back the newest undo, keeping what came after it; as `undo`. Raises SessionError when there is none."""
    record = newest(session.entries, "undo")
    if record is None:
        raise SessionError(f"session {session.id} has no undo to take back")
    return _take_back(session, record, without_undo, {"undid": record["n"], "redo": True})


def _take_back(session: Session, record: Entry, without: Without, about: dict[str, Any]) -> dict[str, Any]:
    before, archived = len(session.view()), str(record.get("archive"))
    entries = without(session.entries, archived_entries(session, archived), record)
    problems = check_chain(session, archived)[1]
    done = {"type": "undo", "n": session.new_n(), "at": now(), **about}
    name = session.rewrite([*entries, done])
    return done | {"archive": name, "messages": {"before": before, "after": len(session.view())}, "problems": problems}


def restore(session: Session, before: Sequence[Entry]) -> bool:
    """Put the entries back that stood `before` compactions which were of no use; False where they stand. Marked as `refused`:
    see `agent.gate`. Raises: StorageError."""
    record = newest(session.entries, "compaction")
    if record is None or record in before:
        return False
    about = {"undid": record["n"], "refused": True}
    session.rewrite([*before, {"type": "undo", "n": session.new_n(), "at": now(), **about}])
    return True


def at_request(session: Session, k: int) -> Seen:
    """What the model saw at request `k`, counted from 1 over the session's life. Raises SessionNotFound.

    Reads the first line of the generations from the newest on, and the whole of one; of more where it was damaged.
    """
    name, found = _generation_with(session, k)
    for number, place in places(found, 0):
        if number == k:
            return seen(found, place, name)
    raise SessionNotFound(
        f"session {session.id} has no request {k}", f"It made {session.next_request() - 1} that were answered"
    )


def _generation_with(session: Session, k: int) -> tuple[str, list[Entry]]:
    """Name and entries of the generation that shows request `k` best: the one in which it was made, or its repair."""
    if counts_of(session.meta)["requests"] < k:
        return "current", session.entries
    with storing(f"read the archive of session {session.id}"):
        row = [*generation_paths(session.path), session.path]
        place = next((i for i in reversed(range(len(row) - 1)) if _requests_before(row, i) < k), None)
        if place is None:
            return "", []
        loaded = load(row[place])
        while loaded.bad and place + 1 < len(row) and _was_archived(row[place], _first_line(row[place + 1])):
            place += 1
            loaded = load(row[place])
    name = "current" if row[place] == session.path else os.path.basename(row[place]).removesuffix(".jsonl")
    return name, loaded.entries


def _requests_before(row: Sequence[str], place: int) -> int:
    """How many requests were made before a generation of the row began. Where its meta line cannot be read, the one
    before it says so."""
    meta = _first_line(row[place])
    if meta.get("type") == "meta" or place == 0:
        return counts_of(meta)["requests"]
    return largest_request(load(row[place - 1]).entries, _requests_before(row, place - 1))


def _was_archived(path: str, meta: Entry) -> bool:
    """Whether the generation with this first line replaced the file at `path` as it is now. One with bad lines is
    replaced by nothing but its repair."""
    link = meta.get("archived")
    return isinstance(link, dict) and link.get("sha256") == digest_file(path)


def _first_line(path: str) -> Entry:
    with open(path, "rb") as file:
        try:
            meta = parse(file.readline())
        except ValueError:
            return {}
    return meta if isinstance(meta, dict) else {}


class Check(NamedTuple):
    """`requests` whose digest was recomputed, `files` whose digest was, and what differs: one sentence each."""

    requests: int
    files: int
    problems: list[str]


def check(session: Session) -> Check:
    """Recompute the digest of every request of the session's life, and of every archived file."""
    files, problems = check_chain(session)
    if session.path:
        problems += [f"line {line} cannot be read: {why}" for line, why in load(session.path).bad]
    requests = 0
    for name, entries, before in _proving(session, files):
        for k, place in places(entries, before):
            found = seen(entries, place, name)
            requests += bool(found.recorded)
            if found.differs:
                problems.append(f"request {k} ({name}): {found.computed[:12]} now, {found.recorded[:12]} when sent")
    return Check(requests, len(files), problems)


def _proving(session: Session, files: Mapping[str, bool]) -> Iterator[tuple[str, list[Entry], int]]:
    """(name, entries, requests made before it) of each generation that shows what was sent. One that was archived with
    bad lines does not: its repair stands for it."""
    mended: int | None = None
    for name, meta, entries in session.generations():
        before = counts_of(meta)["requests"] if mended is None else mended
        if name in session.damaged and files.get(name):
            row = generation_paths(session.path)
            mended = _requests_before(row, row.index(_path_of(session, name))) if mended is None else mended
        else:
            mended = None
            yield name, entries, before


def check_request(session: Session, k: int) -> Check:
    """`check` of one request alone. Raises SessionNotFound."""
    found = at_request(session, k)
    problems = [f"request {k}: {found.computed[:12]} now, {found.recorded[:12]} when sent"] if found.differs else []
    return Check(int(bool(found.recorded)), 0, problems)


def seen_now(session: Session) -> list[Message]:
    """What the model would be sent of the session as it is, in the dialect of its last answer."""
    last: Entry = next((e for e in reversed(session.entries) if isinstance(e.get("request"), dict)), {"request": {}})
    return prepare_for_wire(session.view(), Dialect.from_json(last["request"].get("dialect")))


def check_chain(session: Session, upto: str = "") -> tuple[dict[str, bool], list[str]]:
    """Follow `meta.archived` from the log back to the first file, or to archive `upto`: whether each is the file that was
    archived, by name, and what is missing or altered. What stands right before a missing one nothing vouches for."""
    files: dict[str, bool] = {}
    problems: list[str] = []
    meta = session.meta
    while isinstance(link := meta.get("archived"), dict):
        name = str(link.get("name"))
        if name in files:
            break  # a damaged link that points back
        files[name] = False
        path = _path_of(session, name)
        try:
            if not path:
                told, meta = _before(session, name)
                problems.append(told)
                continue
            files[name] = _was_archived(path, meta)
            meta = _first_line(path)
        except OSError as error:
            problems.append(f"archive {name} cannot be read: {error.strerror}")
            break
        if not files[name]:
            problems.append(f"archive {name} has changed since it was archived")
            problems += [f"archive {name}, line {line}: {why}" for line, why in load(path).bad]
        if name == upto:
            break
    return files, problems


def _before(session: Session, name: str) -> tuple[str, Entry]:
    """What is missing where archive `name` is, in a sentence, and the first line of the newest one below it."""
    wanted = int(name) if re.fullmatch("[0-9]{4,18}", name) else 0
    below = [path for path in generation_paths(session.path) if _number(path) < wanted]
    least = _number(below[-1]) + 1 if below else 1
    told = f"archives {least:04d} to {name} are missing" if least < wanted else f"archive {name} is missing"
    return told, _first_line(below[-1]) if below else {}


def _number(path: str) -> int:
    return int(os.path.basename(path).removesuffix(".jsonl"))


def fork(store: str, id: str, *, at: int | None = None, disk: Disk = DISK, **meta_changes: Any) -> str:
    """Copy a session, whole or up to entry `at`, into a new one that shares its archives; the new id.

    The source is only read, so it may be in use. The new session exists from one moment on, complete: its archive is
    durable before its log gets its name.
    Raises: SessionNotFound, SessionError for a later version, SessionCorrupt, UsageError when `at` is beyond the end,
    StorageError.
    """
    source = existing(store, id)
    with storing(f"fork session {id}"):
        meta, entries = _generation_of(source, id, at)
        top = at if at is not None else max((e["n"] for e in entries), default=0)
        chosen = [e for e in entries if e["n"] <= top]
        new = log_path(store, new_id())
        lock = Lock(beside(new, "lock"))
        try:
            _share_archives(disk, source, new, counts_of(meta)["generation"])
            _share_files(disk, source, new)
            kept = {k: v for k, v in meta.items() if k not in ("id", "created_at", "name", "version")}
            kept |= {"parent": {"id": id, "n": top}, **without_secrets(meta_changes)}
            name = os.path.basename(new).removesuffix(".jsonl")
            lines = map(encode, [fresh_meta(kept, name), *chosen])
            disk.close(write_new(disk, beside(new, "tmp"), in_batches(lines)))
            disk.replace(beside(new, "tmp"), new)
            disk.fsync_dir(store)
        finally:
            lock.release()
    return name


def _generation_of(path: str, id: str, at: int | None) -> tuple[Entry, list[Entry]]:
    """Meta and entries of the generation in which entry `at` was written: the last that began below it."""
    loaded = load(path)
    check_version(id, loaded.meta)
    if loaded.bad:
        raise corrupt(id, path, loaded)
    if at is None:
        return loaded.meta, loaded.entries
    top = max([counts_of(loaded.meta)["n"], *(e["n"] for e in loaded.entries)])
    if not 0 < at <= top:
        raise UsageError(f"session {id} has no entry {at}: the last is {top}")
    paths = [*generation_paths(path), path]
    place = _place_of(at, paths)
    if place is None:
        raise SessionError(f"the archive of session {id} that held entry {at} is gone", f"See: agent doctor {id}")
    found = load(paths[place])
    if not found.bad:
        return found.meta, found.entries
    mended = load(paths[place + 1]) if place + 1 < len(paths) else found
    there = {e["n"] for e in mended.entries}
    if not mended.bad and at in there and all(e["n"] in there for e in found.entries if e["n"] <= at):
        return found.meta, mended.entries
    line, why = found.bad[0]
    raise SessionCorrupt(f"{paths[place]} is damaged: line {line}: {why}", "Fork at an entry after it", line)


def _place_of(at: int, paths: list[str]) -> int | None:
    """Which of these generations, oldest first, is the one in which entry `at` was written; None where it is gone."""
    begun = [counts_of(_first_line(each))["n"] for each in paths]
    place = max((i for i, n in enumerate(begun) if n < at), default=None)
    while place and begun[place - 1] == begun[place]:  # renamed or mended: what it has, the file before may have had
        before = load(paths[place - 1])
        if before.bad or max((e["n"] for e in before.entries), default=0) < at:
            break
        place -= 1
    return place


def _share_archives(disk: Disk, source: str, new: str, upto: int) -> None:
    """Give the new session its own names for the archived files that belong to its past. They never change."""
    make_directory(disk, os.path.dirname(new))
    folder = beside(new, "archive")
    for path in generation_paths(source):
        name = os.path.basename(path)
        if int(name.removesuffix(".jsonl")) <= upto:
            make_side_directory(disk, folder)
            keep_copy(disk, path, os.path.join(folder, name))


def _share_files(disk: Disk, source: str, new: str) -> None:
    """The same for outputs and backups that the history names."""
    folder = beside(source, "files")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if is_plain_file(os.path.join(folder, name)):
            make_side_directory(disk, beside(new, "files"))
            keep_copy(disk, os.path.join(folder, name), os.path.join(beside(new, "files"), name))
