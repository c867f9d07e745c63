"""Find words in everything that was ever said: the current logs and their archives.

Plain text, any case. Each hit names its session and the `n` of the message, which is all that is needed to see it:
`agent sessions show ID` or the archive. Sessions are read one at a time, newest first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from agent.errors import AgentError
from agent.log.entries import Entry
from agent.log.library import listing
from agent.log.logfile import generation_paths, log_path
from agent.messages import text_of, tool_calls
from agent.session import Session

AROUND = 60
"""Characters shown on each side of a hit."""
_PLAIN = re.compile(r"[A-Za-z0-9 _.-]+")
"""Queries that JSON never escapes, so that a file without them need not be parsed."""


class Hit(NamedTuple):
    id: str
    n: int
    role: str
    at: str
    text: str
    """The surroundings of the first hit in the message, on one line."""


def spoken(entry: Entry) -> str:
    """What can be found of a message: its text, and what its tool calls were given."""
    message = entry["message"]
    calls = [f"{call.name} {call.arguments}" for call in tool_calls(message)]
    return "\n".join([text_of(message), *calls])


def excerpt(text: str, query: str) -> str | None:
    """The surroundings of the first place where `query` stands in `text`, any case; None when it does not."""
    found = re.search(re.escape(query), text, re.IGNORECASE)
    if found is None:
        return None
    return " ".join(text[max(0, found.start() - AROUND) : found.end() + AROUND].split())


# ---- effects ---------------------------------------------------------------------------------------------------------


def search(store: str, query: str, progress: Callable[[int, int], None] | None = None) -> Iterator[Hit]:
    """Every message of every session in `store` that holds `query`. `progress(done, of)` counts sessions."""
    sessions = listing(store)
    for done, (_, id, _) in enumerate(sessions):
        if progress:
            progress(done, len(sessions))
        if _PLAIN.fullmatch(query) and not _may_hold(log_path(store, id), query):
            continue
        try:
            session = Session.read(store, id)
        except (AgentError, OSError):
            continue
        for entry in session.originals():
            text = excerpt(spoken(entry), query)
            if text is not None:
                yield Hit(id, entry["n"], entry["message"]["role"], str(entry.get("at", "")), text)


def _may_hold(path: str, query: str) -> bool:
    """False when no byte of the session's files can hold a plain query."""
    import mmap

    pattern = re.compile(re.escape(query.encode()), re.IGNORECASE)
    for each in [path, *generation_paths(path)]:
        try:
            fd = os.open(each, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as data:
                    if pattern.search(data):
                        return True
            finally:
                os.close(fd)
        except (OSError, ValueError):  # ValueError: an empty file
            continue
    return False
