"""The disk: every change of a log, its archive and its store's directories goes through one small object. (Side files that can
be lost or made again, outputs, backups and indexes, are written by who makes them.)

`Disk` is that object: twelve file operations and nothing else. A test hands in one that records the operations, or
fails the nth of them, or forgets what was never synced; so what `agent.session` promises about crashes and full disks
can be tried for every operation rather than hoped for.

What is true of everything made here: files are 0600 and directories 0700 whatever the umask says; no symbolic link is
followed to the last component; nothing is opened for writing in a way that empties it.

It does not know what a session is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from agent.errors import StorageError

FILE_MODE = 0o600
DIR_MODE = 0o700
CHUNK = 1 << 20
"""Bytes per read or write of a copy."""

_APPEND = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_LINK_REFUSED = {errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS}

_WHY = {
    errno.ENOSPC: ("the disk is full", "Free some space, then run the same command again"),
    errno.EDQUOT: ("your disk quota is used up", "Free some space, then run the same command again"),
    errno.EROFS: ("the file system is read-only", "Choose another place with --session-dir"),
    errno.EACCES: ("permission denied", "Check the owner and mode, or choose another place with --session-dir"),
    errno.EPERM: ("the operation is not permitted", "Check the owner and mode, or use --session-dir"),
    errno.ENOENT: ("it is not there", "Check the path; or was the directory removed or renamed during the run?"),
    errno.EIO: ("the disk reports an input/output error", "Copy the session somewhere safe before going on"),
}


def explained(error: OSError, doing: str) -> StorageError:
    """The `StorageError` for a refused operation; `doing` completes "cannot ..."."""
    why, hint = _WHY.get(error.errno or 0, (error.strerror or str(error), ""))
    return StorageError(f"cannot {doing}: {why}", hint)


# ---- effects ---------------------------------------------------------------------------------------------------------


class Disk:
    """The operations. Each raises OSError; none hides an error."""

    def create(self, path: str) -> int:
        """A new file for reading and appending; FileExistsError when the name is taken. The directory is not synced."""
        fd = os.open(path, _APPEND | os.O_CREAT | os.O_EXCL, FILE_MODE)
        os.fchmod(fd, FILE_MODE)
        return fd

    def open(self, path: str) -> int:
        """An existing file for reading and appending, made private if it is ours. A symbolic link is ELOOP."""
        fd = os.open(path, _APPEND)
        status = os.fstat(fd)
        if status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077:
            os.fchmod(fd, FILE_MODE)
        return fd

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """One write at the end of the file; how many bytes were taken, which may be fewer than given."""
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        """Returns when the file's bytes are on the medium."""
        full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone stops at the drive's cache
        if full is None:
            os.fsync(fd)
        else:
            fcntl.fcntl(fd, full)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def date(self, fd: int, written: int) -> None:
        """Set the time of the file's last write (nanoseconds after the epoch)."""
        os.utime(fd, ns=(written, written))

    def link(self, source: str, target: str) -> None:
        os.link(source, target, follow_symlinks=False)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path, DIR_MODE)
        os.chmod(path, DIR_MODE)

    def fsync_dir(self, path: str) -> None:
        """Returns when the names in the directory are on the medium."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot sync a directory
                raise
        finally:
            os.close(fd)

    def close(self, fd: int) -> None:
        os.close(fd)


DISK = Disk()


@contextmanager
def storing(doing: str) -> Iterator[None]:
    """Turn an OSError inside into a `StorageError` that says what could not be done and what to do next."""
    try:
        yield
    except OSError as error:
        raise explained(error, doing) from error


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write every byte. One `write` unless the system takes fewer; then the rest, until it fails or is done."""
    done = disk.write(fd, data)
    while done < len(data):
        taken = disk.write(fd, memoryview(data)[done:])
        if taken <= 0:
            raise OSError(errno.EIO, "the disk took no bytes")
        done += taken


def make_directory(disk: Disk, path: str) -> None:
    """Make `path` and its parents 0700 and durable; what exists is left as it is."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path) or "."
    make_directory(disk, parent)
    try:
        disk.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    disk.fsync_dir(parent)


def make_side_directory(disk: Disk, path: str) -> None:
    """`make_directory` for a directory of ours inside a store: one that is a link leads out of it and is refused."""
    if os.path.islink(path):
        raise OSError(errno.ELOOP, f"{path} is a symbolic link, which is not followed")
    make_directory(disk, path)


def write_new(disk: Disk, path: str, chunks: Iterator[bytes], written: int | None = None) -> int:
    """A new, whole, synced file; the name is not yet durable. Its descriptor, or nothing left behind on an error.

    `written` is the time of the last write that it is to carry, where the file system lets it; None: now.
    """
    fd = disk.create(path)
    try:
        for chunk in chunks:
            write_all(disk, fd, chunk)
        if written is not None:
            try:
                disk.date(fd, written)
            except OSError:
                pass  # a place in a list is not worth a failure
        disk.fsync(fd)
    except BaseException:
        disk.close(fd)
        forget(disk, path)
        raise
    return fd


def forget(disk: Disk, path: str) -> None:
    """Remove a file that may not be there and is not needed; an error changes nothing that matters."""
    try:
        disk.unlink(path)
    except OSError:
        pass


def keep_copy(disk: Disk, source: str, target: str) -> None:
    """Give the file `source` a second name `target`, durable; where links are refused, a copy. `target` is new."""
    try:
        disk.link(source, target)
    except OSError as error:
        if error.errno not in _LINK_REFUSED:
            raise
        with open(source, "rb") as file:
            partial = f"{target}.partial"
            forget(disk, partial)
            disk.close(write_new(disk, partial, iter(lambda: file.read(CHUNK), b"")))
            disk.replace(partial, target)
    disk.fsync_dir(os.path.dirname(target))


def is_plain_file(path: str) -> bool:
    """True for a regular file itself; False for a link to one, a directory, a pipe, or nothing."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return False


def save_aside(disk: Disk, folder: str, kind: str, data: bytes) -> str:
    """Put bytes into the first free `<folder>/<kind>-NNNN`, durably; its path. Raises OSError."""
    make_side_directory(disk, folder)
    count = 1
    while os.path.lexists(os.path.join(folder, f"{kind}-{count:04d}")):
        count += 1
    target = os.path.join(folder, f"{kind}-{count:04d}")
    disk.close(write_new(disk, target, iter([data])))
    disk.fsync_dir(folder)
    return target


def digest_file(path: str) -> str:
    """SHA-256 of a file, hex."""
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
