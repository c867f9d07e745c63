"""The store: where sessions lie, which one is meant, and what can be said of each without reading it whole.

A store is a directory of `<id>.jsonl` files and nothing else is needed to use it: there is no index that could be
stale. Listing reads the first and last kilobytes of a file at most, however large it is, and yields as it goes.
Nothing here follows a symbolic link, and nothing leaves the store.

It does not know what is inside an archive, nor how a list is shown.
"""

from __future__ import annotations

import functools
import io
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from agent.config import state_home
from agent.errors import AgentError, ConfigError, SessionBusy, SessionError, SessionNotFound, UsageError
from agent.log.disk import DISK, explained, forget, is_plain_file, make_directory, storing
from agent.log.entries import Entry, decode, scan
from agent.log.lock import Lock
from agent.log.logfile import beside, counts_of, generation_paths, log_path, valid_id
from agent.messages import text_of, usage_from_json
from agent.session import Session

MARKER = ".agent-sessions"
"""A directory `sessions` beside a run is a store only when it holds this file."""

PEEK = 32 << 10
"""Bytes read at each end of a file for a list; once more, FAR bytes, where no line ends within them."""
FAR = 1 << 20
FIRST_WORDS = 80
LEAST_PREFIX = 3
NAMING = 10.0
"""Seconds that another may take to give a name, which is a matter of milliseconds."""

_OURS = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")
_LIKE_AN_ID = re.compile(r"[0-9a-f-]+")
_SPAN = re.compile(r"([0-9]+)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Summary(NamedTuple):
    """One row of a list. `written` is a POSIX time; `tokens` the last reported size of the context; None: not known.

    `messages` counts those of its life; after a compaction, or where a file is too large to be read, records too.
    """

    id: str
    name: str | None
    cwd: str | None
    model: str | None
    created_at: str | None
    written: float
    bytes: int
    messages: int | None
    tokens: int | None
    compactions: int
    first_words: str


class Ends(NamedTuple):
    """The entries that the two ends of a file show; `whole` when they are all of them."""

    head: list[Entry]
    tail: list[Entry]
    whole: bool


def parse_span(text: str) -> float:
    """Seconds of "30d", "12h", "2w". Raises UsageError."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(f"{text!r} is not a span of time", "Write for example 30d, 12h or 2w")
    return float(int(found[1]) * _SECONDS[found[2]])


def check_name(name: str) -> str:
    """A name that can stand after -c. Raises UsageError: empty, with white space, or easily taken for an id."""
    if name in ("", "last"):
        why = "is empty" if not name else "is reserved: -c last is the newest session"
        raise UsageError(f"The name of a session {why}", "Choose another name")
    bad = len(name) > 64 or name.startswith("-") or _LIKE_AN_ID.fullmatch(name)
    if bad or any(c.isspace() or not c.isprintable() or c == "/" for c in name):
        raise UsageError(
            f"{name!r} cannot be the name of a session",
            "Use up to 64 characters without spaces or slashes, not only digits and a-f",
        )
    return name


def matches(ids: list[str], wanted: str) -> list[str]:
    """The ids that `wanted` could mean: itself, else those it begins, or whose random part it begins."""
    if wanted in ids:
        return [wanted]
    if len(wanted) < LEAST_PREFIX:
        return []
    return [id for id in ids if id.startswith(wanted) or (_OURS.fullmatch(id) and id[16:].startswith(wanted))]


def summarize(id: str, written: float, size: int, ends: Ends, first: list[Entry]) -> Summary:
    """A row from the two ends of a file; `first` is the head of its oldest generation, where its first words stand."""
    meta = ends.head[0] if ends.head and ends.head[0]["type"] == "meta" else {}
    said = (e for e in reversed(ends.tail) if e["type"] == "message")
    answer: Entry = next((e for e in said if e.get("usage") or e.get("model")), {})
    usage = usage_from_json(answer.get("usage"))
    compactions = counts_of(meta)["compactions"]
    if ends.whole and not compactions:
        messages = sum(e["type"] == "message" for e in ends.tail)
    else:
        messages = next((e["n"] for e in reversed(ends.tail) if "n" in e), None)
    return Summary(
        id,
        _text(meta.get("name")),
        _text(meta.get("cwd")),
        _text(answer.get("model")) or _text(meta.get("model")),
        _text(meta.get("created_at")),
        written,
        size,
        messages,
        usage.prompt + usage.completion if usage else None,
        compactions,
        first_words(first) or first_words(ends.head),
    )


def first_words(entries: list[Entry]) -> str:
    """The beginning of the first prompt, on one line."""
    for entry in entries:
        if entry["type"] == "message" and entry["message"]["role"] == "user" and not entry.get("summary"):
            return " ".join(text_of(entry["message"])[: 4 * FIRST_WORDS].split())[:FIRST_WORDS]
    return ""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# ---- effects ---------------------------------------------------------------------------------------------------------


def find_store(flag: str | None, environ: Mapping[str, str], cwd: str, config_value: str | None) -> str:
    """The directory of sessions: flag, AGENT_SESSION_DIR, configuration, ./sessions with our marker, the state home.

    It need not exist yet. A marked ./sessions of ours is closed to other users. Raises ConfigError without a home.
    """
    chosen = flag or environ.get("AGENT_SESSION_DIR") or config_value
    if chosen:
        return os.path.normpath(os.path.join(cwd, os.path.expanduser(chosen)))
    local = os.path.join(cwd, "sessions")
    if is_plain_file(os.path.join(local, MARKER)) and not os.path.islink(local):
        _close_to_others(local)
        return local
    home = state_home(environ)
    if not home:
        raise ConfigError("there is no place for sessions: HOME is not set", "Name one with --session-dir")
    return os.path.join(home, "sessions")


def check_store(store: str) -> str:
    """The same path. Raises ConfigError for what is there and is no directory."""
    if os.path.lexists(store) and not os.path.isdir(store):
        raise ConfigError(f"{store} is not a directory", "Give --session-dir or AGENT_SESSION_DIR a directory")
    return store


def _close_to_others(directory: str) -> None:
    status = os.stat(directory)
    if status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077:
        try:
            os.chmod(directory, 0o700)
        except OSError:
            pass  # the files in it are 0600 all the same


def listing(store: str) -> list[tuple[float, str, int]]:
    """(time of the last write, id, bytes) of every session, newest first. Reads no file."""
    found = []
    try:
        with os.scandir(store) as each:
            for item in each:
                id = item.name.removesuffix(".jsonl")
                if id != item.name and valid_id(id) and item.is_file(follow_symlinks=False):
                    status = item.stat(follow_symlinks=False)
                    found.append((status.st_mtime_ns / 1e9, id, status.st_size))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise explained(error, f"list {store}") from error
    found.sort(reverse=True)
    return found


def read_ends(path: str) -> Ends:
    """What the first and last kilobytes of a file show, damaged lines left out. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        for reach in (PEEK, FAR):
            head = os.pread(fd, reach, 0)
            if len(head) < reach:
                entries = _entries(head)
                return Ends(entries, entries, True)
            size = os.fstat(fd).st_size
            tail = os.pread(fd, reach, max(0, size - reach))
            if b"\n" in head and b"\n" in tail[:-1]:
                break
    finally:
        os.close(fd)
    return Ends(_entries(head[: head.rfind(b"\n") + 1]), _entries(tail[tail.find(b"\n") + 1 :]), size <= reach)


def _entries(data: bytes) -> list[Entry]:
    sound = decode(io.BytesIO(data))
    if sound is not None:
        return sound
    return [line.entry for line in scan(io.BytesIO(data)) if line.entry is not None]


def summary_of(store: str, id: str, written: float, size: int) -> Summary:
    """One row. Raises OSError."""
    path = log_path(store, id)
    ends = read_ends(path)
    first = ends.head
    if ends.head and ends.head[0].get("archived"):
        oldest = generation_paths(path)[:1]
        first = read_ends(oldest[0]).head if oldest else first
    return summarize(id, written, size, ends, first)


def summaries(store: str, cwd: str | None = None) -> Iterator[Summary | None]:
    """A row for every session, newest first, as they are read; None for each that belongs to another directory.

    `cwd` None takes all. A session that does not say where it was made belongs everywhere.
    """
    real = functools.lru_cache(maxsize=1024)(_real)
    here = real(cwd) if cwd is not None else None
    for written, id, size in listing(store):
        try:
            row = summary_of(store, id, written, size)
        except OSError:
            continue  # removed while we read
        elsewhere = here is not None and row.cwd is not None and real(row.cwd) != here
        yield None if elsewhere else row


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # what stands in a file need not be a path: a NUL, a lone surrogate
        return path


def latest(store: str, cwd: str) -> str:
    """The session of this directory last written to. Raises SessionNotFound."""
    for row in summaries(store, cwd):
        if row is not None:
            return row.id
    raise SessionNotFound(f"no session was made in {cwd}", 'Start one with: agent "prompt"')


def resolve(store: str, wanted: str, cwd: str) -> str:
    """The id that `wanted` means: an id, a prefix of an id or of its random part, a name, or `last`.

    Raises: SessionNotFound; SessionError naming the matches when there are several.
    """
    if wanted == "last":
        return latest(store, cwd)
    if any(c.isspace() for c in wanted):
        raise SessionNotFound(
            f"no session matches {wanted!r}: -c takes an id, a name or `last`",
            f'To continue the newest session of this directory: agent --last "{wanted}"',
        )
    if valid_id(wanted) and is_plain_file(log_path(store, wanted)):
        return wanted
    found = [] if _LIKE_AN_ID.fullmatch(wanted) else named(store, wanted)
    found = found or matches([id for _, id, _ in listing(store)], wanted)
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(found[:10]) + (", ..." if len(found) > 10 else "")
        raise SessionError(f"{wanted!r} could be any of {len(found)} sessions: {shown}", "Give more of the id")
    log_path(store, wanted)  # says so when it could never be one
    hint = "See them with: agent sessions list --all; those of another store: --session-dir DIR"
    raise SessionNotFound(f"no session matches {wanted!r} in {store}", hint)


def named(store: str, name: str) -> list[str]:
    """The ids of the sessions that carry this name; reads the head of each."""
    found = []
    for _, id, _ in listing(store):
        try:
            head = read_ends(log_path(store, id)).head
        except OSError:
            continue
        if head and head[0]["type"] == "meta" and head[0].get("name") == name:
            found.append(id)
    return found


@contextmanager
def naming(store: str) -> Iterator[None]:
    """Within: no other process gives a name in this store, so one that is free stays free. Nothing is left behind.

    Raises: SessionBusy when another has been giving one for NAMING seconds, StorageError.
    """
    with storing(f"create a session in {store}"):
        make_directory(DISK, store)
    path = os.path.join(store, ".names.lock")  # the lock of no session: an id begins with a letter or a digit
    try:
        lock = Lock(path, wait=NAMING)
    except SessionBusy:
        raise SessionBusy(f"another run is giving a name in {store}", "Run the same command again") from None
    try:
        yield
    finally:
        forget(DISK, path)
        lock.release()


def rename(store: str, id: str, name: str, *, wait: float = 0.0) -> None:
    """Name a session. Raises SessionError when another carries the name, SessionBusy, StorageError."""
    with Session.open(store, id, wait=wait) as session, naming(store):
        taken = [other for other in named(store, name) if other != id]
        if taken:
            raise SessionError(f"the name {name!r} is taken by session {taken[0]}", "Choose another")
        session.rename(name)


def remove(store: str, id: str, *, wait: float = 0.0) -> None:
    """Remove a session and all its side files; the log last, so that a removal that stops half-way can be repeated. `wait`
    seconds for its lock.

    Links are removed, never followed. Raises: SessionNotFound, SessionBusy, StorageError.
    """
    import shutil

    path = log_path(store, id)
    if not os.path.lexists(path):
        raise SessionNotFound(f"no session {id!r} in {store}", "See them with: agent sessions list --all")
    if os.path.isdir(path) and not os.path.islink(path):
        raise SessionError(f"session {id} is not a file", f"Look at {path}")
    lock = Lock(beside(path, "lock"), wait=wait)
    try:
        with storing(f"remove session {id}"):
            for folder in (beside(path, "archive"), beside(path, "files")):
                if os.path.isdir(folder) and not os.path.islink(folder):
                    shutil.rmtree(folder)
                elif os.path.lexists(folder):
                    DISK.unlink(folder)
            for file in (beside(path, "tmp"), path, beside(path, "lock")):
                if os.path.lexists(file):
                    DISK.unlink(file)
            DISK.fsync_dir(store)
    finally:
        lock.release()


def prune(store: str, older_than: float, *, dry_run: bool = False) -> Iterator[tuple[str, str]]:
    """Remove sessions not written to for `older_than` seconds: (id, "removed" | "would be removed" | "busy" | why not)."""
    limit = time.time() - older_than
    for written, id, _ in listing(store):
        if written < limit:
            try:
                if not dry_run:
                    remove(store, id)
                yield id, "would be removed" if dry_run else "removed"
            except SessionBusy:
                yield id, "busy"
            except AgentError as error:  # one that cannot be removed keeps no other
                yield id, f"not removed: {error.text}"
