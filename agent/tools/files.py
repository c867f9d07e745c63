"""read_file: a part of a text file, or what is in a directory.

The text is given as it is in the file, without line numbers, so that it can be used in an edit; the first line of the
result says what it is and how to go on. Reading remembers the content's hash: `write_file` and `edit_file` refuse to
change what the model has not seen as it is now.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from agent.tools import paths, textform
from agent.tools.output import visible
from agent.tools.protocol import ToolContext, ToolResult, denied, failed, function_schema

LARGEST = 32 * 1024 * 1024
"""Bytes read into memory at most; a larger file is refused."""
_MOST_NAMES = 500
_MOST_LINES = 2_000


class ReadFile:
    """A part of a text file (`offset` is its first line, from 1; `limit` the number of lines; `numbers` puts its number
    and a tab before each), or a directory."""

    name = "read_file"
    schema = function_schema(
        "read_file",
        "Read a text file, or list a directory.",
        {
            "path": {"type": "string"},
            "offset": {"type": "integer", "description": "first line, from 1"},
            "limit": {"type": "integer", "description": "lines"},
            "numbers": {"type": "boolean", "description": "number the lines"},
        },
        required=("path",),
    )

    def run(self, args: dict[str, Any], context: ToolContext) -> ToolResult:
        try:
            target = paths.place(args["path"], context)
            with paths.opened(target) as descriptor:
                if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                    return _directory(target, descriptor)
                return _file(target, descriptor, args, context)
        except paths.Refused as refusal:
            return denied(str(refusal))
        except OSError as error:
            return failed(trouble(args["path"], error, context))


def part(text: str, offset: int, limit: int) -> tuple[str, int, int, int]:
    """Lines `offset`..`offset + limit - 1` of `text`, the numbers of the first and last, and how many there are."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    first = min(max(1, offset if offset >= 0 else len(lines) + offset + 1), max(1, len(lines)))
    chosen = lines[first - 1 : first - 1 + max(1, limit)]
    return "\n".join(chosen), first, first + len(chosen) - 1, len(lines)


def fitted(chosen: str, cap: int) -> tuple[str, int]:
    """The leading whole lines of `chosen` within `cap` tokens, and how many; (text, 0) when not even one fits."""
    from agent.tokens import estimate

    kept: list[str] = []
    used = 0
    for line in chosen.split("\n"):
        used += estimate(line) + 1
        if used > cap:
            break
        kept.append(line)
    return "\n".join(kept), len(kept)


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


# ---- effects ----


def _directory(target: paths.Place, descriptor: int) -> ToolResult:
    with os.scandir(descriptor) as entries:
        names = sorted(f"{visible(entry.name)}{_suffix(entry)}" for entry in entries)
    shown = names[:_MOST_NAMES]
    more = [f"[{len(names) - len(shown)} more; use bash to list a part]"] if len(names) > len(shown) else []
    head = f"[directory {visible(target.path)}: {counted(len(names), 'entry', 'entries')}]"
    return ToolResult("\n".join([head, *shown, *more]), ok=True, detail={"files": {"read": [target.path]}})


def _suffix(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "@"
    return "/" if entry.is_dir() else ""


def _file(target: paths.Place, descriptor: int, args: dict[str, Any], context: ToolContext) -> ToolResult:
    size = os.fstat(descriptor).st_size
    if size > LARGEST:
        return _too_large(target, size)
    raw = read_all(descriptor)
    decoded = textform.decode(raw)
    if decoded is None:
        return failed(
            f"{visible(target.path)} is {textform.kind_of_binary(raw)} of {len(raw):,} bytes, not text: it cannot be "
            "shown. Use bash with a program that knows the format."
        )
    context.seen[target.path] = digest(raw)
    detail = {"files": {"read": [target.path]}, "seen": {target.path: context.seen[target.path]}}
    return ToolResult(_shown(target, decoded, args, context), ok=True, detail=detail)


def _shown(target: paths.Place, decoded: tuple[str, textform.Form], args: dict[str, Any], context: ToolContext) -> str:
    text, form = decoded
    if not text:
        return f"[{visible(target.path)} is empty]"
    plain = text.replace("\r\n", "\n")
    chosen, first, last, total = part(plain, args.get("offset", 1), args.get("limit", _MOST_LINES))
    safe = visible(chosen.replace("\r", "\n"))
    escaped = safe != chosen
    if args.get("numbers"):
        safe = "\n".join(f"{number}\t{line}" for number, line in enumerate(safe.split("\n"), first))
    kept, lines = fitted(safe, context.result_cap - 60)
    if not lines:
        return _long_line(target, safe, first, total, context.result_cap - 60)
    shown_last = first + lines - 1 if kept != safe else last
    about = [form.describe(), "CRLF line ends" if textform.line_end(text) == "\r\n" else ""]
    about += ["no newline at the end"] if last == total and not text.endswith("\n") else []
    about += ["control characters shown as escapes"] if escaped else []
    whole = first == 1 and shown_last >= total
    where = f"{counted(total, 'line')}" if whole else f"lines {first}-{shown_last} of {total}"
    more = "" if shown_last >= total else f"\n[{total - shown_last} more lines: offset={shown_last + 1}]"
    return f"[{'; '.join([where, *filter(None, about)])}]\n{kept}{more}"


def _long_line(target: paths.Place, text: str, first: int, total: int, cap: int) -> str:
    from agent.tools.output import head_and_tail

    line = text.split("\n", 1)[0]
    command = f"sed -n {first}p {visible(target.path)} | cut -c FROM-TO"
    cut, _ = head_and_tail(line, cap, lambda n, _: f"[{n:,} characters left out; use bash: {command}]")
    more = f"\n[{total - first} more lines: offset={first + 1}]" if total > first else ""
    return f"[line {first} of {total}, {len(line):,} characters]\n{cut}{more}"


def _too_large(target: paths.Place, size: int) -> ToolResult:
    return failed(
        f"{visible(target.path)} has {size:,} bytes, too many to read here (largest {LARGEST:,}). Use bash: grep, "
        f"head, tail, or sed -n FROM,TOp."
    )


def read_all(descriptor: int) -> bytes:
    """Everything in an open file, at most `LARGEST` bytes."""
    pieces: list[bytes] = []
    left = LARGEST
    while left > 0 and (piece := os.read(descriptor, min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def digest(raw: bytes) -> str:
    """The hash by which content is known to be what the model saw."""
    import hashlib

    return hashlib.sha256(raw).hexdigest()


def trouble(path: str, error: OSError, context: ToolContext) -> str:
    """What went wrong with a path, and for a missing one the names that are near."""
    shown = visible(path)
    if not isinstance(error, FileNotFoundError):
        return f"{shown}: {error.strerror or error}."
    full = os.path.realpath(os.path.join(context.cwd, os.path.expanduser(path)))
    folder = os.path.dirname(full)
    while not os.path.isdir(folder):
        folder, full = os.path.dirname(folder), folder
    if not any(paths.inside(folder, os.path.realpath(root)) for root in context.roots):
        return f"{shown} does not exist."
    near = nearest_names(os.path.basename(full), os.listdir(folder))
    listed = ", ".join(visible(os.path.join(folder, name)) for name in near)
    hint = f"Near it: {listed}." if near else f"{visible(folder)} exists: read_file lists it."
    return f"{shown} does not exist. {hint}"


def nearest_names(name: str, names: list[str]) -> list[str]:
    """Up to three of `names` that look like `name`."""
    import difflib

    folded = {each.casefold(): each for each in names}
    return [folded[found] for found in difflib.get_close_matches(name.casefold(), folded, 3, 0.5)]
