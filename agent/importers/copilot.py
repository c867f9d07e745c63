"""Copilot CLI's event log: `events.jsonl`, {type, data, id, timestamp} a line.

Calls stand in `assistant.message`, results in `tool.execution_complete`. What the log says about the run itself
(permissions, usage, turns) is left out, and so are a sub-agent's messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent.importers.conversation import Conversation, Json, text_of, told
from agent.importers.source import Source


def is_copilot(record: Json) -> bool:
    return isinstance(record.get("data"), dict) and str(record.get("type")).split(".")[0] in (
        "session", "user", "assistant", "tool", "permission", "system", "abort"
    )  # fmt: skip


def read(source: Source) -> Iterator[Conversation]:
    """The one conversation of an event log."""
    conversation = Conversation("copilot")
    for record in source.records(conversation):
        data = record.get("data")
        if isinstance(data, dict):
            _event(conversation, text_of(record.get("type")), data, record.get("timestamp"))
        else:
            conversation.drop("unreadable lines")
    yield conversation.finish()


def _event(conversation: Conversation, kind: str, data: Json, at: Any) -> None:
    if kind == "session.start":
        context = data.get("context")
        conversation.id, conversation.started = text_of(data.get("sessionId")), text_of(data.get("startTime"))
        conversation.cwd = text_of(context.get("cwd")) if isinstance(context, dict) else ""
        conversation.model = text_of(data.get("selectedModel"))
    elif kind == "user.message":
        conversation.user(text_of(data.get("content")), at)
    elif kind == "assistant.message" and not data.get("parentToolCallId"):
        conversation.model = text_of(data.get("model")) or conversation.model
        about: dict[str, Any] = {"model": conversation.model, "key": data.get("messageId") or object()}
        conversation.assistant(text_of(data.get("content")), at, **about)
        requests = data.get("toolRequests")
        for call in requests if isinstance(requests, list) else []:
            if isinstance(call, dict):
                conversation.call(call.get("toolCallId"), call.get("name"), call.get("arguments"), at, **about)
    elif kind == "tool.execution_complete":
        outcome = data.get("result") if data.get("success") else data.get("error") or data.get("result")
        text = outcome.get("message") if isinstance(outcome, dict) and "message" in outcome else outcome
        conversation.result(data.get("toolCallId"), told(text), at, ok=bool(data.get("success")))
    elif kind == "abort":
        conversation.notices.append("a turn of it was interrupted")
    else:
        conversation.drop("events about the run")
