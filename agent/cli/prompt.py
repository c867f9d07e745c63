"""What the user gives a run: words, standard input and files, made into one user message.

Order in the message: the words, then each file, then standard input, each block delimited and named. Text is UTF-8: a
byte order mark is dropped, bytes that are not UTF-8 become U+FFFD, NUL becomes U+FFFD, line ends stay as they are.

An idle standard input never hangs a run that has a prompt: a pipe that stays silent for `GRACE` seconds is left alone,
with a notice that says how to wait for it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Any

from agent.errors import UsageError
from agent.messages import Message

GRACE = 0.2
"""Seconds that a silent pipe is given before a run with a prompt goes on without it."""

STDIN_LIMIT = 64 << 20
"""Bytes; more is refused before anything is sent."""

FILE_LIMIT = 10 << 20
"""Bytes of one attached file."""

SILENT_PIPE = "standard input stayed silent and was not read; to wait for it, put - into the prompt: agent - 'prompt'"

_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}


# ---- pure ----


def decode(raw: bytes) -> str:
    """Bytes of a user's text as str, by the rule in the module's docstring."""
    return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").replace("\x00", "\ufffd")


def undecoded(name: str, text: str) -> str:
    """What to say of bytes that were no text; "" where all were."""
    lost = text.count("\ufffd")
    return f"{name} is not all UTF-8: {lost} byte{'s' * (lost > 1)} or so cannot be shown to the model" if lost else ""


def block(tag: str, text: str, name: str = "") -> str:
    """A delimited block: what stands in it is material, not the user's words, and cannot end it."""
    base, number = tag, 1
    while f"</{tag}>" in text:
        number += 1
        tag = f"{base}-{number}"
    opening = f'<{tag} path="{name.replace(chr(34), "&quot;")}">' if name else f"<{tag}>"
    return f"{opening}\n{text}{'' if text.endswith(chr(10)) else chr(10)}</{tag}>"


def compose(
    words: Sequence[str], stdin: str | None, files: Sequence[tuple[str, str]], images: Sequence[str]
) -> Message:
    """The user message. A lone `-` among the words is the place of standard input; without it, it comes last.

    Raises: UsageError when nothing is left to say.
    """
    text, placed = _join(words, stdin)
    parts = [text] if text else []
    parts += [block("file", content, name) for name, content in files]
    if stdin and not placed:
        parts.append(block("stdin", stdin) if parts else stdin)
    whole = "\n\n".join(parts)
    if not whole.strip() and not images:
        raise UsageError("The prompt is empty", 'Give one: agent "what to do"')
    if not images:
        return {"role": "user", "content": whole}
    content: list[dict[str, Any]] = [{"type": "text", "text": whole or "See the image."}]
    content += [{"type": "image_url", "image_url": {"url": url}} for url in images]
    return {"role": "user", "content": content}


def _join(words: Sequence[str], stdin: str | None) -> tuple[str, bool]:
    if "-" not in words or stdin is None:
        return " ".join(words), False
    if list(words) == ["-"]:
        return stdin, True
    at = list(words).index("-")
    around = (" ".join(words[:at]), block("stdin", stdin), " ".join(words[at + 1 :]))
    return "\n\n".join(part for part in around if part), True


# ---- effects ----


def read_stdin(*, has_prompt: bool, wait: bool, fd: int = 0) -> tuple[str | None, bool]:
    """Read standard input: (text or None, whether a silent pipe was left alone).

    A file is read, and so is a pipe that says something within the grace, or that is all there is. `wait` is an explicit
    `-`: read to the end whatever it is. A terminal is read only then.
    Raises: UsageError when it cannot be read, there is more than `STDIN_LIMIT`, or it is binary.
    """
    try:
        mode = os.fstat(fd).st_mode
    except OSError:  # closed
        return None, False
    if os.isatty(fd) and not wait:
        return None, False
    if has_prompt and not wait and not stat.S_ISREG(mode) and not _speaks(fd):
        return None, True
    raw = _read_all(fd)
    if _is_binary(raw[:8192]):
        raise UsageError("Standard input is binary", "Pipe text, or attach an image: agent -f image.png")
    return decode(raw), False


def _is_binary(start: bytes) -> bool:
    """Whether a tenth of it is no text at all, NULs included: `find -print0` writes one after each name."""
    strange = start.decode("utf-8", "replace").count("\ufffd") + start.count(b"\x00")
    return b"\x00" in start and len(start) >= 64 and strange > len(start) // 10


def _speaks(fd: int) -> bool:
    """Whether data or the end of input comes within the grace."""
    import select

    try:
        return bool(select.select([fd], [], [], GRACE)[0])
    except OSError:
        return True  # not selectable: reading it does not block


def _read_all(fd: int) -> bytes:
    blocks: list[bytes] = []
    size = 0
    while True:
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:  # whoever made the pipe does not want to wait; we do
            import select

            select.select([fd], [], [])
            continue
        except OSError as problem:  # a directory, or a broken terminal
            raise UsageError(
                f"Cannot read standard input: {problem.strerror}", "Leave it out with --no-stdin"
            ) from None
        if not data:
            return b"".join(blocks)
        blocks.append(data)
        size += len(data)
        if size > STDIN_LIMIT:
            hint = "Save it to a file and name the file in the prompt"
            raise UsageError(f"Standard input is larger than {STDIN_LIMIT >> 20} MB", hint)


def read_attachment(path: str) -> tuple[str, str | None, str | None]:
    """Read a file given with -f: (name, text or None, image as a data URL or None).

    Raises: UsageError for a file that is missing, too large, a directory or binary.
    """
    try:
        with open(path, "rb") as file:
            if stat.S_ISDIR(os.fstat(file.fileno()).st_mode):
                raise IsADirectoryError(21, "Is a directory")
            raw = file.read(FILE_LIMIT + 1)
    except OSError as problem:
        raise UsageError(f"Cannot attach {path}: {problem.strerror}", "Check the path given with -f") from None
    if len(raw) > FILE_LIMIT:
        hint = "Name it in the prompt instead: the model can read it in parts"
        raise UsageError(f"Cannot attach {path}: it is larger than {FILE_LIMIT >> 20} MB", hint)
    kind = _IMAGES.get(os.path.splitext(path)[1].lower())
    if kind:
        import base64

        return path, None, f"data:{kind};base64,{base64.b64encode(raw).decode('ascii')}"
    if b"\x00" in raw[:8192]:
        raise UsageError(f"Cannot attach {path}: it is binary", "Attach text, or an image (png, jpeg, gif, webp)")
    return path, decode(raw), None
