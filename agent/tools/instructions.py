"""AGENTS.md: what the user and the project want every session to know.

The user's own file comes first, then those from the root of the repository down to the working directory, so that the
nearest stands last. Each is capped, named by where it came from, and made safe to show. A project's file must lie in
the project: a link that leads out of it is not followed into a prompt that is sent away.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import NamedTuple

from agent.config import config_home
from agent.tools.output import visible
from agent.tools.paths import inside

NAME = "AGENTS.md"
LARGEST = 24_000
"""Bytes taken of one file."""
LARGEST_TOGETHER = 48_000


class Instructions(NamedTuple):
    """One file's text and where it came from; `cut` when there was more."""

    origin: str
    text: str
    cut: bool

    def block(self) -> str:
        """The form in the system prompt."""
        more = f"\n[cut at {len(self.text):,} characters; read the file for the rest]" if self.cut else ""
        return f"Instructions from {visible(self.origin)}:\n{self.text}{more}"


def repository_root(cwd: str) -> str:
    """The nearest directory upwards that holds `.git`, else `cwd` itself."""
    here = os.path.realpath(cwd)
    at = here
    while not os.path.lexists(os.path.join(at, ".git")):
        above = os.path.dirname(at)
        if above == at:
            return here
        at = above
    return at


def directories(root: str, cwd: str) -> list[str]:
    """From `root` down to `cwd`, both resolved and included."""
    relative = os.path.relpath(cwd, root)
    found = [root]
    for name in [] if relative == "." else relative.split(os.sep):
        found.append(os.path.join(found[-1], name))
    return found


# ---- effects ----


def load(cwd: str, environ: Mapping[str, str]) -> list[Instructions]:
    """The instructions that hold in `cwd`, the nearest last. Total: a file that cannot be read is not there."""
    root, here = repository_root(cwd), os.path.realpath(cwd)
    own = config_home(environ)
    wanted: list[tuple[str, str | None]] = [(os.path.join(own, NAME), None)] if own else []
    wanted += [(os.path.join(directory, NAME), root) for directory in directories(root, here)]
    found: list[Instructions] = []
    room = LARGEST_TOGETHER
    for path, within in wanted:
        one = _read(path, within, min(LARGEST, room))
        if one is not None:
            found.append(one)
            room -= len(one.text.encode())
    return found


def _read(path: str, within: str | None, cap: int) -> Instructions | None:
    full = os.path.realpath(path)
    if cap <= 0 or (within is not None and not inside(full, within)):
        return None
    try:
        handle = os.open(full, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        raw = os.read(handle, cap + 1) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    finally:
        os.close(handle)
    text = visible(raw[:cap].decode("utf-8", "ignore").removeprefix("\ufeff").replace("\r\n", "\n")).strip()
    return Instructions(path, text, len(raw) > cap) if text else None
