"""Landlock: which files, ports, signals and sockets a thread and all it starts may use (Linux 5.13 and later).

The kernel's interface has grown by versions (ABI): each adds rights that a ruleset may *handle*, and what is handled
is forbidden unless a rule allows it. So on an older kernel the same code forbids less, never fails:

    1 files   2 rename and link across directories   3 truncate   4 TCP   5 ioctl on devices
    6 abstract sockets and signals to processes outside   7 (logging only)

Rules only ever allow, and a directory's rule covers all below it. To leave something out, everything beside it is
allowed instead (`uncovered`). Facts: the kernel's Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION_FLAG = 1
_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FIRST_ABI = (1 << 13) - 1  # execute ... make symbolic link
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_MAKE_DEVICES = 1 << 6 | 1 << 11
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = (_FIRST_ABI | _REFER | _TRUNCATE) & ~_MAKE_DEVICES
USE_DEVICE = READ_FILE | WRITE_FILE | _TRUNCATE | _IOCTL_DEV


class Handled(NamedTuple):
    """What a ruleset of some ABI forbids by default: bit masks for files, network and scopes."""

    files: int
    network: int
    scopes: int

    def packed(self) -> bytes:
        """The kernel's `landlock_ruleset_attr`, without the fields its ABI does not know."""
        fields = [self.files, self.network, self.scopes]
        while len(fields) > 1 and not fields[-1]:
            fields.pop()
        return struct.pack(f"={len(fields)}Q", *fields)


def handled(abi: int, allow_net: bool) -> Handled:
    """Everything that ABI `abi` (1 and later) can forbid; TCP not when the network is allowed."""
    files = _FIRST_ABI
    files |= _REFER if abi >= 2 else 0
    files |= _TRUNCATE if abi >= 3 else 0
    files |= _IOCTL_DEV if abi >= 5 else 0
    return Handled(files, 3 if abi >= 4 and not allow_net else 0, 3 if abi >= 6 else 0)


def uncovered(
    directory: str, hidden: Iterable[str], names: Callable[[str], list[str]], closed: Iterable[str] = ()
) -> Iterator[str]:
    """The fewest paths that together cover `directory` without any of the `hidden` paths below it, and without the
    `closed` directories in or below it: only with what is in those.

    `names` lists a directory. What appears later in a directory that is closed or has a hidden entry is not covered.
    """
    beneath = directory.rstrip("/") + "/"
    below = [path for path in hidden if path.startswith(beneath)]
    shut = [path for path in closed if path == directory or path.startswith(beneath)]
    if not below and not shut:
        yield directory
        return
    for name in names(directory):
        path = os.path.join(directory, name)
        if path not in below:
            yield from uncovered(path, below, names, shut)


# ---- effects ----


def abi() -> int:
    """The kernel's Landlock version, 0 where there is none."""
    from agent.tools import kernel

    try:
        return kernel.call(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def restrict(version: int, allow_net: bool, rules: Iterable[tuple[str, int]]) -> None:
    """Confine the calling thread for ever: only what `rules` (path, rights) allow. Paths that do not exist, and
    symbolic links, are passed over. Needs `no_new_privileges` first. Raises: `OSError`."""
    from agent.tools import kernel

    mask = handled(version, allow_net)
    attributes = mask.packed()
    ruleset = kernel.call(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path, rights in rules:
            _allow(ruleset, path, rights & mask.files)
        kernel.call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    from agent.tools import kernel

    try:
        place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        kind = os.fstat(place).st_mode
        if not stat.S_ISDIR(kind):
            rights &= _FILE_RIGHTS
        if rights and not stat.S_ISLNK(kind):
            kernel.call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)
