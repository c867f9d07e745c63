"""Gemini CLI chats: `~/.gemini/tmp/<project>/chats/session-*.jsonl`, or one JSON object with "messages" in older ones.

A header {sessionId, projectHash, startTime, ...}, then records {id, timestamp, type: user|gemini, content, toolCalls}
and patches {"$set": {...}}; a list of messages in a patch replaces all before it, and a record that comes again under
its id the first. Results stand beside their calls. Thoughts, and the context that the program put first, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent.importers.conversation import Conversation, Json, image, text_of, text_part, told
from agent.importers.source import Source


def is_gemini(record: Json) -> bool:
    return isinstance(record.get("sessionId"), str) and "projectHash" in record


def read(source: Source) -> Iterator[Conversation]:
    """The one conversation of a chat file: what stands after its last patch."""
    conversation = Conversation("gemini")
    messages: dict[str, Json] = {}
    whole = source.whole()
    for record in [whole] if whole else source.records(conversation):
        patch = record.get("$set")
        change = patch if isinstance(patch, dict) else record if "projectHash" in record else {}
        conversation.id = text_of(change.get("sessionId")) or conversation.id
        conversation.started = conversation.started or text_of(change.get("startTime"))
        if isinstance(change.get("messages"), list):
            messages = _by_id(change["messages"])
        elif record.get("type") in ("user", "gemini"):
            messages[text_of(record.get("id")) or str(len(messages))] = record
        elif not change:
            conversation.drop(f"{text_of(record.get('type')) or 'unknown'} records")
    for number, message in enumerate(messages.values()):
        _message(conversation, message, first=number == 0)
    yield conversation.finish()


def _by_id(messages: list[Any]) -> dict[str, Json]:
    """In order; a message that comes again under its id takes the place of the first."""
    return {text_of(m.get("id")) or str(i): m for i, m in enumerate(messages) if isinstance(m, dict)}


def _message(conversation: Conversation, message: Json, *, first: bool) -> None:
    kind, at = message.get("type"), message.get("timestamp")
    parts = _parts(conversation, message.get("content"))
    text = "\n".join(p["text"] for p in parts if p["type"] == "text")
    if kind == "user":
        if first and text.lstrip().startswith("<session_context>"):
            conversation.drop("injected context")
        else:
            conversation.user(parts, at)
    elif kind == "gemini":
        conversation.model = text_of(message.get("model")) or conversation.model
        about: dict[str, Any] = {"model": conversation.model, "key": id(message)}
        conversation.assistant(text, at, **about)
        calls = message.get("toolCalls")
        calls = [c for c in calls if isinstance(c, dict)] if isinstance(calls, list) else []
        for call in calls:
            conversation.call(call.get("id"), call.get("name"), call.get("args"), at, **about)
        for call in (c for c in calls if c.get("result") is not None):
            ok = call.get("status") not in ("error", "cancelled")
            conversation.result(call.get("id"), _output(call["result"]), at, ok=ok)
        if message.get("thoughts"):
            conversation.drop("thoughts", len(message["thoughts"]) if isinstance(message["thoughts"], list) else 1)
    else:
        conversation.drop(f"{text_of(kind) or 'unknown'} records")


def _parts(conversation: Conversation, content: Any) -> list[Json]:
    found = []
    for part in content if isinstance(content, list) else [content]:
        inline = part.get("inlineData") if isinstance(part, dict) else None
        if isinstance(inline, dict) and (picture := image(inline.get("mimeType"), inline.get("data"))):
            found.append(picture)
        elif isinstance(part, str) or (isinstance(part, dict) and isinstance(part.get("text"), str)):
            found.append(text_part(told(part)))
        elif part is not None:
            conversation.drop("unknown parts")
    return found


def _output(result: Any) -> str:
    """The output inside `functionResponse` parts, as text."""
    outputs = []
    for part in result if isinstance(result, list) else [result]:
        answer = part.get("functionResponse") if isinstance(part, dict) else None
        response = answer.get("response") if isinstance(answer, dict) else part
        outputs.append(told(response))
    return "\n".join(filter(None, outputs))
