"""Repair of a damaged session: what is wrong, what can be rescued, and the rewrite that puts it right.

A bad line is looked at as the ways it can have come about, and whatever whole records it holds are taken back:

    NUL bytes around a record            the record                 (a crash of the machine)
    two or more records on one line      each of them               (an append after a torn tail, elsewhere)
    a torn record before a whole one     the whole one              (the same)
    a record broken by raw line ends     the record, lines joined   (a program that did not escape)
    bytes that are not UTF-8             the record, U+FFFD there   (a flipped byte)

The repair is a rewrite: the damaged file goes into the archive whole, and every bad line, rescued from or not, is also
put into `<id>.archive/quarantine-NNNN`. Nothing is removed.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from agent.log.disk import DISK, Disk, save_aside, storing
from agent.log.entries import KNOWN_TYPES, Entry, Line, fault_of, number, scan
from agent.log.logfile import beside, check_version, existing, load
from agent.session import Session

MOST_JOINED = 200
"""Lines that one record is at most looked for in."""
MOST_STARTS = 1000
"""Places in one line at which a record is at most looked for."""
_START = re.compile(r'\{\s*"type"\s*:')


class Finding(NamedTuple):
    """One bad line: its number, why it is bad, and how many records a repair takes from it."""

    line: int
    fault: str
    rescued: int


class Repair(NamedTuple):
    """What a repair did: `archive` and `quarantine` are where the damaged file and the bad lines are now, or ""."""

    id: str
    findings: list[Finding]
    notices: list[str]
    archive: str
    quarantine: str


def rescue(raw: bytes) -> list[Entry]:
    """The whole records that one bad line holds, in order; [] when there is none.

    Those at its start; else those that fill its end, of a type we know: an object inside a torn record is no record.
    """
    text = raw.replace(b"\0", b"").decode("utf-8", "replace").strip("\ufeff \t\r")
    found, _ = _records(text)
    if found:
        return found
    for start in list(_START.finditer(text))[:MOST_STARTS]:
        found, complete = _records(text[start.start() :])
        if complete and all(entry["type"] in KNOWN_TYPES for entry in found):
            return found
    return []


def _records(text: str) -> tuple[list[Entry], bool]:
    """The records standing one after the other at the start of `text`, and whether they are all of it."""
    decoder = json.JSONDecoder(strict=False)
    found: list[Entry] = []
    at = 0
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        if fault_of(value):
            break
        found.append(value)
        while at < len(text) and text[at].isspace():
            at += 1
    return found, bool(found) and at == len(text)


def mended(lines: Sequence[Line]) -> tuple[list[Entry], list[Finding]]:
    """All entries of a file, meta included where it has one, with what bad lines gave back in their place."""
    entries: list[Entry] = []
    findings: list[Finding] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.entry is not None:
            entries.append(line.entry)
        elif line.terminated:
            found, used = _joined(lines[at - 1 :])
            found = found or rescue(line.raw)
            entries += found
            findings.append(Finding(line.number, line.fault, len(found)))
            findings += [Finding(b.number, "it belongs to the line before", 0) for b in lines[at : at - 1 + used]]
            at += max(0, used - 1)
    return entries, findings


def _joined(lines: Sequence[Line]) -> tuple[list[Entry], int]:
    """One record that raw line ends broke: the first lines joined until they parse, and how many were used."""
    text, at = "", lines[0].number
    if not lines[0].raw.lstrip().startswith(b"{"):
        return [], 0
    for used, line in enumerate(lines[:MOST_JOINED], 1):
        if line.entry is not None or not line.terminated:
            break
        text += "\n" * (line.number - at) + line.raw.decode("utf-8", "replace")  # blank lines count
        at = line.number
        if used > 1:
            try:
                value = json.loads(text, strict=False)
            except (ValueError, RecursionError):
                continue
            if not fault_of(value):
                return [value], used
    return [], 0


# ---- effects ---------------------------------------------------------------------------------------------------------


def examine(store: str, id: str) -> list[Finding]:
    """What a repair would find, changing nothing.

    Raises: SessionNotFound, SessionError for a later version, StorageError.
    """
    path = existing(store, id)
    with storing(f"read session {id}"), open(path, "rb") as file:
        check_version(id, load(path).meta)
        return mended(list(scan(file)))[1]


def _renumber(entries: Sequence[Entry]) -> None:
    """A number names one entry: what comes second under it (a record written twice) gets a new one."""
    seen: set[int] = set()
    for entry in entries:
        if entry.get("n") in seen:
            del entry["n"]
        elif "n" in entry:
            seen.add(entry["n"])
    number(entries, max(seen, default=0))


def repair(store: str, id: str, *, disk: Disk = DISK) -> Repair:
    """Put a session right. A sound one is left as it is. Raises: SessionNotFound, SessionBusy, StorageError."""
    with Session.open(store, id, damaged=True, disk=disk) as session:
        with storing(f"read session {id}"), open(session.path, "rb") as file:
            data = file.read()
        lines = list(scan(io.BytesIO(data)))
        entries, findings = mended(lines)
        if not findings:
            return Repair(id, [], session.notices, "", "")
        bad = {finding.line for finding in findings}
        with storing(f"repair session {id}"):
            kept = b"".join(line.raw + b"\n" for line in lines if line.number in bad)
            quarantine = save_aside(disk, beside(session.path, "archive"), "quarantine", kept)
        meta = next((e for e in entries if e["type"] == "meta"), None)
        rest = [e for e in entries if e is not meta]
        _renumber(rest)
        session.meta = {**session.meta, **(meta or {})}
        name = session.rewrite(rest)
        archive = os.path.join(beside(session.path, "archive"), f"{name}.jsonl")
        return Repair(id, findings, session.notices, archive, quarantine)
