"""Landlock: what each version of the kernel's interface forbids, on this kernel and in the arithmetic."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools import landlock

HANDLED = [
    # abi, rights on files, on ports, scopes; bytes of the attributes the kernel of that version knows
    (1, 0x1FFF, 0, 0, 8),
    (2, 0x3FFF, 0, 0, 8),
    (3, 0x7FFF, 0, 0, 8),
    (4, 0x7FFF, 3, 0, 16),
    (5, 0xFFFF, 3, 0, 16),
    (6, 0xFFFF, 3, 3, 24),
    (7, 0xFFFF, 3, 3, 24),
    (99, 0xFFFF, 3, 3, 24),
]


@pytest.mark.parametrize(("abi", "files", "network", "scopes", "size"), HANDLED)
def test_each_version_forbids_what_it_can(abi, files, network, scopes, size):
    """The numbers of include/uapi/linux/landlock.h; fields a version does not know are not passed."""
    handled = landlock.handled(abi, allow_net=False)
    assert handled == (files, network, scopes)
    assert len(handled.packed()) == size


def test_an_open_network_is_not_handled():
    assert landlock.handled(7, allow_net=True) == (0xFFFF, 0, 3)
    assert len(landlock.handled(4, allow_net=True).packed()) == 8


TREE = {"/": ["etc", "home", "usr"], "/home": ["me", "you"], "/home/me": [".netrc", ".ssh", "work"]}


def test_what_is_beside_a_hidden_path_is_covered():
    hidden = ["/home/me/.ssh", "/home/me/.netrc"]
    assert list(landlock.uncovered("/", hidden, TREE.__getitem__)) == ["/etc", "/home/me/work", "/home/you", "/usr"]
    assert list(landlock.uncovered("/usr", hidden, TREE.__getitem__)) == ["/usr"]


@given(st.sets(st.sampled_from(["/etc", "/home", "/home/me", "/home/me/.ssh", "/home/you", "/usr"])))
def test_nothing_hidden_is_ever_covered(hidden):
    """For all sets of hidden paths: no covered path holds or lies in one."""
    covered = list(landlock.uncovered("/", hidden, lambda path: TREE.get(path, [])))
    for path in covered:
        assert not any(each == path or each.startswith(path + "/") or path.startswith(each + "/") for each in hidden)


PROGRAM = """
import os, sys
from agent.tools import kernel, landlock
version, root = int(sys.argv[1]), sys.argv[2]
kernel.no_new_privileges()
landlock.restrict(version, False, [("/", landlock.READ), (root, landlock.READ | landlock.WRITE)])
def tried(name, function):
    try:
        function()
        print(name, "done")
    except OSError as error:
        print(name, "refused")
def create(path):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
tried("create inside", lambda: create(root + "/new"))
tried("create outside", lambda: create(root + "/../new"))
tried("write outside", lambda: os.open(root + "/../file", os.O_WRONLY))
tried("remove outside", lambda: os.unlink(root + "/../file"))
tried("rename out", lambda: os.rename(root + "/new", root + "/../renamed"))
tried("rename in", lambda: os.rename(root + "/../file", root + "/stolen"))
tried("read outside", lambda: open(root + "/../file").read())
"""

CONFINED = """\
create inside done
create outside refused
write outside refused
remove outside refused
rename out refused
rename in refused
read outside done
"""


@pytest.mark.parametrize("version", range(1, landlock.abi() + 1))
def test_files_are_confined_at_every_version_this_kernel_has(tmp_path, version):
    """A newer kernel asked for an older version behaves as the older one: files outside are safe from version 1 on."""
    (tmp_path / "root").mkdir()
    (tmp_path / "file").write_text("x")
    command = [sys.executable, "-c", PROGRAM, str(version), str(tmp_path / "root")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == CONFINED
    assert sorted(os.listdir(tmp_path)) == ["file", "home", "root"]


def test_the_version_is_asked_of_the_kernel():
    """0 where there is no Landlock; on Linux 5.13 and later with it, at least 1."""
    assert landlock.abi() >= 0
