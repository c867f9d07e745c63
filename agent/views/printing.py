"""How the session verbs print: rows, transcripts, JSON lines, a pager, a question.

Stored text goes to a pipe as it is and to a terminal with its control characters visible. Notices go to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

import typer

from agent.lines import visible


def age(seconds: float) -> str:
    """How long ago, in one unit: 5s, 3m, 2h, 4d."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def row_line(row: Any, clock: float) -> str:
    """One line of a list: id, age, messages, tokens, model, name and first words."""
    messages = "?" if row.messages is None else str(row.messages)
    tokens = "-" if row.tokens is None else f"{row.tokens:,}"
    words = f"[{row.name}] {row.first_words}" if row.name else row.first_words
    return f"{row.id:24} {age(clock - row.written):>4} {messages:>5} {tokens:>9}  {row.model or '-':20.20} {words}"


ROW_HEAD = f"{'ID':24} {'AGE':>4} {'MSGS':>5} {'TOKENS':>9}  {'MODEL':20} NAME AND FIRST WORDS"
"""What stands over a list on a terminal."""


def fitted(line: str) -> str:
    """A line cut to the width of the terminal; whole where there is none."""
    if not sys.stdout.isatty():
        return line
    from shutil import get_terminal_size

    from agent.views.chart import fit

    return fit(line, get_terminal_size((100, 24)).columns)


def row_out(row: Any, clock: float, *, first: bool) -> None:
    """A row of the list of sessions; on a terminal its head stands over the first."""
    if first and sys.stdout.isatty():
        out(fitted(ROW_HEAD) + "\n")
    out(fitted(row_line(row, clock)) + "\n")


def transcript(entries: Iterable[Any]) -> Iterable[str]:
    """A story as text, one block a message."""
    from agent.messages import text_of, tool_calls
    from agent.views.story import event_line

    for entry in entries:
        if entry["type"] != "message":
            yield f"--- {event_line(entry)}\n\n"
            continue
        message = entry["message"]
        broken = " · interrupted" if entry.get("interrupted") or _detail(entry).get("interrupted") else ""
        yield f"{'summary' if entry.get('summary') else message['role']} · {entry['n']}{broken}\n"
        text = text_of(message)
        if text:
            yield f"{text}\n"
        if isinstance(message.get("content"), list):
            yield from (
                "[image]\n" for part in message["content"] if isinstance(part, dict) and part.get("type") == "image_url"
            )
        for call in tool_calls(message):
            yield f"-> {call.name} {call.arguments}\n"
        yield "\n"


def _detail(entry: Any) -> Any:
    """What is stored of a tool's result beside its text."""
    return tool if isinstance(tool := entry.get("tool"), dict) else {}


def last_answer(entries: Iterable[Any]) -> str:
    """The text of the last answer that has any, or ""; a summary is none, whatever its role."""
    from agent.messages import text_of

    said = [e["message"] for e in entries if e["type"] == "message" and not e.get("summary")]
    return next((t for m in reversed(said) if m["role"] == "assistant" and (t := text_of(m))), "")


# ---- effects ---------------------------------------------------------------------------------------------------------


def out(text: str) -> None:
    """Stored text to stdout: as it is into a pipe, with control characters visible on a terminal."""
    shown = visible(text) if sys.stdout.isatty() else text
    sys.stdout.buffer.write(shown.encode("utf-8", "replace"))
    if sys.stdout.isatty():
        sys.stdout.flush()


def drawn(text: str) -> None:
    """What was made here, with its colours, to stdout."""
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.flush()


def out_json(value: Any) -> None:
    """One JSON value on one line."""
    from agent.log.entries import encode

    sys.stdout.buffer.write(encode(value))


def note(text: str) -> None:
    """One line for people, on stderr, after what was written to stdout before it."""
    sys.stdout.flush()
    typer.echo(f"agent: {visible(text)}", err=True)


def paged(pieces: Iterable[str]) -> None:
    """To stdout; on a terminal through $PAGER."""
    pager = os.environ.get("PAGER", "less -FRX")
    if not (sys.stdout.isatty() and sys.stdin.isatty()) or pager in ("", "cat"):
        for piece in pieces:
            out(piece)
        return
    import shlex
    import subprocess

    try:
        process = subprocess.Popen(shlex.split(pager), stdin=subprocess.PIPE)
    except (OSError, ValueError):
        out("".join(pieces))
        return
    with process:
        try:
            for piece in pieces:
                process.stdin.write(visible(piece).encode("utf-8", "replace"))  # type: ignore[union-attr]
        except BrokenPipeError:
            pass  # the reader has seen enough


def agreed(question: str, yes: bool) -> bool:
    """Ask on a terminal; without one the command line itself is the answer."""
    return yes or not sys.stdin.isatty() or typer.confirm(question, err=True)


class Progress:
    """How far a long walk is, on a terminal's stderr. `clear` it before anything else is printed."""

    def __init__(self) -> None:
        self._shown = ""

    def __call__(self, done: int, of: int) -> None:
        """`done` of `of` sessions were looked at; shown now and then, and only where it takes a while."""
        if of > 2000 and done % 500 == 0 and sys.stderr.isatty():
            self._write(f"{done:,} of {of:,} sessions")

    def clear(self) -> None:
        if self._shown:
            self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r{' ' * len(self._shown)}\r{text}")
        sys.stderr.flush()
        self._shown = text
