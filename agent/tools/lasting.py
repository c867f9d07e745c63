"""What takes effect later and outside the sandbox: git's hooks and configuration, and our own `.agent.toml`.

A tool works inside; the git that the user runs in the same directory does not, and it runs what a hook or a line of
its configuration names. One tool call must not do that, nor stop or loosen later runs. So no tool changes

    hooks/**  config  config.worktree  commondir    of a `.git`, of its modules and worktrees, of a bare repository
    .git            where it is a file that points to a repository
    .agent.toml     in any directory

The file tools refuse. Commands cannot be refused by the kernel here: git makes and replaces files beside its
configuration at every commit, and the kernel allows directories whole. So what a command changed is put back when it
and all it started have ended; what it had written is kept in the session's files, and the result is a denial.

Holds: for every repository that was there before this run's command, by its path, and by its inode where it was moved,
also in two steps. A repository that commands of this run made (init, clone) may be configured by them until the run
ends, but has no hooks, not even those of the user's template. Does not hold: while the command runs; when the agent is
killed (SIGKILL) under it; beyond `_MOST_DIRECTORIES` (the nearest to the roots are looked at first); for a hook kept
among the project's own files (`core.hooksPath`).
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from agent.tools import backup, paths
from agent.tools.output import visible
from agent.tools.protocol import ToolContext

OWN = ".agent.toml"
_GIT = ".git"
_OF_GIT = ("hooks", "config", "config.worktree", "commondir")
_INSIDE_GIT = ("modules", "worktrees")
_BARE = {"HEAD", "objects", "refs"}
_MOST_DIRECTORIES = 4_000
_LARGEST = 1 << 20
"""Bytes of one file that are remembered; a larger one cannot be put back."""
_CLOCK = 50_000_000
"""Nanoseconds by which a file's time may lag behind the clock."""

_MOST_OPEN = 100
"""Directories held open while a command runs."""

Identity = tuple[int, int]
State = Any
"""None: nothing there. ("file", mode, bytes), ("link", target), ("dir", {name: State}), or a tuple of something else
by which a change is known."""
States = dict[str, State]
"""By name within a holder."""
_NEVER: States = {OWN: None, "hooks": ("dir", {})}
"""How these have to be in what a command has made."""


def refusal(path: str) -> str:
    """The sentence that refuses a write to a resolved path; "" where it may be written."""
    parts = path.casefold().split("/")
    after = parts[parts.index(_GIT) + 1 :] if _GIT in parts else []
    found = parts[-1] in (OWN, _GIT) or any(part in _OF_GIT for part in after) or _of_bare(path)
    return _refusal(path) if found else ""


def _refusal(path: str) -> str:
    return (
        f"{visible(path)} takes effect outside the sandbox later (git's hooks and configuration, the agent's own "
        "rules): no tool may write it. Tell the user what you would have put there."
    )


def line(undone: Sequence[str]) -> str:
    """The line of a result that tells what was put back; "" for nothing."""
    if not undone:
        return ""
    return (
        f"[denied: {'; '.join(undone)}. Commands may not change git's hooks and configuration of a repository that was "
        f"there, or {OWN}: they take effect outside the sandbox. Tell the user what you would have changed.]\n"
    )


# ---- effects ----


def _of_bare(path: str) -> bool:
    above = os.path.dirname(path)
    while above not in ("/", ""):
        name, above = os.path.basename(path), os.path.dirname(path)
        if name.casefold() in _OF_GIT and all(os.path.lexists(os.path.join(above, each)) for each in _BARE):
            return True
        path = above
    return False


@contextmanager
def kept(context: ToolContext, confined: bool = True) -> Iterator[list[str]]:
    """Run a command within this; afterwards the list says what it changed and what became of that, a clause each.
    Where nothing confines commands each was asked about, and nothing is put back."""
    undone: list[str] = []
    if not confined:
        yield undone
        return
    roots = [os.path.realpath(root) for root in context.roots]
    with ExitStack() as stack:
        by_identity = _look(context, roots, stack)
        start = time.time_ns() - _CLOCK
        try:
            yield undone
        finally:
            undone += _mend(context, roots, start, by_identity)


def _look(context: ToolContext, roots: list[str], stack: ExitStack) -> dict[Identity, States]:
    """Remember everything as it is now; the answer is the same by identity. What is not there now stays remembered as
    it was: it may come back."""
    by_identity: dict[Identity, States] = {}
    for holder, names in holders(roots).items():
        identity = _identity(holder)
        if identity is None or (identity in context.made and holder not in context.lasting):
            continue
        context.lasting[holder] = {name: _state(os.path.join(holder, name)) for name in names}
        if len(by_identity) < _MOST_OPEN:  # while it is open, nothing else can get its inode
            stack.callback(os.close, os.open(holder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
            by_identity[identity] = context.lasting[holder]
    return by_identity


def _mend(context: ToolContext, roots: list[str], start: int, by_identity: Mapping[Identity, States]) -> list[str]:
    undone: list[str] = []
    present = holders(roots)
    there = {holder: identity for holder in sorted({*present, *context.lasting}) if (identity := _identity(holder))}
    context.made.intersection_update(there.values())
    for holder, identity in there.items():
        names = present.get(holder, [])
        states = context.lasting.get(holder) or by_identity.get(identity)
        if states is None:
            context.made |= {identity} if "hooks" in names else set()
            names = [name for name in names if name in _NEVER]
            states = {name: _NEVER[name] for name in names}
        for name in sorted({*names, *states}):
            path = os.path.join(holder, name)
            now, was = _state(path), states.get(name)
            planted = name != OWN or was is not None or _changed_since(path, start)
            if now != was and planted and (identity not in context.made or now is not None):
                undone.append(_undo(path, now, was, context, roots))
    return undone


def _undo(path: str, now: State, was: State, context: ToolContext, roots: list[str]) -> str:
    """Put one thing back; the answer is what to say of it."""
    root = max((root for root in roots if paths.inside(path, root)), key=len)
    parts = tuple(os.path.relpath(path, root).split(os.sep))
    try:
        copies = [os.path.join(context.files(), backup.keep(raw, context.files())) for raw in _contents(now, was)]
        with paths.parent(paths.Place(path, root, parts)) as (directory, name):
            _restore(directory, name, now, was)
    except (OSError, paths.Refused) as error:
        return f"{visible(path)} was changed and could not be put back ({error}): tell the user"
    written = f" (what was written is kept in {', '.join(copies[:3])})" if copies else ""
    return f"{visible(path)} was put back as it was{written}"


def _contents(now: State, was: State) -> list[bytes]:
    """The contents in `now` that are not in `was`."""
    if now == was or now is None:
        return []
    if now[0] == "dir":
        before = was[1] if was is not None and was[0] == "dir" else {}
        return [raw for name, each in now[1].items() for raw in _contents(each, before.get(name))]
    return [now[2]] if now[0] == "file" and now[2] else []


def _restore(directory: int, name: str, now: State, was: State) -> None:
    if now == was:
        return
    if now is not None and was is not None and now[0] == was[0] == "dir":
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            for each in {*now[1], *was[1]}:
                _restore(below, each, now[1].get(each), was[1].get(each))
        finally:
            os.close(below)
        return
    if was is not None and was[0] not in ("file", "link", "dir"):
        raise OSError(f"{name} was too large to remember, or no file")
    if now is not None and now[0] == "dir":
        shutil.rmtree(name, dir_fd=directory)
    elif now is not None:
        os.unlink(name, dir_fd=directory)
    if was is not None:
        _make(directory, name, was)


def _make(directory: int, name: str, state: State) -> None:
    if state[0] == "link":
        os.symlink(state[1], name, dir_fd=directory)
    elif state[0] == "dir":
        os.mkdir(name, dir_fd=directory)
        _restore(directory, name, ("dir", {}), state)
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=directory), "wb") as file:
            file.write(state[2])
            os.fchmod(file.fileno(), state[1])


def _state(path: str) -> State:
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return ("link", os.readlink(path))
        if stat.S_ISDIR(status.st_mode):  # git runs no sample
            names = [name for name in os.listdir(path) if not name.endswith(".sample")]
            return ("dir", {name: _state(os.path.join(path, name)) for name in names})
        if stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST:
            with open(path, "rb") as file:
                return ("file", stat.S_IMODE(status.st_mode), file.read(_LARGEST))
        return ("other", status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino)
    except FileNotFoundError:
        return None
    except OSError as error:
        return ("unreadable", error.errno)


def _identity(directory: str) -> Identity | None:
    """What a directory is known by wherever it goes; None where there is none, or the way to it has become a link."""
    try:
        status = os.lstat(directory)
    except OSError:
        return None
    right = stat.S_ISDIR(status.st_mode) and os.path.realpath(directory) == directory
    return (status.st_dev, status.st_ino) if right else None


def _changed_since(path: str, start: int) -> bool:
    try:
        return os.lstat(path).st_ctime_ns >= start
    except OSError:
        return False


def holders(roots: Sequence[str]) -> dict[str, list[str]]:
    """The directories in or below `roots` that hold what may not change, with the names in them; links not followed."""
    found: dict[str, list[str]] = {}
    left, looked = deque(roots), 0
    while left and looked < _MOST_DIRECTORIES:
        directory, looked = left.popleft(), looked + 1
        files, below = _listed(directory)
        if {*files, *below} >= _BARE:
            found[directory] = list(_OF_GIT)
            at_git = os.path.basename(directory).casefold() == _GIT
            left.extend(os.path.join(directory, name) for name in below if name in _INSIDE_GIT or not at_git)
            continue
        if names := [name for name in files if name.casefold() in (_GIT, OWN)]:
            found[directory] = names
        if os.path.basename(os.path.dirname(directory)) == "worktrees" and "commondir" in files:
            found[directory] = list(_OF_GIT)
        left.extend(os.path.join(directory, name) for name in sorted(below, key=lambda name: name.casefold() != _GIT))
    return found


def _listed(directory: str) -> tuple[list[str], list[str]]:
    """The names in a directory: of what is no directory, and of directories."""
    files: list[str] = []
    below: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                (below if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    except OSError:
        return [], []
    return files, below
