"""The system call filter, run by a small interpreter of its own language: what it answers to each call."""

from __future__ import annotations

import errno
import struct

import pytest

from agent.tools import seccomp

ALLOW, ASK = "allow", "ask"
NAMES = {0x7FFF0000: ALLOW, 0x7FC00000: ASK}


def answer(code: bytes, number: int, *arguments: int, audit: int = 0xC000003E) -> str:
    """What the filter says to a call: interpret classic BPF over a `seccomp_data`."""
    data = struct.pack("=iIQ6Q", number, audit, 0, *arguments, *[0] * (6 - len(arguments)))
    instructions = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    accumulator, at = 0, 0
    while True:
        operation, yes, no, k = instructions[at]
        at += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("=I", data, k)[0]
        elif operation == 0x54:
            accumulator &= k
        elif operation == 0x15:
            at += yes if accumulator == k else no
        elif operation == 0x35:
            at += yes if accumulator >= k else no
        else:
            assert operation == 0x06
            return NAMES.get(k) or errno.errorcode[k & 0xFFFF]


X86 = seccomp.MACHINES["x86_64"]
CALLS = [
    # call, first argument, closed network, open network
    ("read", 0, 0, ALLOW, ALLOW),
    ("execve", 59, 0, ALLOW, ALLOW),
    ("socket AF_UNIX", 41, 1, "EACCES", "EACCES"),
    ("socket AF_INET", 41, 2, "EACCES", ALLOW),
    ("socket AF_INET6", 41, 10, "EACCES", ALLOW),
    ("socket AF_NETLINK", 41, 16, "EACCES", ALLOW),
    ("socket AF_PACKET", 41, 17, "EACCES", "EACCES"),
    ("socket AF_VSOCK", 41, 40, "EACCES", "EACCES"),
    ("socketpair", 53, 1, ALLOW, ALLOW),
    ("io_uring_setup", 425, 8, "ENOSYS", "ENOSYS"),
    ("chmod", 90, 0, ASK, ASK),
    ("fchmod", 91, 0, ASK, ASK),
    ("fchmodat", 268, 0, ASK, ASK),
    ("fchmodat2", 452, 0, ASK, ASK),
    ("chown", 92, 0, ASK, ASK),
    ("utimensat", 280, 0, ASK, ASK),
    ("setxattr", 188, 0, "ENOTSUP", "ENOTSUP"),
    ("keyctl", 250, 0, "ENOTSUP", "ENOTSUP"),
    ("truncate", 76, 0, ALLOW, ALLOW),
    ("x32 socket", 0x40000000 | 41, 2, "ENOSYS", "ENOSYS"),
]


@pytest.mark.parametrize(("name", "number", "argument", "closed", "opened"), CALLS)
def test_what_the_filter_answers(name, number, argument, closed, opened):
    assert answer(seccomp.program(X86, (), True), number, argument) == closed, name
    assert answer(seccomp.program(X86, seccomp.INTERNET, True), number, argument) == opened, name


def test_truncation_is_refused_where_landlock_does_not_see_it():
    """truncate(), and open(O_RDONLY | O_TRUNC) in its old and new form; a truncating open for writing Landlock sees."""
    code = seccomp.program(X86, (), True, guard_truncation=True)
    asked = [(76,), (2, 0, 0o1000), (257, 0, 0, 0o1000), (437,), (2, 0, 0o1001), (257, 0, 0, 0o1101), (2, 0, 0), (0,)]
    answers = ["EACCES", "EACCES", "EACCES", "ENOSYS", ALLOW, ALLOW, ALLOW, ALLOW]
    assert [answer(code, *call) for call in asked] == answers
    assert answer(code, 41, 2) == "EACCES" and answer(code, 90) == ASK


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_programs_of_another_architecture_get_nowhere(machine):
    """The numbers of a 32-bit program mean other calls: it has none."""
    known = seccomp.MACHINES[machine]
    code = seccomp.program(known, (), False)
    assert answer(code, 102, audit=0x40000003) == "ENOSYS"
    assert answer(code, known.socket, 2, audit=known.audit) == "EACCES"
    assert answer(code, next(iter(known.changes)), audit=known.audit) == ALLOW
