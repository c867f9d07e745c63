"""The few Linux calls that Python has no name for, each as a function that raises `OSError`.

Most of them act on the *calling thread* and on what it starts: the thread that launches a tool process is confined,
the agent is not. Nothing here decides anything.
"""

from __future__ import annotations

import ctypes
import os
import struct

_LIBC = ctypes.CDLL(None, use_errno=True)

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 4, 36, 38
_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_NR_CAPSET = {"x86_64": 126, "aarch64": 91, "riscv64": 91}
_KEPT_CAPABILITIES = (1, 2, 3, 4)
"""CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID: what work on files needs when the agent is root."""


def call(number: int, *arguments: object) -> int:
    """A system call by number. Raises: `OSError`."""
    return _checked(_LIBC.syscall(ctypes.c_long(number), *arguments))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    _checked(_LIBC.prctl(option, ctypes.c_ulong(value), zero, zero, zero))


def no_new_privileges() -> None:
    """Nothing this thread starts gains rights by a set-user-id file. For ever."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def close_memory() -> None:
    """Keep other processes of the same user out of this process's memory and /proc files; no core dumps."""
    _prctl(_PR_SET_DUMPABLE, 0)


def drop_capabilities() -> None:
    """Leave this thread, if it is root, only what work on files needs. Elsewhere it does nothing."""
    number = _NR_CAPSET.get(os.uname().machine)
    if os.geteuid() != 0 or number is None:
        return
    kept = sum(1 << bit for bit in _KEPT_CAPABILITIES)
    header = struct.pack("=Ii", 0x20080522, 0)
    call(number, header, struct.pack("=6I", kept, kept, 0, 0, 0, 0))


def own_mounts() -> None:
    """Give this thread a view of the mounts that it may change unseen. Raises: `OSError` without the right to."""
    _checked(_LIBC.unshare(_CLONE_NEWNS))
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)


def cover(path: str) -> None:
    """Mount emptiness over a directory or file."""
    if os.path.isdir(path):
        _mount("none", path, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "size=64k,mode=0755")
    else:
        _mount("/dev/null", path, None, _MS_BIND)


def seal(path: str) -> None:
    """Make what `cover` mounted read-only."""
    if os.path.isdir(path):
        _mount(None, path, None, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def bind(source: str, path: str) -> None:
    """Make `source` seen at `path` too."""
    _mount(source, path, None, _MS_BIND | _MS_REC)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    _checked(_LIBC.mount(*words, ctypes.c_ulong(flags), data.encode()))


def overwrite(address: int, length: int) -> None:
    """Fill a part of this process's own memory with `x`. The caller knows that it is there and not in use."""
    ctypes.memset(address, ord("x"), length)


def address_of(buffer: ctypes.Array[ctypes.c_char]) -> ctypes.c_void_p:
    """A pointer argument for `call`."""
    return ctypes.cast(buffer, ctypes.c_void_p)


def buffer(raw: bytes) -> ctypes.Array[ctypes.c_char]:
    """Memory that holds `raw`; it lives as long as the object."""
    return ctypes.create_string_buffer(raw, len(raw))
