"""Builders for session tests: messages, turns, compactions, and a life with some of each."""

from __future__ import annotations

from typing import Any

from agent.session import Session
from agent.wire import digest, prepare_for_wire

Entry = dict[str, Any]


def user(text: str, **more: Any) -> Entry:
    return {"type": "message", "message": {"role": "user", "content": text}, **more}


def answer(text: str, **more: Any) -> Entry:
    return {"type": "message", "message": {"role": "assistant", "content": text}, **more}


def call(*ids: str, name: str = "read_file") -> Entry:
    calls = [{"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}} for id in ids]
    return {"type": "message", "message": {"role": "assistant", "content": None, "tool_calls": calls}}


def result(id: str, text: str = "done") -> Entry:
    return {"type": "message", "message": {"role": "tool", "tool_call_id": id, "content": text}}


def ask(session: Session, prompt: str, reply: str = "") -> None:
    """One turn as the loop writes it: the prompt, then the answer with the proof of what was sent."""
    session.append(user(prompt))
    sent = prepare_for_wire(session.view())
    request = {"k": session.next_request(), "sha256": digest(sent), "messages": len(sent)}
    usage = {"prompt_tokens": 100, "completion_tokens": 7}
    session.append(answer(reply or f"re: {prompt}", request=request, model="m", usage=usage, finish_reason="stop"))


def compact(session: Session, keep: int = 2) -> str:
    """Fold all but the system message and the last `keep` messages into a summary; the archive's name."""
    record = {"type": "compaction", "n": session.new_n(), "at": "2026-01-01T00:00:00.000Z", "reason": "manual"}
    record |= {"strategy": "window_plus_summary", "kept": keep, "tokens": {"before": 900, "after_estimate": 90}}
    summary = user("a summary", n=session.new_n(), at="2026-01-01T00:00:00.000Z", summary=True)
    messages = [e for e in session.entries if e["type"] == "message"]
    system = [e for e in messages if e["message"]["role"] == "system"]
    record["folded"] = [messages[0]["n"], messages[-keep - 1]["n"]]
    return session.rewrite([record, *system, summary, *messages[len(messages) - keep :]])


def prune(session: Session, n: int) -> str:
    """Shorten message `n` in place, as the "pruned" step of a compaction does."""
    record = {"type": "compaction", "n": session.new_n(), "at": "2026-01-01T00:00:00.000Z", "strategy": "pruned"}
    stubbed = [
        e | {"message": e["message"] | {"content": f"[{n} was shortened]"}, "pruned": True} if e.get("n") == n else e
        for e in session.entries
    ]
    return session.rewrite([record, *(e for e in stubbed if e["type"] != "compaction")])


def texts(session: Session) -> list[str]:
    """What the model would see, one string a message."""
    return [str(m["content"]) for m in session.view()]


META: Entry = {"cwd": "/work", "model": "m"}
