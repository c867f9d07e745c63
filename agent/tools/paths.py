"""Where the file tools may go, and how a path is opened so that it cannot lead elsewhere.

A path is resolved first (symlinks followed), the result is checked against the roots, and then opened from the root
down, one component at a time, each without following a symlink. What was checked is what is opened: a link that is
swapped in between fails the open. Bytes go in and out of regular files only; a FIFO or a device is refused, not
waited for.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from agent.tools.output import visible
from agent.tools.protocol import ToolContext

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(Exception):
    """A path that may not be used: the text says why and what is allowed instead."""


class Place(NamedTuple):
    """A resolved path: `root` and the component names below it; `path` is both joined."""

    path: str
    root: str
    parts: tuple[str, ...]


def inside(path: str, directory: str) -> bool:
    """Whether the resolved `path` is `directory` or below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def sensitive_paths(home: str) -> list[str]:
    """Files and directories below `home` that hold keys or history; no tool reads them."""
    names = (
        ".ssh .gnupg .aws .azure .kube .docker .config/gcloud .config/gh .config/op .config/agent .password-store "
        ".netrc .git-credentials .config/git/credentials .npmrc .pypirc .cargo/credentials .cargo/credentials.toml "
        ".vault-token .bash_history .zsh_history .python_history .node_repl_history .psql_history .mysql_history "
        ".sqlite_history .lesshst .histfile .local/share/fish/fish_history .local/share/keyrings .mozilla "
        ".config/google-chrome .config/chromium .thunderbird .terraform.d .pgpass .my.cnf .config/rclone .claude "
        ".claude.json .codex .gemini .local/state/agent .local/share/opencode .config/hub .config/containers .m2/settings.xml"
    )
    return [os.path.join(home, name) for name in names.split()]


def private_names(context: ToolContext) -> list[str]:
    """Everything that no tool may use, by the names programs know it by: keys, history, our store, configuration."""
    return [*map(os.path.abspath, [*sensitive_paths(home_of(context)), *context.private_dirs])]


def home_of(context: ToolContext) -> str:
    """The user's home directory, as written."""
    return context.environ.get("HOME") or os.path.expanduser("~")


def hidden_paths(context: ToolContext) -> list[str]:
    """The same, resolved."""
    return [os.path.realpath(path) for path in private_names(context)]


def is_path(text: str) -> bool:
    """Whether the system could have a file of this name: not empty, no NUL, no half characters."""
    return bool(text) and not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text)


def place(path: str, context: ToolContext, *, write: bool = False) -> Place:
    """Resolve what the model wrote (relative to the working directory, `~` allowed) and check it.

    Raises: `Refused`.
    """
    if not is_path(path):
        raise Refused(f"{visible(path)!r} is not a path. Give a path relative to {context.cwd}")
    written = os.path.join(context.cwd, os.path.expanduser(path))
    full = os.path.realpath(written)
    shown = visible(path) if os.path.normpath(written) == full else f"{visible(path)} (that is {visible(full)})"
    roots = [os.path.realpath(root) for root in context.roots]
    private = [hidden for hidden in hidden_paths(context) if inside(full, hidden)]
    holding = [root for root in roots if inside(full, root)]
    if (private or not holding) and not write:
        own = os.path.realpath(context.files())
        if inside(full, own):
            return _place(full, own)
        if mine := _shared(full, own):
            return _place(mine, own)
    if not holding:
        allowed = ", ".join(visible(root) for root in roots)
        raise Refused(
            f"{shown} is outside the allowed directories. Allowed: {allowed}. The user can add one with --add-dir."
        )
    if private or inside(full, "/proc") or inside(full, "/sys"):
        raise Refused(f"{shown} is private (keys, history, the agent's own files): no tool may use it.")
    return _place(full, max(holding, key=len))


def _shared(full: str, own: str) -> str:
    """Our own name for a file of the session that this one was forked from, which the history calls by its old name."""
    folder, name = os.path.split(full)
    mine = os.path.join(own, name)
    theirs = folder.endswith(".files") and os.path.dirname(folder) == os.path.dirname(own)
    return mine if theirs and os.path.isfile(mine) else ""


def _place(full: str, root: str) -> Place:
    relative = os.path.relpath(full, root)
    return Place(full, root, () if relative == "." else tuple(relative.split(os.sep)))


# ---- effects ----


@contextmanager
def opened(target: Place, flags: int = os.O_RDONLY, mode: int = 0o666) -> Iterator[int]:
    """A file descriptor of `target`, closed at the end.

    Raises: `Refused` when a symlink has taken the place of what was checked, or the thing is neither a file nor a
    directory; `OSError` for the usual reasons.
    """
    with parent(target) as (directory, name):
        descriptor = _open(target, name, flags | os.O_NONBLOCK, directory, mode)
    try:
        kind = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            raise Refused(f"{visible(target.path)} is {kind_of(kind)}, not a file or a directory.")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def parent(target: Place, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The descriptor of the directory that holds `target`, and its name there; `make` creates what is missing."""
    descriptor = os.open(target.root, _DIRECTORY)
    try:
        for part in target.parts[:-1]:
            if make:
                _made(part, descriptor)
            below = _open(target, part, _DIRECTORY, descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor, target.parts[-1] if target.parts else "."
    finally:
        os.close(descriptor)


def _made(name: str, directory: int) -> None:
    try:
        os.mkdir(name, dir_fd=directory)
    except FileExistsError:
        pass


def _open(target: Place, name: str, flags: int, directory: int, mode: int = 0o666) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=directory)
    except OSError as error:
        if _is_link(name, directory):
            raise Refused(
                f"{visible(target.path)} became a symbolic link while it was being opened. Look at the path again."
            ) from error
        raise


def _is_link(name: str, directory: int) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=directory).st_mode)
    except OSError:
        return False


def kind_of(mode: int) -> str:
    """The kind of thing a mode stands for, for people."""
    kinds = {
        stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
        stat.S_IFDIR: "a directory", stat.S_IFREG: "a file",
    }  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "a special file")
