"""What was gathered of a session so far, kept beside its archive: a compaction then reads only what is new.

The JSON lines are the only truth. The file holds the statements worth most of all messages up to the last compaction,
and the digest of the archive that this one made; where that is not the newest archive, or the file is torn, gone or
cannot be written, everything is read again. So it can be deleted at any time, and never says what the originals do not.
"""

from __future__ import annotations

import os

import orjson

from agent.compaction import record
from agent.compaction.statements import Statement, pinned
from agent.log.logfile import beside
from agent.messages import text_of
from agent.session import Session
from agent.tokens import Entry

VERSION = 1
KEPT = 3_000
"""Statements that are kept from one compaction to the next, up to twice as many before they are thinned again: several
times what a large record holds."""


def gather(session: Session) -> record.Gathered:
    """All statements of the session's life, pins first."""
    known = _load(session)
    if known is None:
        size = sum(len(text_of(entry["message"])) for entry in session.originals())
        found = record.gather(session.originals(), None, size)
    else:
        top = known.last
        found = record.gather((e for e in _messages(session) if e["n"] > top), known)
    pins = (e["text"] for e in session.entries if e.get("type") == "pin" and isinstance(e.get("text"), str))
    return record.Gathered([*pinned(pins), *found.statements], found.last)


def keep(session: Session, gathered: record.Gathered) -> None:
    """Put the best of it beside the archive that was just made. Does nothing where that cannot be."""
    archived = session.meta.get("archived")
    if not session.path or not isinstance(archived, dict):
        return
    best = gathered.of(lambda n: n > 0)
    if len(best.statements) > 2 * KEPT:
        record.thin(best, KEPT)
    told = {"version": VERSION, "archive": archived["sha256"], "last": gathered.last, "statements": best.statements}
    path = _path(session)
    try:
        with open(os.open(f"{path}.tmp", os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(orjson.dumps(told, default=tuple))
        os.replace(f"{path}.tmp", path)
    except (OSError, TypeError):  # TypeError: a lone surrogate in a message
        pass


def _load(session: Session) -> record.Gathered | None:
    """What is kept, if it is of the newest archive and whole."""
    archived = session.meta.get("archived")
    if not session.path or not isinstance(archived, dict):
        return None
    try:
        with open(_path(session), "rb") as file:
            told = orjson.loads(file.read())
        if told["version"] != VERSION or told["archive"] != archived["sha256"]:
            return None
        return record.Gathered([Statement(*each) for each in told["statements"]], told["last"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _messages(session: Session) -> list[Entry]:
    """The messages of the present file in order of n."""
    return sorted((e for e in session.entries if e["type"] == "message"), key=lambda e: int(e["n"]))


def _path(session: Session) -> str:
    return os.path.join(beside(session.path, "archive"), "gleaned.json")
