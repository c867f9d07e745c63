"""A session's life as something to tell: every message once, and what happened to them between.

The order is that of `n`. A message stands as it was before any shortening; a compaction, an undo or a failure stands
where it happened, and has one sentence.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.log.entries import Entry
from agent.session import Session


def story(session: Session) -> Iterator[Entry]:
    """Every message of the life in order of `n`, un-shortened, and what happened between them in its place, once."""
    events: dict[int, Entry] = {}
    for _, _, entries in session.generations():
        events |= {e["n"]: e for e in entries if e["type"] in ("compaction", "attempt", "undo", "failed")}
    waiting = sorted(events.items(), reverse=True)
    for entry in session.originals():
        while waiting and waiting[-1][0] < entry["n"]:
            yield waiting.pop()[1]
        yield entry
    while waiting:
        yield waiting.pop()[1]


def title_of(session: Session) -> str:
    return str(session.meta.get("name") or session.id)


def event_line(entry: Entry) -> str:
    """A compaction, an attempt at one, an undo or a failure in one sentence."""
    if entry["type"] == "undo":
        word = "undo taken back" if entry.get("redo") else "compaction undone"
        return f"{word} (entry {entry.get('undid')})"
    if entry["type"] == "attempt":
        return f"not compacted ({entry.get('reason', 'attempt')}): {entry.get('text', '')}"
    if entry["type"] == "failed":
        error = entry.get("error")
        return f"the turn failed: {error.get('text') if isinstance(error, dict) else error}"
    tokens = entry.get("tokens")
    tokens = tokens if isinstance(tokens, dict) else {}
    sizes = f", {tokens.get('before')} -> {tokens.get('after_estimate')} tokens" if tokens else ""
    folded = entry.get("folded")
    span = f", messages {folded[0]} to {folded[-1]} folded" if isinstance(folded, list) and folded else ""
    span += f", {entry['kept']} kept" if isinstance(entry.get("kept"), int) else ""
    why = f"{entry.get('reason', 'compaction')}, {entry.get('strategy', '?')}"
    return f"compacted ({why}{span}{sizes}, original in archive {entry.get('archive')})"
