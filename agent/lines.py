"""What happened, in a line each: for people as it is, for programs inside of a notice.

Nothing here writes. What a terminal would act on is written out, whoever it is from.
"""

from __future__ import annotations

import os
import re
from typing import Any

from agent.events import Budget, Compacted, Compacting, NotCompacted, ToolFinished, TurnFinished, Waiting

_ACTS_ON_TERMINAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` with every control character except newline and tab written out: ESC becomes `^[`, U+202E `<U+202E>`."""
    if text.isprintable():  # the everyday fragment: no search
        return text

    def written(found: re.Match[str]) -> str:
        character = found.group()
        code = ord(character)
        return f"^{chr(code ^ 64)}" if code < 32 or code == 127 else f"<U+{code:04X}>"

    return _ACTS_ON_TERMINAL.sub(written, text)


def number(count: int) -> str:
    return f"{count:,}"


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "?"


def one_line(text: str, width: int = 100) -> str:
    """The first line of `text`, made visible, cut at `width` characters with an ellipsis."""
    first, _, rest = text.strip().partition("\n")
    return visible(first[: width - 1] + "…" if len(first) >= width or rest else first)


def within(text: str, columns: int) -> str:
    """The beginning of one line that fits into so many columns of a terminal; wide characters take two."""
    import unicodedata

    shown, left = "", columns - 1
    for char in one_line(text, max(2, columns)):
        left -= 1 + (unicodedata.east_asian_width(char) in "WF")
        if left < 0:
            return shown[:-1] + "…"
        shown += char
    return shown


def budget_line(event: Budget) -> str:
    used = f"{number(event.used)}/{number(event.window)} tokens, {share(event.used, event.window)}"
    if event.estimated:
        window = f"{event.model} → {number(event.window)} tokens ({event.source})"
        return f"window: {window}; context about {used}, estimated"
    return f"context: {used}, reported"


def compacting_line(event: Compacting) -> str:
    reasons = {"threshold": "near the window", "overflow": "the server says it is too long", "manual": "asked for"}
    why = reasons.get(event.reason, event.reason)
    why = "over the window" if event.reason == "threshold" and event.tokens > event.window else why
    return f"compacting: {why}; {event.messages} messages, {number(event.tokens)} tokens of {number(event.window)} ..."


def compacted_line(event: Compacted) -> str:
    record = event.record
    tokens = record.get("tokens", {})
    folded = folded_messages(event)
    became = {
        "pruned": "old tool results replaced by stubs",
        "shortened": "overlong messages cut to their beginning and end",
        "window_plus_summary": f"{folded} messages → 1 summary",
        "raw_fallback": f"{folded} messages cut, no summary{why_no_summary(record)}",
    }.get(record.get("strategy", ""), str(record.get("strategy")))
    parts = [
        f"compacted: {became}",
        f"{event.messages_before} → {event.messages_after} messages",
        f"{number(tokens.get('before', 0))} → about {number(tokens.get('after_estimate', 0))} tokens",
        f"{record.get('ms', 0) / 1000:.1f} s",
    ]
    if event.cost is not None:
        parts.append(f"${event.cost:.4f}")
    return " · ".join([*parts, f"originals: {event.archive}"])


def archive_path(session_path: str, archive: str) -> str:
    """Where an archived generation lies, from the path of its session."""
    from agent.log.logfile import beside  # an installation may lack what that needs, and this is what says so

    return os.path.join(beside(session_path, "archive"), f"{archive}.jsonl")


def folded_messages(event: Compacted) -> int:
    """How many messages of the context one summary message replaced."""
    return max(0, event.messages_before - event.messages_after + 1)


def why_no_summary(record: dict[str, Any]) -> str:
    """The reasons of the checks, in words."""
    from agent.compaction.summary import REASONS

    reasons = record.get("checks", {}).get("reasons", [])
    return f" ({'; '.join(REASONS.get(reason, reason) for reason in reasons)})" if reasons else ""


def not_compacted_line(event: NotCompacted) -> str:
    return (
        {
            "nothing": "nothing to compact",
            "no_summary": "no summary produced, history kept",
            "failed": "compaction failed, history kept",
        }.get(event.why, event.why)
        + (f": {event.text}" if event.text else "")
        + cost_of_attempt(event)
    )


def cost_of_attempt(event: NotCompacted) -> str:
    """What asking in vain took."""
    if event.usage is None:
        return ""
    cost = "" if event.cost is None else f", ${event.cost:.4f}"
    return f" · the attempt used {number(event.usage.prompt)} tokens in, {number(event.usage.completion)} out{cost}"


def waiting_line(event: Waiting) -> str:
    return f"waiting {event.seconds:.1f} s before retry {event.attempt} of {event.attempts}: {event.reason}"


def tool_line(event: ToolFinished) -> str:
    """How a tool call ended, and of one that failed the line that is likeliest to say why: the last."""
    ways = (
        ("denied", event.denied),
        ("interrupted", event.detail.get("interrupted")),
        ("timed out", event.detail.get("timed_out")),
    )
    state = next((name for name, is_so in ways if is_so), "done" if event.ok else "failed")
    told = f"tool: {event.name} {state} in {event.seconds:.1f} s"
    if event.denied:
        return f"{told}: {one_line(str(event.detail.get('refusal') or event.text), 300)}"
    if event.ok:
        return told
    *before, last = [line for line in event.text.splitlines() if line.strip()] or [""]
    why = f"{last}: {before[-1]}" if before and last.startswith("exit status ") else last if before else event.text
    return f"{told}: {one_line(why, 160)}"


def excerpt(text: str, most: int = 12) -> list[str]:
    """The lines of a text, or its first and last ones with what stands between them counted."""
    lines = text.splitlines()
    if len(lines) <= most + 1:
        return lines
    half = most // 2
    return [*lines[:half], f"... {len(lines) - 2 * half} more lines", *lines[-half:]]


def last_line(event: TurnFinished) -> str:
    steps = f"{event.steps} step{'s' if event.steps != 1 else ''}"
    usage = event.usage
    if usage is None:
        tokens = "tokens not reported"
    else:
        cached = f" ({number(usage.cached)} cached)" if usage.cached is not None else ""
        tokens = f"last input {number(usage.prompt)} tokens{cached}, {number(event.total.completion)} out"
    cost = f" · ${event.cost:.4f}" if event.cost is not None else ""
    return f"{steps} · {tokens}{cost} · finish_reason={event.finish_reason}"
