"""The seam to the disk: short writes, copies where links are refused, side files that never collide, plain errors."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from disks import Failing, Quick

from agent.errors import StorageError
from agent.log import disk


class Sips(Quick):
    """Takes at most three bytes a write."""

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, bytes(data)[:3])


def test_a_short_write_is_finished(tmp_path: Path) -> None:
    """The system may take fewer bytes than given: the rest follows, in order."""
    path = tmp_path / "a"
    small = Sips()
    small.close(disk.write_new(small, str(path), iter([b"0123456789", b"", b"abc"])))
    assert path.read_bytes() == b"0123456789abc"


def test_a_new_file_is_whole_or_not_there(tmp_path: Path) -> None:
    """Whatever operation fails: no half file is left, and a taken name is never overwritten."""
    for nth in range(1, 6):
        path = tmp_path / f"f{nth}"
        failing = Failing(nth, OSError(errno.ENOSPC, "full"))
        try:
            failing.close(disk.write_new(failing, str(path), iter([b"one", b"two"])))
            assert path.read_bytes() == b"onetwo"
        except OSError:
            assert not path.exists()
    with pytest.raises(FileExistsError):
        disk.write_new(Quick(), str(path), iter([b"other"]))
    assert path.read_bytes() == b"onetwo"


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV])
def test_where_links_are_refused_a_copy_is_kept(tmp_path: Path, refusal: int) -> None:
    """Same bytes, private, nothing else left; a half copy of an earlier try is no obstacle."""
    source, target = tmp_path / "log", tmp_path / "kept"
    source.write_bytes(b"x" * 3_000_000)
    (tmp_path / "kept.partial").write_bytes(b"half")

    class NoLinks(Quick):
        def link(self, source: str, target: str) -> None:
            raise OSError(refusal, "no")

    disk.keep_copy(NoLinks(), str(source), str(target))
    assert target.read_bytes() == source.read_bytes()
    assert (stat.S_IMODE(target.stat().st_mode), target.stat().st_nlink) == (0o600, 1)
    assert sorted(os.listdir(tmp_path)) == ["home", "kept", "log"]


def test_a_disk_error_is_not_mistaken_for_a_refused_link(tmp_path: Path) -> None:
    """EIO on the link is an error; no copy is tried."""
    (tmp_path / "log").write_bytes(b"x")
    with pytest.raises(OSError, match="broken"):
        disk.keep_copy(Failing(1, OSError(errno.EIO, "broken")), str(tmp_path / "log"), str(tmp_path / "kept"))
    assert not (tmp_path / "kept").exists()


def test_side_files_never_collide(tmp_path: Path) -> None:
    """Numbered upwards, whatever lies there already."""
    folder = str(tmp_path / "side")
    names = [os.path.basename(disk.save_aside(Quick(), folder, "torn", b"%d" % i)) for i in range(3)]
    assert names == ["torn-0001", "torn-0002", "torn-0003"]
    os.symlink("nowhere", f"{folder}/torn-0004")
    assert disk.save_aside(Quick(), folder, "torn", b"x").endswith("torn-0005")


def test_a_file_where_a_directory_should_be(tmp_path: Path) -> None:
    """An error, not a crash later on."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        disk.make_directory(Quick(), str(tmp_path / "file" / "store"))


def test_errors_are_told_in_words() -> None:
    """What could not be done, why, and what to do next; an unknown error keeps the system's own words."""
    full = disk.explained(OSError(errno.ENOSPC, "x"), "write to session a")
    assert str(full) == (
        "cannot write to session a: the disk is full. Free some space, then run the same command again"
    )
    assert str(disk.explained(OSError(errno.ENOTTY, "Not a typewriter"), "sing")) == "cannot sing: Not a typewriter"
    with pytest.raises(StorageError, match="cannot sing: the file system is read-only"), disk.storing("sing"):
        raise OSError(errno.EROFS, "x")
