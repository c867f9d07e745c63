"""One writer at a time: held, waited for, free again however the holder ended."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest

from agent.errors import SessionBusy, StorageError
from agent.log.lock import Lock
from agent.session import Session


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.lock")


def test_a_held_lock_names_its_holder(path: str) -> None:
    held = Lock(path)
    with pytest.raises(SessionBusy, match=f"session a is in use by another run .process {os.getpid()}."):
        Lock(path)
    held.release()
    assert Path(path).read_text() == f"{os.getpid()}\n"


def test_a_file_system_that_cannot_lock_is_told_of(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session opens, with a notice for whoever runs it."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "flock", refused)
    told = "this file system cannot lock files: do not run two turns of one session at once"
    store = os.path.dirname(path)
    with Session.create(store, {"cwd": store}, id="b") as made:
        assert made.notices == [told]
    with Session.open(store, "b") as opened:
        assert opened.notices == [told]


def test_release_frees_it_and_may_be_called_twice(path: str) -> None:
    for _ in range(3):
        lock = Lock(path)
        lock.release()
        lock.release()
    assert os.path.exists(path)


def test_whatever_the_file_says_only_the_kernel_decides(path: str) -> None:
    """A stale pid, a live one, or noise in the file is no obstacle."""
    for left_behind in ("999999\n", "1\n", "noise", "\0" * 40):
        Path(path).write_text(left_behind)
        Lock(path).release()


def test_waiting_gets_it_when_it_is_free(path: str) -> None:
    held = Lock(path)
    threading.Timer(0.1, held.release).start()
    Lock(path, wait=30).release()


def test_a_lock_file_removed_while_we_waited_does_not_count(path: str) -> None:
    """A removed session takes its lock along: whoever waited takes the new file's lock, not the dead one's."""
    held = Lock(path)

    def remove() -> None:
        os.unlink(path)
        held.release()

    threading.Timer(0.1, remove).start()
    second = Lock(path, wait=30)
    with pytest.raises(SessionBusy):
        Lock(path)
    second.release()


def test_a_lock_that_is_a_link_is_not_followed(path: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("stays")
    os.symlink(tmp_path / "precious", path)
    with pytest.raises(StorageError, match="cannot lock the session"):
        Lock(path)
    assert (tmp_path / "precious").read_text() == "stays"
