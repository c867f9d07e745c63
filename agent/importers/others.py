"""aider, Gemini CLI and Copilot CLI: three small formats.

    aider    `.aider.chat.history.md`, in the directory it ran in: lines that start with "#### " are the person's, "> " the program's, the rest is
             the answer; "# aider chat started at TIME" begins a run. All runs of a file are one conversation, as
             `aider --restore-chat-history` has it.
    gemini   a header {sessionId, projectHash, ...}, then records {id, type: user|gemini, content, toolCalls} and
             patches {"$set": {...}}, of which a list of messages replaces all before; or one object with "messages".
    copilot  `events.jsonl`: {type, data, id, timestamp}; calls stand in `assistant.message`, results in
             `tool.execution_complete`.

Left out: what the programs said of themselves, thoughts, permissions, usage.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from agent.importers.conversation import Conversation, Json, image, local_moment, text_of, text_part, told
from agent.importers.source import Source

AIDER_NAME = ".aider.chat.history.md"
AIDER_START = "# aider chat started at "
_STARTED = re.compile(re.escape(AIDER_START) + r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


# ---- aider ----


def read_aider(source: Source) -> Iterator[Conversation]:
    """The one conversation of a history file."""
    conversation = Conversation("aider", cwd=os.path.dirname(os.path.abspath(source.path)))
    at, who, said = "", "", list[str]()
    for line in source.text().split("\n"):
        started = _STARTED.match(line)
        speaker = "start" if started else _speaker(line, who)
        if speaker != who:
            _aider_said(conversation, who, said, at)
            who, said = speaker, []
        if started:
            at = local_moment(started[1])
            conversation.started = conversation.started or at
        said.append(line[5:] if speaker == "user" else line)
    _aider_said(conversation, who, said, at)
    yield conversation.finish()


def _speaker(line: str, before: str) -> str:
    """Whose line this is. An empty line belongs to whoever spoke."""
    if line.startswith("#### ") or line.rstrip() == "####":
        return "user"
    if line.startswith(">"):
        return "program"
    return before if not line.strip() else "answer"


def _aider_said(conversation: Conversation, who: str, said: list[str], at: str) -> None:
    text = "\n".join(said).strip("\n\r ")
    if who == "user":
        conversation.user(text, at)
    elif who == "answer":
        conversation.assistant(text, at)
    elif who == "program" and text:
        conversation.drop("lines of the program", len(text.split("\n")))


# ---- gemini ----


def is_gemini(record: Json) -> bool:
    return isinstance(record.get("sessionId"), str) and "projectHash" in record


def read_gemini(source: Source) -> Iterator[Conversation]:
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
        _gemini_message(conversation, message, first=number == 0)
    yield conversation.finish()


def _by_id(messages: list[Any]) -> dict[str, Json]:
    """In order; a message that comes again under its id takes the place of the first."""
    return {text_of(m.get("id")) or str(i): m for i, m in enumerate(messages) if isinstance(m, dict)}


def _gemini_message(conversation: Conversation, message: Json, *, first: bool) -> None:
    kind, at = message.get("type"), message.get("timestamp")
    parts = _gemini_parts(conversation, message.get("content"))
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
            conversation.result(call.get("id"), _gemini_result(call["result"]), at, ok=ok)
        if message.get("thoughts"):
            conversation.drop("thoughts", len(message["thoughts"]) if isinstance(message["thoughts"], list) else 1)
    else:
        conversation.drop(f"{text_of(kind) or 'unknown'} records")


def _gemini_parts(conversation: Conversation, content: Any) -> list[Json]:
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


def _gemini_result(result: Any) -> str:
    """The output inside `functionResponse` parts, as text."""
    outputs = []
    for part in result if isinstance(result, list) else [result]:
        answer = part.get("functionResponse") if isinstance(part, dict) else None
        response = answer.get("response") if isinstance(answer, dict) else part
        outputs.append(told(response))
    return "\n".join(filter(None, outputs))


# ---- copilot ----


def is_copilot(record: Json) -> bool:
    return isinstance(record.get("data"), dict) and str(record.get("type")).split(".")[0] in (
        "session", "user", "assistant", "tool", "permission", "system", "abort"
    )  # fmt: skip


def read_copilot(source: Source) -> Iterator[Conversation]:
    """The one conversation of an event log."""
    conversation = Conversation("copilot")
    for record in source.records(conversation):
        data = record.get("data")
        if isinstance(data, dict):
            _copilot_event(conversation, text_of(record.get("type")), data, record.get("timestamp"))
        else:
            conversation.drop("unreadable lines")
    yield conversation.finish()


def _copilot_event(conversation: Conversation, kind: str, data: Json, at: Any) -> None:
    if kind == "session.start":
        context = data.get("context")
        conversation.id, conversation.started = text_of(data.get("sessionId")), text_of(data.get("startTime"))
        conversation.cwd = text_of(context.get("cwd")) if isinstance(context, dict) else ""
        conversation.model = text_of(data.get("selectedModel"))
    elif kind == "user.message":
        conversation.user(text_of(data.get("content")), at)
    elif kind == "assistant.message" and not data.get("parentToolCallId"):
        conversation.model = text_of(data.get("model")) or conversation.model
        about: dict[str, Any] = {"model": conversation.model, "key": data.get("messageId") or id(data)}
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
