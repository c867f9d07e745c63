"""Which tool a file is from: its first bytes, else its first lines that are JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from agent.importers import aider, claude, codex, copilot, gemini, llm, pi
from agent.importers.conversation import Conversation, Json, Unreadable
from agent.importers.source import SQLITE, Source

LINES = 50
"""Lines that are looked at."""

READERS: dict[str, Callable[[Source], Iterator[Conversation]]] = {
    "codex": codex.read,
    "claude": claude.read,
    "pi": pi.read,
    "llm": llm.read,
    "aider": aider.read,
    "gemini": gemini.read,
    "copilot": copilot.read,
}

_MARKS: tuple[tuple[str, Callable[[Json], bool]], ...] = (
    ("gemini", gemini.is_gemini),
    ("codex", codex.is_codex),
    ("claude", claude.is_claude),
    ("pi", pi.is_pi),
    ("copilot", copilot.is_copilot),
)


def detect(source: Source) -> str:
    """The name of the tool. Raises Unreadable where no tool's marks are found."""
    if source.head.startswith(SQLITE):
        return "llm"
    start = source.head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(aider.START.encode()) or source.path.endswith(aider.NAME):
        return "aider"
    if start[:12].upper() == b"CREATE TABLE":
        raise Unreadable("it is SQL text, no database", f"Make one of it: sqlite3 logs.db < {source.path}")
    for record in islice(source.records(), LINES):
        if record.get("type") == "meta" and isinstance(record.get("id"), str):
            raise Unreadable(
                "it is a session of agent already", "Put it into the directory that `agent sessions path` names"
            )
        for name, mark in _MARKS:
            if mark(record):
                return name
    whole = source.whole()
    if whole and (gemini.is_gemini(whole) or codex.is_whole(whole)):
        return "gemini" if gemini.is_gemini(whole) else "codex"
    raise Unreadable("no tool that is known wrote it", f"Say which with --from: {', '.join(READERS)}")


def conversations(source: Source, tool: str = "auto") -> Iterator[Conversation]:
    """What a file holds; `tool` one of `READERS`, or "auto". Raises Unreadable."""
    name = detect(source) if tool == "auto" else tool
    source.bad = 0
    if (name == "llm") != source.head.startswith(SQLITE):
        kind = "a database" if name != "llm" else "no SQLite database"
        raise Unreadable(f"it is {kind}, which no session of {name} is", "Leave out --from, and it is found out")
    yield from READERS[name](source)
