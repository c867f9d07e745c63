"""write_file and edit_file: whole files, or exact pieces of them, changed so that nothing is lost on the way.

In order: the path is resolved and held inside the roots; the file must be one the model has seen as it is now; the old
content is backed up; the new content goes to a file beside it, is flushed to disk, and takes its place in one step,
with the mode (and where possible the owner) of the old. A crash leaves the old file or the new one, never a half.
A hard link is thereby parted: the other name keeps the old content.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import Any, NamedTuple

from agent.tools import backup, instructions, matching, paths, textform
from agent.tools.files import LARGEST, counted, digest, read_all, trouble
from agent.tools.output import visible
from agent.tools.protocol import ToolContext, ToolResult, denied, failed, function_schema

_JOINS = " It will be part of the system prompt of later sessions here: tell the user."


class Unready(Exception):
    """The file cannot be changed as asked; the text says what to do first."""


class Old(NamedTuple):
    """A file as it is before a change."""

    raw: bytes
    mode: int


class WriteFile:
    """Create a file (with its directories), or replace one that was read."""

    name = "write_file"
    schema = function_schema(
        "write_file",
        "Create a file, or replace all of one you have read.",
        {"path": {"type": "string"}, "content": {"type": "string"}},
    )

    def run(self, args: dict[str, Any], context: ToolContext) -> ToolResult:
        return _guarded(args["path"], context, lambda target: _write(target, args["content"], context))


class EditFile:
    """Replace pieces of a file that was read; all or none."""

    name = "edit_file"
    schema = function_schema(
        "edit_file",
        "Replace text in a file you have read. Each old must match exactly once.",
        {
            "path": {"type": "string"},
            "edits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
                    "required": ["old", "new"],
                },
            },
        },
    )

    def run(self, args: dict[str, Any], context: ToolContext) -> ToolResult:
        edits = [matching.Edit(each["old"], each["new"]) for each in args["edits"]]
        return _guarded(args["path"], context, lambda target: _edit(target, edits, context))


# ---- effects ----


def _guarded(path: str, context: ToolContext, change: Any) -> ToolResult:
    from agent.tools import lasting

    try:
        if context.sandbox == "read-only":
            return denied("Files may not be changed in this run (sandbox read-only). Say what you would have changed.")
        target = paths.place(path, context, write=True)
        if why := lasting.refusal(target.path):
            return denied(why)
        if not target.parts:
            return failed(f"{visible(path)} is a directory.")
        result: ToolResult = change(target)
        return result
    except paths.Refused as refusal:
        return denied(str(refusal))
    except (Unready, matching.NoEdit) as reason:
        return failed(f"{visible(path)} was not changed. {reason}")
    except UnicodeEncodeError as error:
        return failed(
            f"{visible(path)} was not changed: character {error.object[error.start]!a} at {error.start} cannot be "
            f"written in the file's encoding ({error.encoding})."
        )
    except OSError as error:
        return failed(f"{visible(path)} was not changed. {trouble(path, error, context)}")


def _write(target: paths.Place, content: str, context: ToolContext) -> ToolResult:
    old = _old(target)
    form = textform.PLAIN
    if old is not None:
        _known(target, old, context)
        decoded = textform.decode(old.raw)
        # A whole new text keeps only the mark: a file that had one has readers who look for it.
        form = decoded[1] if decoded and decoded[1].codec != "latin-1" else form
    raw = textform.encode(content.removeprefix("\ufeff") if form.mark else content, form)
    if old is not None and old.raw == raw:
        return ToolResult(f"{visible(target.path)} already has exactly this content.", ok=True)
    verb = "Created" if old is None else "Replaced"
    lines = content.count("\n") + (not content.endswith("\n") and content != "")
    return _changed(
        target,
        old,
        raw,
        context,
        f"{verb} {visible(target.path)} ({counted(lines, 'line')}, {counted(len(raw), 'byte')}).",
    )


def _edit(target: paths.Place, edits: list[matching.Edit], context: ToolContext) -> ToolResult:
    old = _old(target)
    if old is None:
        raise FileNotFoundError(2, "No such file or directory", target.path)
    if not edits:
        raise Unready("edits is empty: give at least one {old, new}.")
    _known(target, old, context)
    decoded = textform.decode(old.raw)
    if decoded is None:
        raise Unready(f"It is {textform.kind_of_binary(old.raw)}, not text.")
    text, form = decoded
    raw = textform.encode(matching.apply(text, edits), form)
    return _changed(target, old, raw, context, f"Edited {visible(target.path)} ({counted(len(edits), 'edit')}).")


def _changed(target: paths.Place, old: Old | None, raw: bytes, context: ToolContext, text: str) -> ToolResult:
    name = backup.keep(old.raw, context.files()) if old is not None else None
    replace(target, raw, None if old is None else old.mode, expected=old)
    context.seen[target.path] = digest(raw)
    record = {
        "path": target.path,
        "name": name,
        "before": digest(old.raw) if old is not None else None,
        "after": context.seen[target.path],
        "mode": old.mode if old is not None else 0o600,
    }
    seen = {target.path: context.seen[target.path]}
    text += _JOINS if os.path.basename(target.path) == instructions.NAME else ""
    return ToolResult(text, ok=True, detail={"files": {"changed": [target.path]}, "seen": seen, "backup": record})


def _old(target: paths.Place) -> Old | None:
    """The file as it is, or None where there is none."""
    try:
        with paths.opened(target) as descriptor:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise Unready("It is a directory.")
            if status.st_size > LARGEST:
                raise Unready(f"It has {status.st_size:,} bytes, too many to change here. Use bash (sed -i).")
            return Old(read_all(descriptor), stat.S_IMODE(status.st_mode))
    except FileNotFoundError:
        return None


def _known(target: paths.Place, old: Old, context: ToolContext) -> None:
    if not old.mode & 0o222:
        raise Unready("It is read-only: somebody protects it. Ask the user.")
    seen = context.seen.get(target.path)
    if seen is None:
        raise Unready("It exists and you have not read it. Call read_file on it, then repeat.")
    if seen != digest(old.raw):
        raise Unready("It has changed since you read it. Call read_file on it again, then make the change anew.")


def replace(target: paths.Place, raw: bytes, mode: int | None, expected: Old | None = None) -> None:
    """Put `raw` in the place of `target` in one step; `mode` None creates with the user's umask.

    `expected` is what must still be there just before the step. Raises: `Unready`, `Refused`, `OSError`.
    """
    with paths.parent(target, make=True) as (directory, name):
        temporary = f".{name[:200]}.{os.urandom(4).hex()}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(temporary, flags, 0o666 if mode is None else 0o600, dir_fd=directory)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(raw)
                file.flush()
                if mode is not None:
                    _like_the_old(file.fileno(), name, directory, mode)
                os.fsync(file.fileno())
            if expected is not None and _old(target) != expected:
                raise Unready("It changed while this was being done. Call read_file on it again.")
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(FileNotFoundError):  # it had its new name already
                os.unlink(temporary, dir_fd=directory)
            raise
        with suppress(OSError):  # the file stands: a disk that cannot promise its name does not undo that
            os.fsync(directory)


def _like_the_old(handle: int, name: str, directory: int, mode: int) -> None:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(handle, status.st_uid, status.st_gid)
    except OSError:
        pass  # not ours to give away: the content matters more than the owner
    os.fchmod(handle, mode)
