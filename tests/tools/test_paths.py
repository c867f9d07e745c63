"""Paths: no way out of the roots, also not by a link swapped between check and use."""

from __future__ import annotations

import ctypes
import os
import threading

import pytest

from agent.tools import paths

from .conftest import Box

SECRET = "the secret of another"


@pytest.fixture
def outside(tmp_path):
    path = tmp_path / "outside"
    path.mkdir()
    (path / "secret").write_text(SECRET)
    return path


ESCAPES = [
    "../outside/secret",
    "{outside}/secret",
    "link",
    "dir/secret",
    "sub/../../outside/secret",
    "dir/../secret",
    "/proc/self/environ",
    "/proc/self/root{outside}/secret",
    "~/.ssh/id_rsa",
    "/dev/mem",
    "//etc/passwd",
]


@pytest.mark.parametrize("escape", ESCAPES)
def test_no_path_leads_out(box, outside, escape):
    """Read, write and edit are denied, with the allowed directories named; nothing is touched."""
    (box.root / "link").symlink_to(outside / "secret")
    (box.root / "dir").symlink_to(outside)
    (box.root / "sub").mkdir()
    path = escape.format(outside=outside)
    for call in (
        {"name": "read_file"},
        {"name": "write_file", "content": "x"},
        {"name": "edit_file", "edits": [{"old": SECRET, "new": "x"}]},
    ):
        text = box(path=path, **call)
        assert box.result.denied and "is outside the allowed directories. Allowed: ROOT." in text
    assert (outside / "secret").read_text() == SECRET
    assert len(box.toolbox.denials) == 3
    assert box.toolbox.denials[0]["tool_input"] == {"path": path}


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800"])
def test_what_is_no_path_is_refused(box, path):
    assert "is not a path" in box("read_file", path=path)


def test_links_that_stay_inside_are_followed(box):
    box.write("real", "here\n")
    (box.root / "link").symlink_to("real")
    assert box("read_file", path="link") == "[1 line]\nhere"
    box("write_file", path="link", content="there\n")
    assert (box.root / "link").is_symlink() and (box.root / "real").read_text() == "there\n"


def test_private_directories_inside_a_root_stay_private(tmp_path):
    """The store in the checkout: not readable, not writable; the session's own files are readable."""
    box = Box(tmp_path, private=[str(tmp_path / "root/sessions")])
    box.write("sessions/other.jsonl", "private")
    for name, more in (("read_file", {}), ("write_file", {"content": "x"})):
        text = box(name, path="sessions/other.jsonl", **more)
        assert text == "sessions/other.jsonl is private (keys, history, the agent's own files): no tool may use it."


def test_the_sessions_own_files_can_be_read_but_not_written(tmp_path):
    """What was spilled is within a private store and yet readable; the rest of the store is not."""
    box = Box(tmp_path, private=[str(tmp_path)])
    (tmp_path / "files").mkdir()
    spilled = tmp_path / "files/output.txt"
    spilled.write_text("spilled\n")
    assert box("read_file", path=str(spilled)) == "[1 line]\nspilled"
    assert "is outside the allowed directories" in box("write_file", path=str(spilled), content="x")
    (tmp_path / "other").write_text("other session")
    assert "is outside the allowed directories" in box("read_file", path=str(tmp_path / "other"))


def test_a_link_swapped_in_after_the_check_is_not_followed(box, outside):
    """Between resolving and opening the directory becomes a link: the open refuses."""
    box.write("d/secret", "mine")
    target = paths.place("d/secret", box.context)
    os.rename(box.root / "d", box.root / "old")
    (box.root / "d").symlink_to(outside)
    with pytest.raises(paths.Refused, match="became a symbolic link"), paths.opened(target):
        raise AssertionError("it was opened")


@pytest.mark.parametrize("tool", ["read_file", "write_file"])
def test_a_racing_link_never_wins(box, outside, tool):
    """A thread swaps a directory for a link out as fast as it can; no call reads or writes the other side."""
    box.write("a/secret", "mine")
    (box.root / "b").symlink_to(outside)
    stop = threading.Event()

    libc = ctypes.CDLL(None)
    names = [os.fsencode(box.root / name) for name in "ab"]

    def swap() -> None:
        while not stop.is_set():
            libc.renameat2(-100, names[0], -100, names[1], 2)  # RENAME_EXCHANGE: at no time is one missing

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(300):
            box.context.seen.clear()
            assert SECRET not in box(tool, path="a/secret", **({"content": "x"} if tool == "write_file" else {}))
    finally:
        stop.set()
        thread.join()
    assert (outside / "secret").read_text() == SECRET
    assert sorted(os.listdir(outside)) == ["secret"]


def test_a_hard_link_to_the_outside_is_parted_by_a_write(box, outside):
    """The other name keeps its content: a write makes a new file."""
    os.link(outside / "secret", box.root / "hard")
    box("read_file", path="hard")
    assert box("write_file", path="hard", content="x") == "Replaced ROOT/hard (1 line, 1 byte)."
    assert (outside / "secret").read_text() == SECRET
