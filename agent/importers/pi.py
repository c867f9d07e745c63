"""pi sessions: `~/.pi/agent/sessions/--<directory>--/<time>_<uuid>.jsonl`, versions 1 to 3.

    {"type":"session","version":3,"id","timestamp","cwd"}
    {"type":"message|compaction|branch_summary|custom_message|model_change|...","id","parentId","timestamp",...}

A tree: the conversation is the path from the last entry to the root. The last compaction on it stands for everything
before the entry that it names as the first kept. Version 1 is a plain list without ids, where the first kept entry is
named by its index. Left out: thinking, answers that failed before they said anything (their prompt stays), labels and
data of extensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent.importers.conversation import Conversation, Json, image, text_of, text_part, told
from agent.importers.source import Source

SUMMARY = "Summary of the conversation before this point, made by pi:\n\n"
BRANCH = "Summary of another branch of this conversation, made by pi:\n\n"
_QUIET = ("session", "model_change", "thinking_level_change", "session_info")


def is_pi(record: Json) -> bool:
    """Whether a line is the first of such a file."""
    return record.get("type") == "session" and isinstance(record.get("id"), str) and "timestamp" in record


def read(source: Source) -> Iterator[Conversation]:
    """The one conversation of a file."""
    conversation = Conversation("pi")
    records = list(source.records(conversation))
    _describe(conversation, records)
    path = _path(records)
    place, start = _compaction(records, path)
    for record in path[:place]:
        _entry(conversation, record)
    if place:
        conversation.fold()
        _entry(conversation, path[place])
        with conversation.keeping():
            for record in path[start:place]:
                _entry(conversation, record)
    for record in path[place + bool(place) :]:
        _entry(conversation, record)
    others = sum(r.get("type") == "message" for r in records) - sum(r.get("type") == "message" for r in path)
    if others:
        conversation.drop("entries of other branches", others)
    yield conversation.finish()


def _describe(conversation: Conversation, records: list[Json]) -> None:
    head = next((r for r in records if r.get("type") == "session"), {})
    conversation.id, conversation.cwd = text_of(head.get("id")), text_of(head.get("cwd"))
    conversation.started, conversation.model = text_of(head.get("timestamp")), text_of(head.get("modelId"))
    for record in records:
        if record.get("type") == "session_info":
            conversation.title = text_of(record.get("name")) or conversation.title


def _path(records: list[Json]) -> list[Json]:
    """From the root to the last entry; all of them, in a file without ids."""
    by_id = {r["id"]: r for r in records if isinstance(r.get("id"), str) and r.get("type") != "session"}
    if not by_id:
        return records
    at, path, seen = list(by_id)[-1], [], set[str]()
    while at in by_id and at not in seen:
        seen.add(at)
        path.append(by_id[at])
        at = text_of(by_id[at].get("parentId"))
    return path[::-1]


def _compaction(records: list[Json], path: list[Json]) -> tuple[int, int]:
    """Where on the path the last compaction stands, and the first entry that it kept; (0, 0) where there is none."""
    place = next((i for i in range(len(path) - 1, 0, -1) if path[i].get("type") == "compaction"), 0)
    last: Json = path[place] if place else {}
    first, index = last.get("firstKeptEntryId"), last.get("firstKeptEntryIndex")
    start = next((i for i, r in enumerate(path[:place]) if r.get("id") == first and first), place)
    if path is records and isinstance(index, int):
        start = max(0, min(index, place))
    return place, start


def _entry(conversation: Conversation, record: Json) -> None:
    kind, at = record.get("type"), record.get("timestamp")
    if kind == "message" and isinstance(record.get("message"), dict):
        _message(conversation, record["message"], at)
    elif kind in ("compaction", "branch_summary") and isinstance(record.get("summary"), str):
        lead = SUMMARY if kind == "compaction" else BRANCH
        whole = {"summary": True} if kind == "compaction" else {}
        conversation.user(lead + record["summary"], at, compacted_by="pi", **whole)
    elif kind == "custom_message":
        conversation.user(_parts(conversation, record.get("content")), at)
    elif kind == "model_change":
        conversation.model = text_of(record.get("modelId")) or conversation.model
    elif kind not in _QUIET:
        conversation.drop(f"{text_of(kind) or 'unknown'} entries")


def _message(conversation: Conversation, message: Json, at: Any) -> None:
    role = message.get("role")
    if role == "assistant":
        _answer(conversation, message, at)
    elif role == "toolResult":
        text = told([p for p in _as_list(message.get("content")) if not _is_picture(p)])
        pictures = sum(map(_is_picture, _as_list(message.get("content"))))
        if pictures:
            conversation.drop("pictures in results", pictures)
            text = text or "(a picture)"
        conversation.result(
            message.get("toolCallId"), text, at, name=text_of(message.get("toolName")), ok=not message.get("isError")
        )
    elif role == "bashExecution":
        if not message.get("excludeFromContext"):
            told_code = f" (exit {message['exitCode']})" if isinstance(message.get("exitCode"), int) else ""
            output = text_of(message.get("output"))
            conversation.user(f"I ran `{text_of(message.get('command'))}`{told_code}:\n{output}", at)
    elif role in ("user", "custom"):
        conversation.user(_parts(conversation, message.get("content")), at)
    elif role in ("compactionSummary", "branchSummary"):
        conversation.user(text_of(message.get("summary")), at, compacted_by="pi")
    else:
        conversation.drop(f"messages of role {text_of(role) or 'unknown'}")


def _answer(conversation: Conversation, message: Json, at: Any) -> None:
    """An answer; one that failed keeps what it said, without the calls that were never made."""
    model = text_of(message.get("model"))
    conversation.model = model or conversation.model
    failed = message.get("stopReason") in ("error", "aborted")
    content = _as_list(message.get("content"))
    if failed and not any(isinstance(b, dict) and b.get("type") == "text" for b in content):
        conversation.drop("failed answers")
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else "text"
        if kind == "text":
            conversation.assistant(told(block), at, model=model, key=id(message))
        elif kind == "toolCall" and not failed:
            name, arguments = block.get("name"), block.get("arguments")
            conversation.call(block.get("id"), name, arguments, at, model=model, key=id(message))
        elif kind == "toolCall":
            conversation.drop("calls of failed answers")
        else:
            conversation.drop(text_of(kind) or "unknown blocks")


def _parts(conversation: Conversation, content: Any) -> list[Json]:
    found = []
    for part in _as_list(content):
        picture = image(part.get("mimeType"), part.get("data")) if _is_picture(part) else None
        if picture is not None:
            found.append(picture)
        elif isinstance(part, str) or (isinstance(part, dict) and isinstance(part.get("text"), str)):
            found.append(text_part(told(part)))
        else:
            conversation.drop("unknown parts")
    return found


def _as_list(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [] if content is None else [content]


def _is_picture(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "image"
