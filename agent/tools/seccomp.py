"""The system calls that Landlock does not see: sockets of every kind, io_uring, and what is said *about* files.

A small filter, loaded into the thread that starts a tool process:

    socket()        only the families that are allowed; none by default. UDP and the sockets of daemons (docker, ssh
                    agent, D-Bus) go this way. socketpair() stays.
    io_uring        is not there: it would open files and sockets past this filter.
    chmod family    is asked about: the agent makes the change itself, on the file that it has checked to lie in a
                    directory the tools may write in. What is checked is what is changed, so there is no race.
    chown, utime    are asked about too, and then made by the process: a race can gain a time stamp.
    setxattr, keyctl    are not supported: attributes of files outside, keys in the kernel's keyrings.
    truncation      by name, and by an open for reading, is refused where Landlock is too old to see it (ABI 1 and 2).
    other ABIs      (32-bit programs, x32) are not there: their call numbers mean other things.

Numbers are for x86_64 and for the generic table (aarch64, riscv64); elsewhere there is no filter. Facts: the kernel's
Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

_SET_MODE_FILTER, _NEW_LISTENER = 1, 1 << 3
_ALLOW, _ERRNO, _ASK = 0x7FFF0000, 0x00050000, 0x7FC00000
_LOAD, _AND, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW = -100, 0x100
_HOW_OPENED, _TRUNCATING_READ = 0o1003, 0o1000
INTERNET = (2, 10, 16)
"""AF_INET, AF_INET6, AF_NETLINK: what the network needs."""

Instruction = tuple[int, int, int, int]


class Change(NamedTuple):
    """Where a call has its arguments: the directory (None: the working directory), the path (None: the first argument
    is the file itself), the mode (None: not a chmod), the flags (None: it has none)."""

    directory: int | None
    path: int | None
    mode: int | None = None
    flags: int | None = None
    follows: bool = True


class Machine(NamedTuple):
    """Call numbers of one architecture; `opens` and `truncates` map a number to where the flags stand."""

    audit: int
    seccomp: int
    socket: int
    changes: Mapping[int, Change]
    unsupported: tuple[int, ...]
    opens: Mapping[int, int]
    truncate: int
    other_abi: int | None = None


_IO_URING = (425, 426, 427)
_OPENAT2 = 437
_FCHMODAT2 = {452: Change(0, 1, 2, 3)}
_GENERIC = {
    52: Change(0, None, 1), 53: Change(0, 1, 2), **_FCHMODAT2,
    54: Change(0, 1, flags=4), 55: Change(0, None), 88: Change(0, 1, flags=3),
}  # fmt: skip
_X86_64 = {
    90: Change(None, 0, 1), 91: Change(0, None, 1), 268: Change(0, 1, 2), **_FCHMODAT2,
    92: Change(None, 0), 93: Change(0, None), 94: Change(None, 0, follows=False), 260: Change(0, 1, flags=4),
    132: Change(None, 0), 235: Change(None, 0), 261: Change(0, 1), 280: Change(0, 1, flags=3),
}  # fmt: skip
_SETXATTRAT = (463, 466)
_GENERIC_UNSUPPORTED = (5, 6, 7, 14, 15, 16, 217, 218, 219, *_SETXATTRAT)
MACHINES = {
    "x86_64": Machine(
        0xC000003E,
        317,
        41,
        _X86_64,
        (188, 189, 190, 197, 198, 199, 248, 249, 250, *_SETXATTRAT),
        {2: 1, 257: 2},
        76,
        0x40000000,
    ),
    "aarch64": Machine(0xC00000B7, 277, 198, _GENERIC, _GENERIC_UNSUPPORTED, {56: 2}, 45),
    "riscv64": Machine(0xC00000F3, 277, 198, _GENERIC, _GENERIC_UNSUPPORTED, {56: 2}, 45),
}


def program(machine: Machine, families: tuple[int, ...], ask: bool, guard_truncation: bool = False) -> bytes:
    """The filter as the kernel takes it: 8 bytes an instruction."""
    missing = _ERRNO | errno.ENOSYS
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_JUMP_EQUAL, 1, 0, machine.audit), (_RETURN, 0, 0, missing)]
    code.append((_LOAD, 0, 0, _NUMBER))
    if machine.other_abi is not None:
        code += [(_JUMP_AT_LEAST, 0, 1, machine.other_abi), (_RETURN, 0, 0, missing)]
    for number in _IO_URING:
        code += _when(number, missing)
    for number in machine.unsupported:
        code += _when(number, _ERRNO | errno.EOPNOTSUPP)
    for number in machine.changes if ask else ():
        code += _when(number, _ASK)
    code += _no_truncation(machine) if guard_truncation else []
    code += [(_JUMP_EQUAL, 1, 0, machine.socket), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    for family in families:
        code += _when(family, _ALLOW)
    code.append((_RETURN, 0, 0, _ERRNO | errno.EACCES))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _when(value: int, answer: int) -> list[Instruction]:
    return [(_JUMP_EQUAL, 0, 1, value), (_RETURN, 0, 0, answer)]


def _no_truncation(machine: Machine) -> list[Instruction]:
    code = [*_when(machine.truncate, _ERRNO | errno.EACCES), *_when(_OPENAT2, _ERRNO | errno.ENOSYS)]
    for number, flags in machine.opens.items():
        inner = [(_LOAD, 0, 0, _FIRST_ARGUMENT + 8 * flags), (_AND, 0, 0, _HOW_OPENED)]
        inner += [*_when(_TRUNCATING_READ, _ERRNO | errno.EACCES), (_LOAD, 0, 0, _NUMBER)]
        code += [(_JUMP_EQUAL, 0, len(inner), number), *inner]
    return code


# ---- effects ----


def machine() -> Machine | None:
    """This machine's call numbers, None where they are not known."""
    return MACHINES.get(os.uname().machine)


def load(known: Machine, families: tuple[int, ...], guard_truncation: bool) -> int | None:
    """Filter the calling thread for ever; the answer is where questions about files come in, or None where the
    kernel does not ask (then chmod is not looked at). Needs `no_new_privileges` first. Raises: `OSError`."""
    from agent.tools import kernel

    for ask, flags in ((True, _NEW_LISTENER), (False, 0)):
        code = kernel.buffer(program(known, families, ask, guard_truncation))
        pointer = kernel.address_of(code).value
        header = kernel.buffer(struct.pack("@HP", len(code) // 8, pointer))
        try:
            listener = kernel.call(known.seccomp, _SET_MODE_FILTER, flags, kernel.address_of(header))
            return listener if ask else None
        except OSError:
            if not ask:
                raise
    return None


class Warden:
    """Answers tool processes that want to change what is said about a file: its mode, owner, times. `may_change(path)`
    decides; a mode is changed by the warden itself."""

    def __init__(self, listener: int, known: Machine, may_change: Callable[[str], bool]) -> None:
        self._listener = listener
        self._changes = known.changes
        self._may_change = may_change

    def fileno(self) -> int:
        return self._listener

    def close(self) -> None:
        """Stop answering; whoever still asks is told that there is no such call."""
        os.close(self._listener)

    def answer(self) -> None:
        """Take one question and answer it. A process that is gone by then is nobody's trouble."""
        from fcntl import ioctl

        question = bytearray(80)
        try:
            ioctl(self._listener, _RECEIVE, question)
            identity, caller, _, number = struct.unpack_from("=QIIi", question)
            change = self._changes[number]
            error = self._judge(caller, change, struct.unpack_from("=6Q", question, 32))
            flags = _CONTINUE if change.mode is None and not error else 0
            ioctl(self._listener, _SEND, bytearray(struct.pack("=QqiI", identity, 0, -error, flags)))
        except OSError:
            return

    def _judge(self, caller: int, change: Change, arguments: tuple[int, ...]) -> int:
        """Look at what is meant, and make the change if it is of a mode; an error number, 0 when all is well."""
        try:
            descriptor = os.open(_where(caller, change, arguments), os.O_PATH | os.O_CLOEXEC | _how(change, arguments))
        except OSError as error:
            return error.errno or errno.EPERM
        try:
            own = f"/proc/self/fd/{descriptor}"
            if not self._may_change(os.readlink(own)):
                return errno.EACCES
            return 0 if change.mode is None else _chmod(own, descriptor, arguments[change.mode] & 0o7777)
        except OSError as error:
            return error.errno or errno.EPERM
        finally:
            os.close(descriptor)


def _chmod(own: str, descriptor: int, mode: int) -> int:
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISLNK(kind):
        return errno.EOPNOTSUPP
    if mode & 0o6000 and stat.S_ISREG(kind):
        return errno.EPERM  # a program that runs as somebody else outlives the sandbox
    os.chmod(own, mode)
    return 0


def _how(change: Change, arguments: tuple[int, ...]) -> int:
    """The open flag for a call that means the link itself."""
    flags = 0 if change.flags is None else arguments[change.flags]
    return 0 if change.follows and not flags & _AT_SYMLINK_NOFOLLOW else os.O_NOFOLLOW


def _where(caller: int, change: Change, arguments: tuple[int, ...]) -> str:
    """The file a question is about, as a path through the caller's own /proc entry."""
    base = f"/proc/{caller}/cwd"
    if change.directory is not None:
        number = struct.unpack("=i", struct.pack("=I", arguments[change.directory] & 0xFFFFFFFF))[0]
        base = base if number == _AT_FDCWD else f"/proc/{caller}/fd/{number}"
    if change.path is None or not arguments[change.path]:
        return base
    name = _text_at(caller, arguments[change.path])
    if not name:
        return base
    return f"/proc/{caller}/root{name}" if name.startswith("/") else f"{base}/{name}"


def _text_at(caller: int, address: int) -> str:
    """A C string in the caller's memory, at most one path long."""
    with open(f"/proc/{caller}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        found = b""
        while b"\0" not in found and len(found) < 4096:
            piece = memory.read(min(256, 4096 - address % 4096))
            if not piece:
                raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
            address += len(piece)
            found += piece
    return os.fsdecode(found.split(b"\0", 1)[0])
