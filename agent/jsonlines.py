"""What a run looks like to programs: the event stream that tools for Claude's `stream-json` already parse.

`system/init` is the first line once a session is open, and `result` the last whatever happens: an error, a limit, a
signal. Every line is one
JSON object with `type`, `seq` and `session_id`; what is ours stands beside the fields those tools know, never instead.
"""

from __future__ import annotations

import time
from typing import Any

import orjson

from agent.errors import AgentError, Exit
from agent.events import (
    Answered,
    Budget,
    Compacted,
    Compacting,
    Event,
    NotCompacted,
    Notice,
    SessionOpened,
    Streamed,
    ToolFinished,
    TurnFinished,
    Waiting,
)
from agent.lines import budget_line, compacting_line, folded_messages, not_compacted_line, visible, waiting_line
from agent.messages import Usage, text_of, tool_calls
from agent.render import Output

# ---- lines, pure ----


def encode_line(line: dict[str, Any]) -> bytes:
    """One JSON line; lone surrogates, which are not UTF-8, become question marks."""
    try:
        return orjson.dumps(line) + b"\n"
    except orjson.JSONEncodeError:
        import json

        text = json.dumps(line, ensure_ascii=False)
        return text.encode("utf-8", "replace") + b"\n"


def usage_line(usage: Usage | None) -> dict[str, int]:
    if usage is None:
        return {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 0}
    cached = usage.cached or 0
    return {
        "input_tokens": max(0, usage.prompt - cached),
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion,
    }


def delta_line(event: Streamed) -> dict[str, Any]:
    kind = "thinking" if event.delta.kind == "reasoning" else "text"
    delta = {"type": f"{kind}_delta", kind: event.delta.text}
    return {"type": "stream_event", "event": {"type": "content_block_delta", "index": 0, "delta": delta}}


def answered_line(event: Answered) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    text = text_of(event.message)
    if text:
        content.append({"type": "text", "text": text})
    for call in tool_calls(event.message):
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_of(call.arguments)})
    reasons = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
    message = {
        "id": f"msg_{event.n}",
        "type": "message",
        "role": "assistant",
        "model": event.model,
        "content": content,
        "stop_reason": reasons.get(event.finish_reason or "", event.finish_reason),
        "usage": usage_line(event.usage),
    }
    return {"type": "assistant", "message": message, "parent_tool_use_id": None, "interrupted": not event.complete}


def arguments_of(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return {"_raw": text}


def tool_line(event: ToolFinished) -> dict[str, Any]:
    result = {
        "type": "tool_result",
        "tool_use_id": event.call_id,
        "content": event.text,
        "is_error": not event.ok,
    }
    about = {"name": event.name, "ms": int(1000 * event.seconds), "denied": event.denied, **event.detail}
    message = {"role": "user", "content": [result]}
    return {"type": "user", "message": message, "parent_tool_use_id": None, "tool": about}


def boundary_line(event: Compacted) -> dict[str, Any]:
    record = event.record
    tokens = record.get("tokens", {})
    about = {
        "trigger": "manual" if record.get("reason") == "manual" else "auto",
        "pre_tokens": tokens.get("before"),
        "post_tokens": tokens.get("after_estimate"),
        "strategy": record.get("strategy"),
        "folded": folded_messages(event),
        "kept": record.get("kept"),
        "archive": event.archive,
    }
    return {"type": "system", "subtype": "compact_boundary", "compact_metadata": about}


def notice_line(event: Event) -> dict[str, Any] | None:
    if isinstance(event, Notice):
        level, code, text = event.level, event.code, event.text
    elif isinstance(event, Budget):
        level, code, text = "info", "budget", budget_line(event)
    elif isinstance(event, Compacting):
        level, code, text = "info", "compacting", compacting_line(event)
    elif isinstance(event, NotCompacted):
        level, code, text = "warning", f"compaction_{event.why}", not_compacted_line(event)
    elif isinstance(event, Waiting):
        level, code, text = "info", "waiting", waiting_line(event)
    else:
        return None
    return {"type": "system", "subtype": "notice", "level": level, "code": code, "text": text}


def result_subtype(error: AgentError | None) -> str:
    if error is None:
        return "success"
    if error.exit_code in (Exit.INTERRUPTED, Exit.TIMEOUT, 129, 143):
        return "interrupted"
    if error.kind == "max_steps":
        return "error_max_turns"
    of_context = error.exit_code == Exit.LIMIT and error.kind != "cut_answers"
    return "error_context_overflow" if of_context else "error_during_execution"


def error_line(error: AgentError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {
        "code": error.kind,
        "message": error.text.partition("\n\n")[0],
        "hint": error.hint,
        "retryable": error.exit_code in (Exit.TEMPORARY, Exit.BUSY, Exit.TIMEOUT),
        "status": getattr(error, "status", None),
    }


# ---- effects ----


class JsonLines:
    """The Claude-compatible event stream: `system/init` first once a session is open, one line per event, `result` last whatever happens.

    `partial` adds a `stream_event` for each fragment; `once` prints the result only (`--output-format json`).
    """

    def __init__(self, out: Output, err: Output, *, partial: bool, once: bool, resume: str) -> None:
        self.out, self.err = out, err
        self.partial, self.once, self.resume = partial, once, resume
        self.session: SessionOpened | None = None
        self.sequence = 0
        self.started = time.monotonic()
        self.compactions = 0
        self.held: list[Event] = []

    def emit(self, event: Event) -> None:
        if self.session is None and not isinstance(event, SessionOpened):
            self.held.append(event)  # `init` is the first line: what was said while getting ready comes after it
            return
        line = self._as_line(event)
        if line is not None and not self.once:
            self._write(line)
        held, self.held = self.held, []
        for earlier in held:
            self.emit(earlier)

    def finish(self, turn: TurnFinished | None, error: AgentError | None, code: int) -> None:
        self._write(self._result(turn, error, code))
        if error is not None:
            self.err.write(f"agent: {visible(str(error))}\n".encode())

    def fail(self, error: AgentError) -> None:
        self.finish(None, error, error.exit_code)

    def _write(self, line: dict[str, Any]) -> None:
        head = {"type": line.pop("type"), **({"subtype": line.pop("subtype")} if "subtype" in line else {})}
        line = {**head, "seq": self.sequence, "session_id": self.session.id if self.session else None, **line}
        self.sequence += 1
        self.out.write(encode_line(line))

    def _as_line(self, event: Event) -> dict[str, Any] | None:
        if isinstance(event, SessionOpened):
            self.session = event
            return self._init(event)
        if isinstance(event, Streamed):
            return delta_line(event) if self.partial else None
        if isinstance(event, Answered):
            return answered_line(event)
        if isinstance(event, ToolFinished):
            return tool_line(event)
        if isinstance(event, Compacted):
            self.compactions += 1
            return boundary_line(event)
        return notice_line(event)

    def _init(self, event: SessionOpened) -> dict[str, Any]:
        return {
            "type": "system",
            "subtype": "init",
            "schema": 1,
            "ts": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "cwd": event.cwd,
            "model": event.model,
            "tools": event.tools,
            "mcp_servers": [],
            "permissionMode": "default",
            "resumed": event.resumed,
            "forked_from": event.parent,
            "context_window": event.window,
            "window_source": event.window_source,
            "sandbox": event.sandbox,
            "session_file": event.path,
        }

    def _result(self, turn: TurnFinished | None, error: AgentError | None, code: int) -> dict[str, Any]:
        milliseconds = int(1000 * (time.monotonic() - self.started))
        session = self.session.id if self.session and self.session.path else None
        return {
            "type": "result",
            "subtype": result_subtype(error),
            "is_error": error is not None,
            "result": turn.answer if turn else "",
            "num_turns": turn.steps if turn else 0,
            "duration_ms": milliseconds,
            "duration_api_ms": int(1000 * turn.seconds) if turn else 0,
            "total_cost_usd": turn.cost if turn else None,
            "usage": usage_line(turn.total.plus(turn.summaries) if turn else None),
            "permission_denials": turn.denials if turn else [],
            "stop_reason": turn.finish_reason if turn else None,
            "exit_code": int(code),
            "error": error_line(error),
            "resume": f"{self.resume} -c {session}" if session else None,
            "context": {
                "used": turn.usage.prompt if turn and turn.usage else None,
                "window": turn.window if turn else None,
                "compactions": self.compactions,
            },
        }
