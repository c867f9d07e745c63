"""Codex rollouts, all ages: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`.

    {"timestamp","ordinal"?,"type":"session_meta|response_item|event_msg|turn_context|compacted|...","payload":{...}}

What it would send is the `response_item`s; everything else repeats them or is about them. A `compacted` line replaces
all before it by its `replacement_history`. A fork holds only what came after the fork: its beginning is in the rollout
of `history_base.thread_id`, up to `end_ordinal_exclusive`, looked for beside the file and in the tree of dates around
it. Before August 2025 the items stood bare, one a line, behind a line {id, timestamp, instructions}.

Left out: reasoning (often encrypted), what the program itself put into the context (role developer, environment,
permissions, AGENTS.md), and calls the server itself made (web search).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from agent.importers.conversation import Conversation, Json, Unreadable, text_of, text_part, told
from agent.importers.source import Source, open_source

SUMMARY = {"summary": True, "compacted_by": "codex"}
KEPT_KINDS = ("user.", "compaction.summary", "generic.turn_aborted")
INJECTED = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<skills_instructions>",
)
_ITEMS = frozenset({"message", "reasoning", "function_call", "function_call_output", "custom_tool_call"})
_KINDS = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
GENERATIONS = 20
"""Forks of forks that are followed."""


def is_codex(record: Json) -> bool:
    """Whether a line is one of a rollout's, of any age."""
    if text_of(record.get("type")) in _KINDS and isinstance(record.get("payload"), dict | None):
        return True
    bare = "type" not in record and {"id", "timestamp", "instructions"} <= record.keys()
    return bare or record.get("record_type") == "state"


def is_whole(record: Json) -> bool:
    """Whether an object is a whole rollout of the first kind."""
    return isinstance(record.get("session"), dict) and isinstance(record.get("items"), list)


def read(source: Source) -> Iterator[Conversation]:
    """The one conversation of a rollout. Raises Unreadable when it is a fork whose beginning is not to be found."""
    conversation = Conversation("codex")
    whole = source.whole()
    if is_whole(whole):
        _describe(conversation, whole["session"], parent=False)
        for item in whole["items"]:
            _item(conversation, item, None)
        yield conversation.finish()
        return
    _read_into(conversation, source, None, [])
    yield conversation.finish()


def _read_into(conversation: Conversation, source: Source, end: int | None, line: list[str]) -> None:
    """Add the items of one file, those of its parent first; `end`: only records before that ordinal."""
    about: Json | None = None
    for place, record in enumerate(source.records(conversation)):
        ordinal = record.get("ordinal")
        if end is not None and (ordinal if isinstance(ordinal, int) else place) >= end:
            break
        kind, payload = text_of(record.get("type")), record.get("payload")
        if about is None and (kind == "session_meta" or place == 0):
            about = payload if isinstance(payload, dict) else record
            _describe(conversation, about, parent=bool(line))
            _parent(conversation, source, about, line)
        if kind == "turn_context" and isinstance(payload, dict):
            conversation.model = text_of(payload.get("model")) or conversation.model
        elif kind == "compacted" and isinstance(payload, dict):
            _compacted(conversation, payload, record.get("timestamp"))
        elif kind == "response_item":
            _item(conversation, payload, record.get("timestamp"))
        elif kind in _ITEMS and payload is None:
            _item(conversation, record, record.get("timestamp"))
        elif kind not in _KINDS and kind:
            conversation.drop(kind.replace("_", " "))


def _describe(conversation: Conversation, about: Json, *, parent: bool) -> None:
    if not parent:
        conversation.id = text_of(about.get("id"))
        conversation.cwd = text_of(about.get("cwd"))
        conversation.started = text_of(about.get("timestamp"))


def _item(conversation: Conversation, item: Any, at: Any) -> None:
    """One item of the Responses API."""
    if not isinstance(item, dict):
        conversation.drop("unreadable lines")
        return
    kind, id = item.get("type"), item.get("call_id") or item.get("id")
    if kind == "message":
        _message(conversation, item, at)
    elif kind == "function_call":
        conversation.call(id, item.get("name"), item.get("arguments"), at, model=conversation.model)
    elif kind == "custom_tool_call":
        arguments = {"input": item.get("input")}
        conversation.call(id, item.get("name"), arguments, at, model=conversation.model)
    elif kind == "local_shell_call":
        conversation.call(id, "local_shell", item.get("action"), at, model=conversation.model)
    elif kind in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
        output = item.get("output")
        failed = isinstance(output, dict) and output.get("success") is False
        conversation.result(id, told(output), at, ok=not failed)
    else:
        conversation.drop(text_of(kind).replace("_", " ") or "unknown items")


def _message(conversation: Conversation, item: Json, at: Any) -> None:
    role, parts = item.get("role"), _parts(conversation, item.get("content"))
    text = "\n\n".join(p["text"] for p in parts if p["type"] == "text")
    if role == "assistant":
        conversation.assistant(text, at, model=conversation.model)
    elif role != "user" or _injected(item, text):
        conversation.drop("injected context")
    else:
        passed = item.get("internal_chat_message_metadata_passthrough")
        kinds = passed.get("content_item_kinds") if isinstance(passed, dict) else None
        summary = isinstance(kinds, list) and "compaction.summary" in kinds
        conversation.user(parts, at, **(SUMMARY if summary else {}))


def _injected(item: Json, text: str) -> bool:
    """Whether a user item was put there by the program and not by the person."""
    passed = item.get("internal_chat_message_metadata_passthrough")
    kinds = passed.get("content_item_kinds") if isinstance(passed, dict) else None
    if isinstance(kinds, list) and kinds:
        return not any(isinstance(kind, str) and kind.startswith(KEPT_KINDS) for kind in kinds)
    return text.lstrip().startswith(INJECTED)


def _parts(conversation: Conversation, content: Any) -> list[Json]:
    """The content of a message as text and image parts."""
    if isinstance(content, str):
        return [text_part(content)]
    found = []
    for part in content if isinstance(content, list) else []:
        part = part if isinstance(part, dict) else {"text": part}
        if isinstance(part.get("text"), str):
            found.append(text_part(part["text"]))
        elif isinstance(part.get("image_url"), str) and part["image_url"].startswith(("data:image/", "http")):
            found.append({"type": "image_url", "image_url": {"url": part["image_url"]}})
        else:
            conversation.drop(text_of(part.get("type")).replace("_", " ") or "unknown parts")
    return found


def _compacted(conversation: Conversation, payload: Json, at: Any) -> None:
    """Codex's own compaction: its history, or in old files its summary, replaces what came before."""
    conversation.fold()
    history = payload.get("replacement_history")
    with conversation.keeping():
        for item in history if isinstance(history, list) else []:
            _item(conversation, item, at)
    if not isinstance(history, list):
        conversation.user(text_of(payload.get("message")), at, **SUMMARY)


# ---- forks ----


def _parent(conversation: Conversation, source: Source, about: Json, line: list[str]) -> None:
    """Read the beginning of a fork from its parent's file."""
    base = about.get("history_base")
    wanted = base.get("thread_id") if isinstance(base, dict) else None
    if not isinstance(base, dict) or not isinstance(wanted, str):
        return
    end = base.get("end_ordinal_exclusive")
    end = end if isinstance(end, int) else None
    path = "" if wanted in line or len(line) >= GENERATIONS else _find(source.path, wanted, end or 0)
    if path:
        _read_into(conversation, open_source(path, force=source.force), end, [*line, wanted])
    elif source.force:
        conversation.notices.append(f"its beginning, session {wanted}, was not found: it starts at the fork")
    else:
        hint = f"Put rollout-...-{wanted}.jsonl beside it, or import what is there with --force"
        raise Unreadable(f"it is a fork of session {wanted}, whose file is not beside it", hint)


def _find(path: str, wanted: str, end: int) -> str:
    """The rollout of a thread that reaches ordinal `end`, beside `path` or in the tree of dates around it; or ""."""
    here = os.path.dirname(os.path.abspath(path))
    beside = [os.path.join(here, name) for name in sorted(os.listdir(here)) if name.endswith(".jsonl")]
    root = here
    for _ in range(3):  # year, month, day
        root = os.path.dirname(root) if os.path.basename(root).isdigit() else root
    tree = os.walk(root) if root != here else ()
    dated = (os.path.join(folder, n) for folder, _, names in tree for n in names if n.endswith(f"{wanted}.jsonl"))
    for other in (*beside, *dated):
        if other != os.path.abspath(path) and _thread_of(other) == wanted and _reaches(other, end):
            return other
    return ""


def _thread_of(path: str) -> str:
    """The id on a rollout's first line, or ""."""
    try:
        first = next(open_source(path).records(), {})
    except (Unreadable, OSError):
        return ""
    payload = first.get("payload")
    return text_of(payload.get("id")) if isinstance(payload, dict) else ""


def _reaches(path: str, end: int) -> bool:
    """Whether a file holds the records before ordinal `end`: a shorter one is another thread's, or was cut."""
    last = -1
    for place, record in enumerate(open_source(path).records()):
        ordinal = record.get("ordinal")
        last = ordinal if isinstance(ordinal, int) else place
    return last >= end - 1
