"""Answers in another API's events, told as chat-completion chunks.

Proxies and local servers sometimes answer in the form of the model behind them: Anthropic messages, OpenAI responses,
Gemini, Cohere, Bedrock converse, Ollama. Each event becomes at most a few chunks of the form
`{"choices": [{"delta": ..., "finish_reason": ...}], "usage": ...}`; `{"restart": true}` drops what came before, and
`{"done": true}` stands for `[DONE]`. Only the form is translated: finish reasons keep their own words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

Chunk = dict[str, Any]


class Translator:
    """Keeps what an event form spreads over several events: block kinds, the input half of a usage."""

    def __init__(self) -> None:
        self._message_id: Any = None
        self._usage: dict[str, Any] = {}
        self._whole: dict[int, Any] = {}
        self._written: dict[int, str] = {}

    def translate(self, event: dict[str, Any]) -> list[Chunk]:
        """The chunks of one event; [] for one that says nothing or is not known."""
        kind = event.get("type") or event.get("event_type")
        kind = kind if isinstance(kind, str) else ""
        if kind in _NAMED:
            return _NAMED[kind](self, event)
        for mark, read in _MARKED.items():
            if mark in event:
                return read(self, event)
        return []

    # Anthropic

    def _message_start(self, event: dict[str, Any]) -> list[Chunk]:
        message = _dict(event.get("message"))
        known, self._message_id = self._message_id, message.get("id")
        if known is not None and known == self._message_id:
            return []
        self._usage = dict(_dict(message.get("usage")))
        self._whole, self._written = {}, {}
        return [{"restart": True}] if known is not None else []

    def _block_start(self, event: dict[str, Any]) -> list[Chunk]:
        block, at = _dict(event.get("content_block")), _index(event)
        if block.get("type") == "tool_use":
            self._whole[at] = block.get("input")
            self._written[at] = ""
            return [_call(at, block.get("id"), block.get("name"), "")]
        return _told(block)

    def _block_delta(self, event: dict[str, Any]) -> list[Chunk]:
        delta, at = _dict(event.get("delta")), _index(event)
        if isinstance(delta.get("partial_json"), str):
            self._written[at] = self._written.get(at, "") + delta["partial_json"]
            return [_call(at, None, None, delta["partial_json"])]
        return _told(delta)

    def _block_stop(self, event: dict[str, Any]) -> list[Chunk]:
        at = _index(event)
        whole = self._whole.pop(at, None)
        return [_call(at, None, None, orjson.dumps(whole).decode())] if whole and not self._written.get(at) else []

    def _message_delta(self, event: dict[str, Any]) -> list[Chunk]:
        self._usage |= {k: v for k, v in _dict(event.get("usage")).items() if v is not None}
        return [_chunk({}, _dict(event.get("delta")).get("stop_reason"), usage=dict(self._usage))]

    def _message(self, event: dict[str, Any]) -> list[Chunk]:
        chunks: list[Chunk] = []
        for at, block in enumerate(_dicts(event.get("content"))):
            if block.get("type") == "tool_use":
                chunks.append(_call(at, block.get("id"), block.get("name"), block.get("input")))
            else:
                chunks += _told(block)
        return [*chunks, _chunk({}, event.get("stop_reason"), usage=event.get("usage"))]

    # OpenAI responses

    def _text_delta(self, event: dict[str, Any]) -> list[Chunk]:
        return [_chunk({"content": event.get("delta")})]

    def _reasoning_delta(self, event: dict[str, Any]) -> list[Chunk]:
        return [_chunk({"reasoning_content": event.get("delta")})]

    def _item(self, event: dict[str, Any]) -> list[Chunk]:
        item, at = _dict(event.get("item")), _index(event)
        if item.get("type") != "function_call":
            return []
        chunks = []
        if at not in self._written:
            self._written[at] = ""
            chunks.append(_call(at, item.get("call_id"), item.get("name"), ""))
        return chunks + self._rest_of(at, item.get("arguments"))

    def _arguments_delta(self, event: dict[str, Any]) -> list[Chunk]:
        return self._rest_of(_index(event), None, _text(event.get("delta")))

    def _rest_of(self, at: int, whole: Any, more: str = "") -> list[Chunk]:
        """A fragment of arguments; or, of arguments stated whole, what had not come yet."""
        written = self._written.get(at, "")
        if isinstance(whole, str) and whole.startswith(written):
            more = whole[len(written) :]
        self._written[at] = written + more
        return [_call(at, None, None, more)] if more else []

    def _response(self, event: dict[str, Any]) -> list[Chunk]:
        response = event["response"] if isinstance(event.get("response"), dict) else event
        chunks: list[Chunk] = []
        if event is response:  # not a stream: the output stands here and nowhere else
            for at, item in enumerate(_dicts(response.get("output"))):
                chunks += self._item({"item": item, "output_index": at})
                chunks += [c for part in _dicts(item.get("content")) for c in _told(part)]
        reason = _dict(response.get("incomplete_details")).get("reason") or response.get("status")
        return [*chunks, _chunk({}, reason, usage=response.get("usage"))]

    # Cohere

    def _cohere(self, event: dict[str, Any]) -> list[Chunk]:
        delta, kind = _dict(event.get("delta")), event["type"]
        message = _dict(delta.get("message"))
        if kind == "message-end":
            return [_chunk({}, delta.get("finish_reason"), usage=delta.get("usage"))]
        call = message.get("tool_calls")
        if isinstance(call, dict):
            function = _dict(call.get("function"))
            return [_call(_index(event), call.get("id"), function.get("name"), function.get("arguments"))]
        return _told(_dict(message.get("content"))) if kind.startswith("content") else []

    # Bedrock converse

    def _bedrock(self, event: dict[str, Any]) -> list[Chunk]:
        for key in ("contentBlockStart", "contentBlockDelta"):
            block = _dict(event.get(key))
            inner = _dict(block.get("start") or block.get("delta"))
            tool = _dict(inner.get("toolUse"))
            if tool:
                at = _index({"index": block.get("contentBlockIndex")})
                return [_call(at, tool.get("toolUseId"), tool.get("name"), tool.get("input"))]
            if "reasoningContent" in inner:
                return [_chunk({"reasoning_content": _dict(inner["reasoningContent"]).get("text")})]
            if "text" in inner:
                return [_chunk({"content": inner["text"]})]
        if "messageStop" in event:
            return [_chunk({}, _dict(event["messageStop"]).get("stopReason"))]
        return [_chunk({}, usage=_dict(event.get("metadata")).get("usage"))]

    # Gemini

    def _gemini(self, event: dict[str, Any]) -> list[Chunk]:
        candidates = _dicts(event.get("candidates"))
        candidate = candidates[0] if candidates else {}
        chunks: list[Chunk] = []
        for part in _dicts(_dict(candidate.get("content")).get("parts")):
            call = part.get("functionCall")
            if isinstance(call, dict):
                made = _call(len(self._written), call.get("id"), call.get("name"), call.get("args") or {})
                self._written[len(self._written)] = ""
                if isinstance(part.get("thoughtSignature"), str):
                    signed = {"google": {"thought_signature": part["thoughtSignature"]}}
                    made["choices"][0]["delta"]["tool_calls"][0]["extra_content"] = signed
                chunks.append(made)
            elif part.get("text"):
                chunks.append(_chunk({"reasoning_content" if part.get("thought") else "content": part["text"]}))
        finish = candidate.get("finishReason") or _dict(event.get("promptFeedback")).get("blockReason")
        return [*chunks, _chunk({}, finish, usageMetadata=event.get("usageMetadata"))]

    # Ollama

    def _ollama(self, event: dict[str, Any]) -> list[Chunk]:
        message = _dict(event.get("message"))
        delta: dict[str, Any] = {"content": message.get("content") or event.get("response")}
        if message.get("thinking"):
            delta["reasoning_content"] = message["thinking"]
        if message.get("tool_calls"):
            delta["tool_calls"] = message["tool_calls"]
        finish = (event.get("done_reason") or "stop") if event["done"] is True else None
        counts = {k: event[k] for k in ("prompt_eval_count", "eval_count") if k in event}
        return [_chunk(delta, finish, usage=counts or None)]


Read = Callable[[Translator, dict[str, Any]], list[Chunk]]
_T = Translator
_NAMED: dict[str, Read] = {
    "message_start": _T._message_start,
    "content_block_start": _T._block_start,
    "content_block_delta": _T._block_delta,
    "content_block_stop": _T._block_stop,
    "message_delta": _T._message_delta,
    "message_stop": lambda self, event: [{"done": True}],
    "message": _T._message,
    "response.output_text.delta": _T._text_delta,
    "response.refusal.delta": _T._text_delta,
    "response.reasoning_text.delta": _T._reasoning_delta,
    "response.reasoning_summary_text.delta": _T._reasoning_delta,
    "response.output_item.added": _T._item,
    "response.output_item.done": _T._item,
    "response.function_call_arguments.delta": _T._arguments_delta,
    "response.completed": _T._response,
    "response.incomplete": _T._response,
    "content-delta": _T._cohere,
    "content-start": _T._cohere,
    "tool-call-start": _T._cohere,
    "tool-call-delta": _T._cohere,
    "message-end": _T._cohere,
}
_MARKED: dict[str, Read] = {
    "candidates": _T._gemini,
    "usageMetadata": _T._gemini,
    "promptFeedback": _T._gemini,
    "contentBlockStart": _T._bedrock,
    "contentBlockDelta": _T._bedrock,
    "messageStop": _T._bedrock,
    "metadata": _T._bedrock,
    "done": _T._ollama,
    "output": _T._response,
}


def _chunk(delta: dict[str, Any], finish: Any = None, **more: Any) -> Chunk:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def _call(at: int, call_id: Any, name: Any, arguments: Any) -> Chunk:
    function = {"name": name, "arguments": arguments}
    return _chunk({"tool_calls": [{"index": at, "id": call_id, "function": function}]})


def _told(block: dict[str, Any]) -> list[Chunk]:
    """The text or the reasoning of a content block, or of a delta of one."""
    if isinstance(block.get("thinking"), str):
        return [_chunk({"reasoning_content": block["thinking"]})]
    text = block.get("text") or block.get("refusal")
    return [_chunk({"content": text})] if isinstance(text, str) and text else []


def _index(event: dict[str, Any]) -> int:
    found = event.get("index", event.get("output_index"))
    return found if isinstance(found, int) else 0


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
