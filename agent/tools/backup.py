"""The old content of every file a tool changed, and the way back.

A backup is a copy of the whole file under the session's files directory, named by its hash, so that the same content
is kept once. The record of it (`detail["backup"]` of the call) stands in the session file:

    {"path": absolute, "name": copy's name or null where the file was new, "before": sha256 or null,
     "after": sha256, "mode": permission bits}

Undoing a series of calls brings each file back to what it was before the first of them. A file that has changed since
the last of them is left alone, unless it is forced: it holds somebody's work. Only paths inside the given roots are
touched, as a session file may come from elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agent.tools import paths
from agent.tools.files import digest


class Restore(NamedTuple):
    """One step of an undo: `action` is "restore", "delete" or "skip"; `why` explains a skip, else ""."""

    path: str
    action: str
    why: str
    name: str | None
    mode: int


def plan(
    details: Sequence[Mapping[str, Any]], files_dir: str, roots: Sequence[str], force: bool = False
) -> list[Restore]:
    """What undoing the calls with these `tool` objects (in order) would do to each file. Changes nothing."""
    first: dict[str, Mapping[str, Any]] = {}
    last: dict[str, Any] = {}
    for detail in details:
        record = detail.get("backup")
        if isinstance(record, Mapping) and isinstance(record.get("path"), str):
            first.setdefault(record["path"], record)
            last[record["path"]] = record.get("after")
    return [_step(record, last[path], files_dir, roots, force) for path, record in first.items()]


def _step(record: Mapping[str, Any], after: Any, files_dir: str, roots: Sequence[str], force: bool) -> Restore:
    path, name, mode = record["path"], record.get("name"), record.get("mode")
    name = name if isinstance(name, str) else None
    mode = mode & 0o777 if isinstance(mode, int) else 0o600
    why = _obstacle(path, name, record.get("before"), after, files_dir, roots, force)
    action = "skip" if why else "restore" if name else "delete"
    return Restore(path, action, why, name, mode)


# ---- effects ----


def keep(raw: bytes, files_dir: str) -> str:
    """Copy `raw` into `files_dir` and return the copy's name."""
    name = f"backup-{digest(raw)[:20]}"
    try:
        handle = os.open(os.path.join(files_dir, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return name
    with os.fdopen(handle, "wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    return name


def undo(steps: Sequence[Restore], files_dir: str, roots: Sequence[str]) -> list[Restore]:
    """Take the steps; the answer is the steps as they went (one that failed becomes a skip that says why)."""
    return [_taken(step, files_dir, roots) for step in steps]


def _taken(step: Restore, files_dir: str, roots: Sequence[str]) -> Restore:
    from agent.tools.edits import replace

    try:
        target = _inside(step.path, roots)
        if target is None:
            return step._replace(action="skip", why="outside the directories that may be changed")
        if step.action == "restore" and step.name:
            with open(os.path.join(files_dir, os.path.basename(step.name)), "rb") as file:
                replace(target, file.read(), step.mode)
        elif step.action == "delete":
            with paths.parent(target) as (directory, name):
                os.unlink(name, dir_fd=directory)
        return step
    except (OSError, paths.Refused) as error:
        return step._replace(action="skip", why=str(error))


def _inside(path: str, roots: Sequence[str]) -> paths.Place | None:
    full = os.path.realpath(path)
    root = next((r for r in map(os.path.realpath, roots) if paths.inside(full, r) and full != r), None)
    return paths.Place(full, root, tuple(os.path.relpath(full, root).split(os.sep))) if root else None


def _obstacle(
    path: str, name: str | None, before: Any, after: Any, files_dir: str, roots: Sequence[str], force: bool
) -> str:
    target = _inside(path, roots)
    if target is None or target.path != path:
        return "outside the directories that may be changed"
    now = _hash(path)
    if now == before:
        return "already as it was"
    if now != after and not force:
        return "changed since by something else"
    if name and _hash(os.path.join(files_dir, os.path.basename(name))) != before:
        return "its backup is missing or damaged"
    return ""


def _hash(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return digest(file.read())
    except OSError:
        return None
