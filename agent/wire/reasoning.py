"""Reasoning told apart from the answer: tags in the text, parts of a content, details to be sent back.

Every letter comes out once, as text or as reasoning, however the stream cuts it; only space around a tag is lost.

Does not know: events, chunks, where a server puts its reasoning.
"""

from __future__ import annotations

from typing import Any

_CHANNEL_ENDS = ("<|end|>", "<|start|>assistant", "<|channel|>")
_TAGS: dict[str, tuple[str, ...]] = {
    **{f"<{word}>": (f"</{word}>",) for word in ("think", "thinking", "reasoning", "thought")},
    "◁think▷": ("◁/think▷",),  # Kimi
    "[THINK]": ("[/THINK]",),  # Magistral
    "<seed:think>": ("</seed:think>",),
    "<|START_THINKING|>": ("<|END_THINKING|>", "<|START_RESPONSE|>"),  # Command A
    "<|START_RESPONSE|>": (),
    "<|channel>thought": ("<channel|>",),  # Gemma
    **{
        f"{start}<|channel|>{channel}<|message|>": () if channel == "final" else _CHANNEL_ENDS  # gpt-oss
        for start in ("", "<|start|>assistant")
        for channel in ("analysis", "commentary", "final")
    },
}
"""What opens reasoning at the beginning of a text, and what ends it. Of several ends the first is dropped, the others begin
what follows, which may be reasoning again; without any the answer begins there."""
_THOUGHTS = ("thinking", "reasoning", "thought")
"""Types of the parts of a content that are reasoning, wherever they have their text."""
_DEEPEST = 9


class ThinkTags:
    """Moves the leading reasoning of the content, <think>...</think> and its like, to where it belongs, however it is
    split. `state` is "start", "inside", "trim" (space after the end) and "after", when all that comes is text."""

    def __init__(self) -> None:
        self.state = "start"
        self._buffer = ""
        self._ends: tuple[str, ...] = ()

    def split(self, text: str) -> list[tuple[str, str]]:
        if self.state == "after":
            return [("text", text)]
        self._buffer += text
        found: list[tuple[str, str]] = []
        state = ""
        while state != self.state:
            state = self.state
            found += self._opened() if state == "start" else self._thought() if state == "inside" else self._trimmed()
        return found

    def rest(self) -> list[tuple[str, str]]:
        """What is still held when the answer ends."""
        kind = "reasoning" if self.state == "inside" else "text"
        held, self._buffer = self._buffer, ""
        return [(kind, held)] if held else []

    def _opened(self) -> list[tuple[str, str]]:
        """Look for an opening tag; what cannot become one any more is text."""
        start = self._buffer.lstrip()
        opening = next((tag for tag in _TAGS if start.startswith(tag)), "")
        if opening:
            self._ends, self._buffer = _TAGS[opening], start[len(opening) :]
            self.state = "inside" if self._ends else "trim"
            return []
        return [] if any(tag.startswith(start) for tag in _TAGS) else self._leave()

    def _thought(self) -> list[tuple[str, str]]:
        """Reasoning up to its end, or as far as it surely goes."""
        at, end = min(((at, end) for end in self._ends if (at := self._buffer.find(end)) >= 0), default=(-1, ""))
        thought = self._buffer[:at]
        if end:
            self._buffer = self._buffer[at + len(end) * (end == self._ends[0]) :]
            self.state = "trim" if len(self._ends) == 1 else "start"
        else:
            held = max(n for end in self._ends for n in range(len(end)) if self._buffer.endswith(end[:n]))
            keep = len(self._buffer) - held
            thought, self._buffer = self._buffer[:keep], self._buffer[keep:]
        return [("reasoning", thought)] if thought else []

    def _trimmed(self) -> list[tuple[str, str]]:
        self._buffer = self._buffer.lstrip()
        return self._leave() if self._buffer else []

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


def parts_of(content: Any) -> tuple[str, str]:
    """The text and the reasoning of content that is a list of parts."""
    text, thought = "", ""
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            text += part
        elif isinstance(part, dict):
            if part.get("type") in _THOUGHTS:
                thought += thought_in(part)
            elif inner := thought_in(part.get("thinking")) or thought_in(part.get("reasoning")):
                thought += inner
            elif isinstance(part.get("text"), str):
                text += part["text"]
    return text, thought


def thought_in(value: Any, depth: int = 0) -> str:
    """The text of reasoning that is a text, an object that holds one, or a list of such."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and depth < _DEEPEST:
        return "".join(thought_in(part, depth + 1) for part in value)
    if isinstance(value, dict) and depth < _DEEPEST:
        places = [value.get(key) for key in ("text", "thinking", "reasoning", "content")]
        summary = value.get("summary")  # as text it is a setting
        places.append(summary if isinstance(summary, list) else None)
        return next(filter(None, (thought_in(place, depth + 1) for place in places)), "")
    return ""


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
