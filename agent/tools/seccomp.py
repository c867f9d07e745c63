"""The system calls that Landlock does not see: sockets of every kind, io_uring, and chmod.

A small filter, loaded into the thread that starts a tool process:

    socket()        only the families that are allowed; none by default. UDP and the sockets of daemons (docker, ssh
                    agent, D-Bus) go this way. socketpair() stays.
    io_uring        is not there: it would open files and sockets past this filter.
    chmod family    is asked about: the agent makes the change itself, on the file that it has checked to lie in a
                    directory the tools may write in. What is checked is what is changed, so there is no race.
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
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT_0 = 0, 4, 16
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_AT_FDCWD = -100
INTERNET = (2, 10, 16)
"""AF_INET, AF_INET6, AF_NETLINK: what the network needs."""


class Machine(NamedTuple):
    """Call numbers of one architecture. `chmods` maps a number to where the directory, path and mode stand among the
    arguments (directory None: the working directory; path None: the first argument is the file itself)."""

    audit: int
    seccomp: int
    socket: int
    io_uring: tuple[int, ...]
    chmods: Mapping[int, tuple[int | None, int | None, int]]
    other_abi: int | None = None


_IO_URING = (425, 426, 427)
_FCHMODAT2 = {452: (0, 1, 2)}
_GENERIC = {52: (0, None, 1), 53: (0, 1, 2), **_FCHMODAT2}
MACHINES = {
    "x86_64": Machine(
        0xC000003E, 317, 41, _IO_URING, {90: (None, 0, 1), 91: (0, None, 1), 268: (0, 1, 2), **_FCHMODAT2}, 0x40000000
    ),
    "aarch64": Machine(0xC00000B7, 277, 198, _IO_URING, _GENERIC),
    "riscv64": Machine(0xC00000F3, 277, 198, _IO_URING, _GENERIC),
}


def program(machine: Machine, families: tuple[int, ...], ask_about_chmod: bool) -> bytes:
    """The filter as the kernel takes it: 8 bytes an instruction."""
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_JUMP_EQUAL, 1, 0, machine.audit), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    code.append((_LOAD, 0, 0, _NUMBER))
    if machine.other_abi is not None:
        code += [(_JUMP_AT_LEAST, 0, 1, machine.other_abi), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for number in machine.io_uring:
        code += _when(number, _ERRNO | errno.ENOSYS)
    for number in machine.chmods if ask_about_chmod else ():
        code += _when(number, _ASK)
    code += [(_JUMP_EQUAL, 1, 0, machine.socket), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _ARGUMENT_0)]
    for family in families:
        code += _when(family, _ALLOW)
    code.append((_RETURN, 0, 0, _ERRNO | errno.EACCES))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _when(value: int, answer: int) -> list[tuple[int, int, int, int]]:
    return [(_JUMP_EQUAL, 0, 1, value), (_RETURN, 0, 0, answer)]


# ---- effects ----


def machine() -> Machine | None:
    """This machine's call numbers, None where they are not known."""
    return MACHINES.get(os.uname().machine)


def load(known: Machine, families: tuple[int, ...]) -> int | None:
    """Filter the calling thread for ever; the answer is where questions about chmod come in, or None where the
    kernel does not ask (then chmod is not looked at). Needs `no_new_privileges` first. Raises: `OSError`."""
    from agent.tools import kernel

    for ask, flags in ((True, _NEW_LISTENER), (False, 0)):
        code = kernel.buffer(program(known, families, ask))
        pointer = kernel.address_of(code).value
        header = kernel.buffer(struct.pack("@HP", len(code) // 8, pointer))
        try:
            listener = kernel.call(known.seccomp, _SET_MODE_FILTER, flags, kernel.address_of(header))
            return listener if ask else None
        except OSError:
            if not ask:
                raise
    return None


class ChmodWarden:
    """Answers tool processes that want to change a mode: it does it for them where `may_change(path)` says so."""

    def __init__(self, listener: int, known: Machine, may_change: Callable[[str], bool]) -> None:
        self._listener = listener
        self._chmods = known.chmods
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
            arguments = struct.unpack_from("=6Q", question, 32)
            reply = -self._change(caller, number, arguments)
            ioctl(self._listener, _SEND, bytearray(struct.pack("=QqiI", identity, 0, reply, 0)))
        except OSError:
            return

    def _change(self, caller: int, number: int, arguments: tuple[int, ...]) -> int:
        """Make the change; the answer is an error number, 0 when it is made."""
        directory, path, mode = self._chmods[number]
        try:
            descriptor = os.open(_where(caller, directory, path, arguments), os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            return error.errno or errno.EPERM
        try:
            own = f"/proc/self/fd/{descriptor}"
            if not self._may_change(os.readlink(own)):
                return errno.EACCES
            wanted = arguments[mode] & 0o7777
            if wanted & 0o6000 and stat.S_ISREG(os.fstat(descriptor).st_mode):
                return errno.EPERM  # a program that runs as somebody else outlives the sandbox
            os.chmod(own, wanted)
            return 0
        except OSError as error:
            return error.errno or errno.EPERM
        finally:
            os.close(descriptor)


def _where(caller: int, directory: int | None, path: int | None, arguments: tuple[int, ...]) -> str:
    """The file a question is about, as a path through the caller's own /proc entry."""
    base = f"/proc/{caller}/cwd"
    if directory is not None:
        number = struct.unpack("=i", struct.pack("=I", arguments[directory] & 0xFFFFFFFF))[0]
        base = base if number == _AT_FDCWD else f"/proc/{caller}/fd/{number}"
    if path is None:
        return base
    name = _text_at(caller, arguments[path])
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
