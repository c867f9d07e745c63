"""Reasoning told apart from the answer: tags in the text, parts of a content, details to be sent back.

Every letter comes out once, as text or as reasoning, however the stream cuts it; only space around a tag is lost.

Does not know: events, chunks, where a server puts its reasoning.
"""

from __future__ import annotations

import re
from typing import Any

_THINK = r"\s*<(think|thinking|reasoning)>"


class ThinkTags:
    """Moves a leading <think>...</think> of the content to the reasoning, however it is split. `state` is "start",
    "inside", "trim" (space after the end) and "after", when all that comes is text."""

    def __init__(self) -> None:
        self.state = "start"
        self._buffer = ""
        self._close = ""

    def split(self, text: str) -> list[tuple[str, str]]:
        if self.state == "after":
            return [("text", text)]
        self._buffer += text
        if self.state == "start":
            opened = re.match(_THINK, self._buffer)
            if not opened:
                return [] if _may_open(self._buffer) else self._leave()
            self._close = f"</{opened[1]}>"
            self._buffer = self._buffer[opened.end() :]
            self.state = "inside"
        if self.state == "inside":
            thought, mark, rest = self._buffer.partition(self._close)
            if mark:
                self.state, self._buffer = "trim", rest
                return [(k, v) for k, v in (("reasoning", thought), *self.split("")) if v]
            keep = next((n for n in range(len(self._close) - 1, 0, -1) if thought.endswith(self._close[:n])), 0)
            shown, self._buffer = thought[: len(thought) - keep], thought[len(thought) - keep :]
            return [("reasoning", shown)] if shown else []
        self._buffer = self._buffer.lstrip()
        return self._leave() if self._buffer else []

    def rest(self) -> list[tuple[str, str]]:
        """What is still held when the answer ends."""
        kind = "reasoning" if self.state == "inside" else "text"
        held, self._buffer = self._buffer, ""
        return [(kind, held)] if held else []

    def _leave(self) -> list[tuple[str, str]]:
        self.state = "after"
        return self.rest()


def spoken(text: str) -> str:
    """A whole text without the reasoning that leads it."""
    tags = ThinkTags()
    return "".join(part for kind, part in (*tags.split(text), *tags.rest()) if kind == "text")


def parted(text: str, thought: str) -> tuple[str, str]:
    """Text and reasoning where only the end of the reasoning was marked: the tag that opens it stood in the prompt."""
    begun, mark, rest = text.partition("</think>")
    if (
        thought
        or not mark
        or not begun.strip()
        or "<think>" in begun
        or rest[:1] not in ("", "\n")
        or begun.endswith("`")
    ):
        return text, thought
    return rest.lstrip(), begun.strip()


def _may_open(text: str) -> bool:
    """Whether a text may be the beginning of an opening tag."""
    start = text.lstrip()
    return any(tag.startswith(start) for tag in ("<think>", "<thinking>", "<reasoning>"))


def parts_of(content: Any) -> tuple[str, str]:
    """The text and the reasoning of content that is a list of parts."""
    text, thought = "", ""
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            text += part
        elif isinstance(part, dict):
            inner = part.get("thinking") or part.get("reasoning")
            if inner:
                thought += inner if isinstance(inner, str) else parts_of(inner)[0]
            elif isinstance(part.get("text"), str):
                text += part["text"]
    return text, thought


def detail_text(detail: Any) -> str:
    if not isinstance(detail, dict):
        return ""
    return next((v for k in ("text", "summary") if isinstance(v := detail.get(k), str)), "")


def join_details(kept: list[dict[str, Any]], more: list[Any]) -> None:
    """Add streamed reasoning details: fragments of one block are joined, as they must be sent back whole."""
    for detail in more:
        if not isinstance(detail, dict):
            continue
        last = kept[-1] if kept else {}
        if last.get("type") != detail.get("type") or last.get("index") != detail.get("index"):
            kept.append(dict(detail))
            continue
        for key, value in detail.items():
            grows = key in ("text", "summary", "data") and isinstance(value, str) and isinstance(last.get(key), str)
            last[key] = last[key] + value if grows else value if value is not None else last.get(key)
