"""Sessions of other tools become sessions here: `agent sessions import`.

What a tool would send on resume is written as one new session, whole or not at all: our system message (theirs, where
the person wrote it), then the messages with their times; what the tool had compacted away becomes an archive.
`meta.imported_from` says whence: tool, id, path, SHA-256. The same source is taken once: the same conversation of the
same bytes, or of the same place. The model is not taken over, since it is another program's choice; each answer still
says which model gave it. Names of foreign tools are history: nothing here makes one callable.

The front knows no format: each section is a family of them and offers `read(source, options)`, an iterator of
conversations; `sniff.detect` says which one a file is for. Readers raise `Unreadable` with one sentence, and count by
kind whatever they leave out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agent.importers.conversation import Conversation, Unreadable
from agent.importers.sniff import conversations
from agent.importers.source import Progress, Source, open_source
from agent.log.disk import DISK, Disk, digest_file, make_directory, make_side_directory, storing, write_new
from agent.log.entries import Entry, encode
from agent.log.library import listing, read_ends
from agent.log.lock import Lock
from agent.log.logfile import beside, fresh_meta, log_path, new_id
from agent.log.writer import in_batches
from agent.messages import text_of
from agent.tokens import estimate_messages

FOREIGN_TOOLS = (
    "This conversation began in another program ({tool}). Tools that it called and that you are not offered are "
    "history: do not call them."
)

Key = tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of one conversation of a file. `id` is the new session, or "" with `refused` saying why.

    `tokens` is an estimate of what the next request would carry; `earlier` counts the messages that the other tool had
    compacted away, now in the archive; `dropped` counts by kind.
    """

    path: str
    tool: str = ""
    source_id: str = ""
    title: str = ""
    id: str = ""
    messages: int = 0
    earlier: int = 0
    tokens: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    refused: str = ""
    hint: str = ""

    def as_json(self, dry_run: bool) -> dict[str, Any]:
        told: dict[str, Any] = {"path": self.path, "tool": self.tool, "source_id": self.source_id, "title": self.title}
        if self.refused:
            return told | {"refused": self.refused, "hint": self.hint}
        told |= {"id": self.id or None, "messages": self.messages}
        told |= {"archived": self.earlier, "tokens": self.tokens, "dry_run": dry_run}
        return told | {"dropped": self.dropped, "notices": list(self.notices)}


def keys(tool: str, source_id: str, path: str, sha256: str) -> tuple[Key, Key]:
    """What a source is known by: its bytes, and its place. Either one known is the same source."""
    return ("bytes", sha256, source_id), ("place", tool, source_id, os.path.realpath(path))


def system_text(conversation: Conversation, cwd: str) -> str:
    """The first message: the person's own where the file has it, else ours; and a word on foreign calls."""
    from agent.cli.equipment import SYSTEM_PROMPT

    text = conversation.system or SYSTEM_PROMPT.format(cwd=cwd)
    called = any("tool_calls" in entry["message"] for entry in conversation.entries)
    return f"{text}\n\n{FOREIGN_TOOLS.format(tool=conversation.tool)}" if called else text


def lines_of(conversation: Conversation, origin: dict[str, Any], cwd: str, id: str) -> tuple[list[Entry], list[Entry]]:
    """The lines of the new session: the archived generation ([] without one) and the log.

    Where the other tool had compacted, the archive holds what it folded and the log its own record of that, so that the
    originals are searched, shown and restored like any. What it kept word for word has one number in both.
    """
    meta = {"created_at": conversation.started, "imported_from": origin}
    if conversation.cwd:
        meta["cwd"] = conversation.cwd
    system = {"role": "system", "content": system_text(conversation, cwd)}
    first = {"type": "message", "n": 1, "at": conversation.started, "message": system}
    earlier: list[Entry] = [{"type": "message", "n": n} | e for n, e in enumerate(conversation.earlier, 2)]
    top = 1 + len(earlier)
    if not earlier:
        return [], [fresh_meta(meta, id), first, *numbered(conversation.entries, {}, 1)]
    kept = kept_numbers(conversation.entries, earlier)
    later = numbered(conversation.entries, kept, top + 1)
    for entry in later:
        if entry.get("summary"):  # as a compaction of ours has it, so that the next one carries it on
            entry |= {"written": text_of(entry["message"]), "covers": [2, top]}
    folded = [entry["n"] for entry in earlier if entry["n"] not in kept.values()]
    record = {
        "type": "compaction", "n": top + 1, "at": later[0]["at"], "reason": "imported", "strategy": conversation.tool,
        "folded": [min(folded), max(folded)] if folded else [], "kept": len(kept), "archive": "0001",
        "tokens": {"before": tokens_of([first, *earlier]), "after_estimate": tokens_of([first, *later])},
    }  # fmt: skip
    counts = {"n": max(top + 1, *(e["n"] for e in later)), "requests": 0, "generation": 1, "compactions": 1}
    log = [fresh_meta(meta | {"counts": counts}, id), record, first, *later]
    return [fresh_meta(meta, id), first, *earlier], log


def numbered(entries: list[Entry], kept: dict[int, int], top: int) -> list[Entry]:
    """The entries with numbers above `top`, but those at the places in `kept` with the numbers they have."""
    found = []
    for place, entry in enumerate(entries):
        top += place not in kept
        found.append({"type": "message", "n": kept.get(place, top)} | {k: v for k, v in entry.items() if k != "kept"})
    return found


def kept_numbers(entries: list[Entry], earlier: list[Entry]) -> dict[int, int]:
    """place -> number of the entries that the other tool kept: the last equal ones before them, in order."""
    found, left = {}, len(earlier)
    for place in range(len(entries) - 1, -1, -1):
        if entries[place].get("kept"):
            same = (i for i in range(left - 1, -1, -1) if earlier[i]["message"] == entries[place]["message"])
            at = next(same, None)
            if at is not None:
                found[place], left = earlier[at]["n"], at
    return found


def tokens_of(entries: list[Entry]) -> int:
    """What a request with these messages would take, estimated."""
    return estimate_messages(entry["message"] for entry in entries if entry["type"] == "message")


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
        archive, lines = lines_of(conversation, origin, here, id)
        if not self.dry_run:
            plant(self.store, id, archive, lines, disk)
        self._known |= dict.fromkeys(both, id)
        return Outcome(
            source.path,
            **about,
            id="" if self.dry_run else id,
            messages=len(conversation.entries),
            earlier=len(conversation.earlier),
            tokens=tokens_of(lines),
            dropped=dict(conversation.dropped),
            notices=tuple(conversation.notices),
        )


def counted(dropped: dict[str, int]) -> str:
    """What was left out, in words: "thinking: 4, meta lines: 2"."""
    return ", ".join(
        f"{kind}: {count}" for kind, count in sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    )


def plant(store: str, id: str, archive: list[Entry], lines: list[Entry], disk: Disk = DISK) -> None:
    """Make a session of complete lines: it is there whole from one moment on, its archive before it.

    Raises: StorageError.
    """
    path = log_path(store, id)
    with storing(f"create a session in {store}"):
        make_directory(disk, store)
    lock = Lock(beside(path, "lock"))
    try:
        with storing(f"create a session in {store}"):
            if archive:
                lines = [lines[0] | {"archived": _keep(path, archive, disk)}, *lines[1:]]
            disk.close(write_new(disk, beside(path, "tmp"), in_batches(map(encode, lines))))
            disk.replace(beside(path, "tmp"), path)
            disk.fsync_dir(store)
    finally:
        lock.release()


def _keep(path: str, archive: list[Entry], disk: Disk) -> dict[str, Any]:
    """Write the archived generation; the link that the log's first line holds. Raises OSError."""
    folder = beside(path, "archive")
    make_side_directory(disk, folder)
    file = os.path.join(folder, "0001.jsonl")
    disk.close(write_new(disk, file, in_batches(map(encode, archive))))
    disk.fsync_dir(folder)
    return {"name": "0001", "bytes": os.path.getsize(file), "sha256": digest_file(file)}


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
