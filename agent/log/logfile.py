"""One file of a session: how it is called, what its first line says, and what reading it finds.

Reading changes nothing and raises nothing about damage: `Loaded` says what is torn, bad or odd, and `agent.session`
decides what that means. A file is read once, line by line, so that memory goes to the entries and not to the bytes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from agent.errors import SessionCorrupt, SessionError, SessionNotFound
from agent.log.disk import is_plain_file
from agent.log.entries import BOM, Entry, decode, number, scan, unnumbered

VERSION = 1
BUFFER = 1 << 20
"""Bytes per read."""
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_GENERATION = re.compile(r"(\d{4,})\.jsonl")
_KINDS = {"id": str, "created_at": str, "cwd": str, "model": str, "name": str, "parent": dict, "archived": dict}
_SECRET = re.compile(r"api_?key|authorization|password|secret|bearer", re.I)


class Loaded(NamedTuple):
    """What one file holds. `bad` is (line number, why) of each terminated line that is not an entry."""

    meta: Entry
    entries: list[Entry]
    size: int
    tail: bytes
    """The bytes after the last LF when they do not parse (only the NULs, when a record before them does), or b""."""
    unended: bool
    """The last entry parses but lacks its LF."""
    bad: list[tuple[int, str]]
    notices: list[str]


def valid_id(id: str) -> bool:
    """True when `id` may become a file name: one plain component, no path, no surprise."""
    return _ID.fullmatch(id) is not None and not id.endswith((".jsonl", ".lock", ".archive", ".files", ".tmp"))


def log_path(store: str, id: str) -> str:
    """The log of a session. Raises SessionNotFound for what is not an id, before it becomes a path."""
    if not valid_id(id):
        raise SessionNotFound(f"{id!r} is not a session id", "See them with: agent sessions list --all")
    return os.path.join(store, f"{id}.jsonl")


def beside(path: str, suffix: str) -> str:
    """A side file or directory of the log at `path`: suffix "archive", "files", "lock" or "tmp"."""
    return f"{path.removesuffix('.jsonl')}.{suffix}"


def now() -> str:
    """The time as entries carry it: RFC 3339, UTC, milliseconds."""
    seconds = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}Z"


def new_id() -> str:
    """YYYYMMDD-HHMMSS-xxxxxxxx: the UTC time, and 8 random hex digits."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(4).hex()}"


def fresh_meta(meta: Entry, id: str) -> Entry:
    """A complete first line."""
    head = {"type": "meta", "version": VERSION, "id": id, "created_at": meta.get("created_at") or now()}
    counts = meta.get("counts") or {"n": 0, "requests": 0, "generation": 0, "compactions": 0}
    return head | {k: v for k, v in meta.items() if k not in head} | {"counts": counts}


def without_secrets(settings: Entry) -> Entry:
    """The settings as given. Raises ValueError for a key that names a secret: those never reach a file."""
    for key in settings:
        if _SECRET.search(key):
            raise ValueError(f"{key!r} must not be stored in a session file")
    return settings


def believed(meta: Entry) -> tuple[Entry, list[str]]:
    """The meta line as a run may go by it, and a sentence where something in it is not of the kind it should be.

    Such a key is left out; such a count is 0; where the tools are no list of names there are none, so that what was to
    have fewer never gets more.
    """
    counts, stored, tools = counts_of(meta), meta.get("counts", {}), meta.get("tools")
    odd = [key for key, kind in _KINDS.items() if not isinstance(meta.get(key), kind | None)]
    sound = {key: value for key, value in meta.items() if key not in odd}
    if not (isinstance(stored, dict) and all(stored.get(key, 0) == count for key, count in counts.items())):
        odd.append("counts")
        sound["counts"] = counts
    if tools is not None and not (isinstance(tools, list) and all(isinstance(name, str) for name in tools)):
        odd.append("tools")
        sound["tools"] = []
    return sound, [f"the meta line is damaged: its {', '.join(odd)} cannot be used"] if odd else []


def counts_of(meta: Entry) -> dict[str, int]:
    """`meta.counts`, with 0 for whatever is absent or is not a count."""
    stored = meta.get("counts")
    stored = stored if isinstance(stored, dict) else {}
    whole = {key: stored.get(key) for key in ("n", "requests", "generation", "compactions")}
    return {key: value if type(value) is int and value >= 0 else 0 for key, value in whole.items()}


# ---- effects ---------------------------------------------------------------------------------------------------------


def load(path: str, fd: int | None = None) -> Loaded:
    """Read one file of a session (the log or a generation), changing nothing. Reads once; needs no lock.

    Raises: OSError. Damage is reported, never raised: `bad`, `tail`, `notices`.
    """
    name = os.path.basename(path).removesuffix(".jsonl")
    with open(os.open(path, _READ) if fd is None else os.dup(fd), "rb", buffering=BUFFER) as file:
        size = os.fstat(file.fileno()).st_size
        marked = os.pread(file.fileno(), len(BOM), 0) == BOM
        ended = size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n"
        with _collector_paused():
            file.seek(len(BOM) if marked else 0)
            values = decode(file) if ended else None
            tail, unended, bad = b"", False, list[tuple[int, str]]()
            if values is None:
                file.seek(0)
                values, tail, unended, bad = _examine(file)
    notices = ["the file began with a byte order mark, which was ignored"] if marked else []
    if values and values[0]["type"] == "meta":
        meta = values.pop(0)
    else:
        meta = fresh_meta({}, name)
        del meta["created_at"]
        if values or bad:
            notices.append("the file has no meta line: its settings and its directory are unknown")
    if odd := unnumbered(values):
        notices.append(f"{odd} {'entry' if odd == 1 else 'entries'} had no number and got one")
    number(values)
    return Loaded(meta, values, size, tail, unended, bad, notices)


def _examine(lines: Iterable[bytes]) -> tuple[list[Entry], bytes, bool, list[tuple[int, str]]]:
    """The slow reading: entries, torn tail, whether the last entry lacks its LF, and the bad lines."""
    entries, tail, unended, bad = [], b"", False, []
    for line in scan(lines):
        if line.entry is not None:
            entries.append(line.entry)
            unended = not line.terminated
        elif line.terminated:
            bad.append((line.number, line.fault))
        else:
            record = line.raw.rstrip(b"\0")
            tail = line.raw[len(record) :]
            rest = [whole.entry for whole in scan([record]) if whole.entry is not None] if tail else []
            entries += rest
            unended, tail = bool(rest), tail if rest else line.raw
    return entries, tail, unended, bad


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Parsing makes many objects and no garbage: the cyclic collector would only walk them again and again. They have
    no cycles, so it need never look at them: what exists now is frozen (a third of the time of a large load)."""
    import gc

    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if running:
            gc.enable()


def generation_paths(path: str) -> list[str]:
    """The archived generations of the log at `path`, oldest first; the log itself is not among them, nor is a link or
    anything else that is no plain file."""
    folder = beside(path, "archive")
    if os.path.islink(folder):
        return []
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        found = [(int(m[1]), m[0]) for m in map(_GENERATION.fullmatch, names) if m]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [os.path.join(folder, name) for _, name in sorted(found)]


def existing(store: str, id: str) -> str:
    """The path of a session that is there and is a plain file. Raises: SessionNotFound, SessionError for a link."""
    path = log_path(store, id)
    if is_plain_file(path):
        return path
    if os.path.islink(path):
        raise SessionError(f"session {id} is a symbolic link, which is not followed", f"Look at {path}")
    if os.path.exists(path):
        raise SessionError(f"session {id} is not a file", f"Look at {path}")
    raise SessionNotFound(f"no session {id!r} in {store}", "See them with: agent sessions list --all")


def check_version(id: str, meta: Entry) -> None:
    """Raises SessionError for a session of a later version: what its lines mean is not for this one to judge, so this
    comes before any word about damage."""
    version = meta.get("version", 0)
    if not isinstance(version, int) or version > VERSION:
        raise SessionError(f"session {id} was written by a later version of agent", "Upgrade agent")


def corrupt(id: str, path: str, loaded: Loaded) -> SessionCorrupt:
    """The error of a session whose log has bad lines."""
    line, why = loaded.bad[0]
    more = f" ({len(loaded.bad)} lines are bad; this is the first)" if len(loaded.bad) > 1 else ""
    hint = f"Repair it, keeping every byte, with: agent doctor {id}"
    return SessionCorrupt(f"session {id} is damaged: line {line} of {path}: {why}{more}", hint, line)
