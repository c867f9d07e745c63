"""Events of an answer -> fragments to show, and in the end the whole message.

    Assembler.take(event) -> deltas        what can be shown now
    Assembler.fault                        what a server put into a 200 instead of an answer (see `agent.wire.amiss`)
    Assembler.finish() -> Assembled        the message, read only when the answer has ended

Complete means a finish reason, `[DONE]` or its like; everything else was interrupted, and its tool calls are not given
out. The same for an answer cut by a token limit. Reasoning comes from one of its several places, once. No second choice
is ever asked for: where choice 0 comes only it counts, else whichever comes. Usage: the last report wins.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from agent.messages import Delta, Message, Usage
from agent.wire import clean
from agent.wire.amiss import fault_in, says_something, unwrapped
from agent.wire.foreign import Translator
from agent.wire.leaked import CALLED, calls_in
from agent.wire.reasoning import ThinkTags, detail_text, join_details, parted, parts_of, spoken, thought_in
from agent.wire.sse import Event
from agent.wire.toolcalls import CallsBeingWritten
from agent.wire.usage import find_usage

_LENGTH = re.compile(r"length|max_?(?:output|completion|new)?_?tokens|(?:token|output)_?limit|max_output|incomplete")
_WINDOW = re.compile(r"context\w*(?:exceed|length|limit|full)|model_length|error_limit")
"""Finish reasons of an answer that the output limit cut, and of one that the window cut (Mistral, Cohere)."""
_FAILED = {
    "insufficient_system_resource", "network_error", "abort", "aborted", "error", "malformed_function_call",
    "unexpected_tool_call", "failed", "cancelled", "timeout",
}  # fmt: skip
_PLAIN = frozenset("id object created model choices system_fingerprint service_tier obfuscation provider usage".split())
_PLAIN_CHOICE = frozenset("index delta finish_reason native_finish_reason stop_reason logprobs token_ids".split())
"""What a chunk, and its one choice, may hold where nothing but text is in it. Anything else takes the long way."""
_REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking", "thought")


class Assembled(NamedTuple):
    """A whole answer. `failed` when the server ended it with a reason that means an error; `overflowed` when it ran
    into the window; `cut_calls` counts calls that must not run."""

    message: Message
    finish_reason: str | None
    usage: Usage | None
    model: str
    complete: bool
    truncated: bool
    failed: bool
    overflowed: bool
    cut_calls: int

    @property
    def empty(self) -> bool:
        """Neither text nor calls: reasoning alone is no answer."""
        return not (self.message.get("content") or self.message.get("tool_calls"))


class Assembler:
    """Takes events in order; see the module.

    `started`: something was shown or a call was begun, so a retry would show it twice. `ended`: a finish reason or an
    end mark was seen; `done`: nothing more can follow. `fault`: what the server said went wrong, or None; `aside`: what
    it said that is no part of an answer, which stands for one where none comes.
    """

    def __init__(self) -> None:
        self.started = self.ended = self.done = False
        self.fault: Any = None
        self.aside: Any = None
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.model = ""
        self._text: list[str] = []
        self._thought: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._calls = CallsBeingWritten()
        self._called_in = ""
        self._translator = Translator()
        self._think = ThinkTags()
        self._held: dict[str, str] = {}
        self._first = False
        self._messages: dict[str, str] | None = None

    @property
    def answering(self) -> bool:
        """Whether text was shown or a call begun: reasoning alone answers nothing."""
        return any(self._text) or self.calling

    @property
    def whole(self) -> bool:
        """Whether the answer stands in messages and not in deltas."""
        return self._messages is not None

    @property
    def _failed(self) -> bool:
        """Whether the finish reason means an error."""
        return (self.finish_reason or "").lower() in _FAILED

    @property
    def calling(self) -> bool:
        """Whether a tool call was begun."""
        return len(self._calls) > 0

    def take(self, event: Event) -> list[Delta]:
        """Read one event; the fragments it adds."""
        shown = self._read(event)
        if event.name.lower() in ("[done]", "done"):
            self.ended = self.done = True
        return shown

    def _read(self, event: Event) -> list[Delta]:
        found = fault_in(event)
        if found is not None:
            if not self.ended or self._failed:
                self.fault = self.fault or found
            return []
        value = event.value
        if not isinstance(value, dict):
            return []
        value = unwrapped(value)
        chunks = [] if "choices" in value else self._translator.translate(value)
        if not chunks and not value.get("choices") and says_something(value):
            self.aside = value
        return [delta for chunk in chunks or [value] for delta in self._chunk(chunk)]

    def finish(self) -> Assembled:
        """The answer as far as it came."""
        self._flush()
        text, thought = parted(clean("".join(self._text)), clean("".join(self._thought)))
        reason = self.finish_reason
        word = (reason or "").lower()
        overflowed = bool(_WINDOW.search(word))
        failed = self._failed
        complete = self.ended and not failed and self.fault is None
        calls = self._calls.finish()
        if complete and word in CALLED and not calls:
            text, calls = calls_in(text)
        truncated = complete and (overflowed or bool(_LENGTH.search(word)))
        cut = len(self._calls) if not complete or truncated else 0
        if not complete:
            calls = []
        message: Message = {"role": "assistant", "content": text or (None if calls else "")}
        if thought:
            message["reasoning_content"] = thought
        if self._details:
            message["reasoning_details"] = self._details
        if calls:
            message["tool_calls"] = calls
        return Assembled(message, reason, self.usage, self.model, complete, truncated, failed, overflowed, cut)

    def plain(self, value: Any) -> str:
        """The short way for what nearly every event is: one piece of text and nothing else. "" for all others, which are
        then `take`'s to read."""
        if type(value) is not dict or not _PLAIN.issuperset(value) or self._think.state != "after":
            return ""
        try:
            [choice] = value["choices"]
            delta = choice["delta"]
            content = delta["content"]
        except (KeyError, TypeError, ValueError):
            return ""
        if not _PLAIN_CHOICE.issuperset(choice) or (len(delta) != 1 and not (len(delta) == 2 and "role" in delta)):
            return ""
        if choice.get("finish_reason") or choice.get("stop_reason") or choice.get("index") not in (0, None):
            return ""
        if value.get("usage") or self._held or not (self.model or "model" not in value):
            return ""
        if type(content) is not str or not (content.isascii() or content.isprintable()):
            return ""
        self._text.append(content)
        self._first = True
        return content

    def _chunk(self, chunk: dict[str, Any]) -> list[Delta]:
        if chunk.get("restart"):
            self._restart()
            return []
        if chunk.get("done") is True:
            self.ended = self.done = True
            return []
        usage = find_usage(chunk)
        self.usage = usage or self.usage
        if not self.model and isinstance(chunk.get("model"), str):
            self.model = chunk["model"]
        listed = chunk.get("choices")
        choices = [choice for choice in listed if isinstance(choice, dict)] if isinstance(listed, list) else []
        chosen = self._first_of(choices)
        shown = self._choice(chosen) if chosen is not None else []
        for other in choices:
            if other is not chosen:
                self._call("other", _dict(other.get("message")))  # text and calls parted (Copilot)
        self.started = self.started or bool(shown) or self.calling
        return shown

    def _first_of(self, choices: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The choice that is read: the one of index 0; until there was one, the first at all."""
        for choice in choices:
            if choice.get("index") in (0, None, "0"):
                self._first = True
                return choice
        return choices[0] if choices and not self._first else None

    def _choice(self, choice: dict[str, Any]) -> list[Delta]:
        delta, message = _dict(choice.get("delta")), _dict(choice.get("message"))
        shown = []
        if message and not any(value for key, value in delta.items() if key != "role"):
            shown = self._delta(self._news(message))
        elif not delta and isinstance(choice.get("text"), str):
            shown = self._delta({"content": choice["text"]})
        else:
            shown = self._delta(delta)
        for place, holder in (("delta", delta), ("message", message), ("choice", choice)):
            self._call(place, holder)
        reason = choice.get("finish_reason") or choice.get("stop_reason") or choice.get("finishReason")
        if isinstance(reason, str) and reason not in ("", "null"):
            self.finish_reason = reason
            self.ended = True
        return shown

    def _news(self, message: dict[str, Any]) -> dict[str, Any]:
        """What a whole `message` adds. Fragments may stand there, as may all that came so far (DashScope); after deltas
        only the kind of text counts of which none came."""
        if self._messages is None and self.started:
            return self._left(message)
        self._messages = self._messages or {}
        news = dict(message)
        for key in ("content", *_REASONING):
            if isinstance(text := message.get(key), str):
                before = self._messages.get(key, "")
                news[key] = text.removeprefix(before)
                self._messages[key] = before + news[key]
        return news

    def _left(self, message: dict[str, Any]) -> dict[str, Any]:
        """What deltas left to a last `message`: the text, the reasoning."""
        reasoned = self._thought or self._details
        left = {} if reasoned else {key: message.get(key) for key in (*_REASONING, "reasoning_details")}
        if any(self._text):
            return left
        content = message.get("content")
        if self._thought and isinstance(content, str):
            content = spoken(content)
        if content:
            self._think = ThinkTags()
        return {**left, "content": content, "refusal": message.get("refusal")}

    def _call(self, place: str, holder: dict[str, Any]) -> None:
        """Take the calls that stand in one place of a choice. The place of the first one counts; others repeat it."""
        if self._called_in not in ("", place):
            return
        if holder.get("tool_calls"):
            self._calls.add(holder["tool_calls"])
        if isinstance(holder.get("function_call"), dict):
            self._calls.add({"index": 0, "function": holder["function_call"]})
        if self.calling:
            self._called_in = place

    def _delta(self, delta: dict[str, Any]) -> list[Delta]:
        """Take what a delta says."""
        shown = []
        details = delta.get("reasoning_details")
        thought = next(filter(None, (thought_in(delta.get(key)) for key in _REASONING)), "")
        if isinstance(details, list):
            join_details(self._details, details)
            thought = thought or "".join(detail_text(d) for d in details)
        content = delta.get("content")
        if isinstance(content, (list, dict)):
            content, inner = parts_of(content)
            thought = thought or inner
        text = content or delta.get("refusal")
        if thought:
            shown += self._show("reasoning", thought)
        if isinstance(text, str) and text:
            for kind, part in self._think.split(text):
                shown += self._show(kind, part)
        return shown

    def _show(self, kind: str, text: str) -> list[Delta]:
        """Keep a fragment and give it out; half a surrogate pair waits for its other half."""
        text = self._held.pop(kind, "") + text
        if "\ud800" <= text[-1] <= "\udbff":
            self._held[kind], text = text[-1], text[:-1]
        if not text:
            return []
        text = clean(text)
        (self._text if kind == "text" else self._thought).append(text)
        return [Delta(kind, text)]

    def _flush(self) -> None:
        """What was held back, as it is."""
        for kind, part in self._think.rest():
            self._show(kind, part)
        for kind, text in self._held.items():
            (self._text if kind == "text" else self._thought).append(clean(text))
        self._held = {}

    def _restart(self) -> None:
        """The server began anew: what came before is void."""
        self._text, self._thought, self._details = [], [], []
        self._calls, self._think, self._held = CallsBeingWritten(), ThinkTags(), {}
        self.ended, self.finish_reason, self._messages, self._called_in = False, None, None, ""


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
