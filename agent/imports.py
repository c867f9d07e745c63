"""Sessions of other tools become sessions here: `agent sessions import`.

What a tool would send on resume is written as one new session, whole or not at all: our system message (theirs, where
the person wrote it), then the messages with their times. `meta.imported_from` says whence: tool, id, path, SHA-256.
The same source is taken once: the same conversation of the same bytes, or of the same place. The model is not taken
over, since it is another program's choice; each answer still says which model gave it. Names of foreign tools are
history: nothing here makes one callable.

It does not know any format: `agent.importers` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agent.disk import DISK, Disk, make_directory, storing, write_new
from agent.entries import Entry, encode
from agent.importers.conversation import Conversation, Unreadable
from agent.importers.sniff import conversations
from agent.importers.source import Progress, Source, open_source
from agent.library import listing, read_ends
from agent.lock import Lock
from agent.logfile import beside, fresh_meta, log_path, new_id
from agent.tokens import estimate_messages
from agent.writer import in_batches

FOREIGN_TOOLS = (
    "This conversation began in another program ({tool}). Tools that it called and that you are not offered are "
    "history: do not call them."
)

Key = tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of one conversation of a file. `id` is the new session, or "" with `refused` saying why.

    `tokens` is an estimate of what the next request would carry; `dropped` counts by kind.
    """

    path: str
    tool: str = ""
    source_id: str = ""
    title: str = ""
    id: str = ""
    messages: int = 0
    tokens: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    refused: str = ""
    hint: str = ""

    def as_json(self, dry_run: bool) -> dict[str, Any]:
        told: dict[str, Any] = {"path": self.path, "tool": self.tool, "source_id": self.source_id, "title": self.title}
        if self.refused:
            return told | {"refused": self.refused, "hint": self.hint}
        told |= {"id": self.id or None, "messages": self.messages, "tokens": self.tokens, "dry_run": dry_run}
        return told | {"dropped": self.dropped, "notices": list(self.notices)}


def keys(tool: str, source_id: str, path: str, sha256: str) -> tuple[Key, Key]:
    """What a source is known by: its bytes, and its place. Either one known is the same source."""
    return ("bytes", sha256, source_id), ("place", tool, source_id, os.path.realpath(path))


def system_text(conversation: Conversation, cwd: str) -> str:
    """The first message: the person's own where the file has it, else ours; and a word on foreign calls."""
    from agent.equipment import SYSTEM_PROMPT

    text = conversation.system or SYSTEM_PROMPT.format(cwd=cwd)
    called = any("tool_calls" in entry["message"] for entry in conversation.entries)
    return f"{text}\n\n{FOREIGN_TOOLS.format(tool=conversation.tool)}" if called else text


def lines_of(conversation: Conversation, origin: dict[str, Any], cwd: str, id: str) -> list[Entry]:
    """The whole file of the new session: meta, system message, messages, numbered from 1."""
    meta = {"created_at": conversation.started, "imported_from": origin}
    if conversation.cwd:
        meta["cwd"] = conversation.cwd
    system = {"role": "system", "content": system_text(conversation, cwd)}
    first = {"type": "message", "at": conversation.started, "message": system}
    numbered = [{"type": "message", "n": n} | e for n, e in enumerate([first, *conversation.entries], 1)]
    return [fresh_meta(meta, id), *numbered]


# ---- effects ---------------------------------------------------------------------------------------------------------


class Importer:
    """Imports into one store and remembers what was imported before, by earlier runs and by this one."""

    def __init__(self, store: str, *, tool: str = "auto", dry_run: bool = False, force: bool = False) -> None:
        self.store, self.tool, self.dry_run, self.force = store, tool, dry_run, force
        self._known = dict(known(store))

    def take(self, path: str, progress: Progress = lambda done, of: None, disk: Disk = DISK) -> Iterator[Outcome]:
        """Every conversation of a file: imported, or refused with a sentence. Raises StorageError."""
        tool = ""
        try:
            source = open_source(path, progress, self.force)
            sha256, found = source.sha256(), 0
            for conversation in conversations(source, self.tool):
                tool, found = conversation.tool, found + 1
                yield self._one(source, conversation, sha256, disk)
            if not found:
                raise Unreadable("it holds no conversation", "There is nothing to import")
        except Unreadable as problem:
            yield Outcome(path, tool, refused=problem.text, hint=problem.hint)
        except RecursionError:
            yield Outcome(path, tool, refused="its values are nested too deeply", hint="Look at it with jq")
        except OSError as problem:
            yield Outcome(path, tool, refused=f"it cannot be read: {problem.strerror}", hint="Check the path")

    def _one(self, source: Source, conversation: Conversation, sha256: str, disk: Disk) -> Outcome:
        about: dict[str, Any] = {"tool": conversation.tool, "source_id": conversation.id, "title": conversation.title}
        if not conversation.entries:
            told = counted(conversation.dropped)
            why = f"it holds no message that {conversation.tool} would send again" + (f" ({told})" if told else "")
            return Outcome(source.path, **about, refused=why, hint="There is nothing to import")
        both = keys(conversation.tool, conversation.id, source.path, sha256)
        earlier = next((self._known[key] for key in both if key in self._known), "")
        if earlier and not self.force:
            changed = "" if both[0] in self._known else ", and has changed since"
            hint = f"Continue it: agent -c {earlier}. Import it again with --force"
            return Outcome(source.path, **about, refused=f"it was imported as session {earlier}{changed}", hint=hint)
        id = new_id()
        here = conversation.cwd if os.path.isdir(conversation.cwd) else os.getcwd()
        path = os.path.abspath(source.path)
        origin = {"tool": conversation.tool, "id": conversation.id, "path": path, "sha256": sha256}
        origin |= {k: v for k, v in (("title", conversation.title), ("model", conversation.model)) if v}
        lines = lines_of(conversation, origin, here, id)
        if not self.dry_run:
            plant(self.store, id, lines, disk)
        self._known |= dict.fromkeys(both, id)
        return Outcome(
            source.path,
            **about,
            id="" if self.dry_run else id,
            messages=len(conversation.entries),
            tokens=estimate_messages(line["message"] for line in lines[1:]),
            dropped=dict(conversation.dropped),
            notices=tuple(conversation.notices),
        )


def counted(dropped: dict[str, int]) -> str:
    """What was left out, in words: "thinking: 4, meta lines: 2"."""
    return ", ".join(
        f"{kind}: {count}" for kind, count in sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    )


def plant(store: str, id: str, lines: list[Entry], disk: Disk = DISK) -> None:
    """Make a session of complete lines: it is there whole from one moment on. Raises StorageError."""
    path = log_path(store, id)
    with storing(f"create a session in {store}"):
        make_directory(disk, store)
    lock = Lock(beside(path, "lock"))
    try:
        with storing(f"create a session in {store}"):
            disk.close(write_new(disk, beside(path, "tmp"), in_batches(map(encode, lines))))
            disk.replace(beside(path, "tmp"), path)
            disk.fsync_dir(store)
    finally:
        lock.release()


def known(store: str) -> Iterator[tuple[Key, str]]:
    """(key, session id) of every source that the sessions of a store came from."""
    for _, id, _ in listing(store):
        try:
            head = read_ends(log_path(store, id)).head[:1]
        except OSError:
            continue  # removed while we read
        origin = head[0].get("imported_from") if head else None
        if isinstance(origin, dict):
            told = [str(origin.get(key) or "") for key in ("tool", "id", "path", "sha256")]
            for key in keys(told[0], told[1], told[2], told[3]):
                yield key, id
