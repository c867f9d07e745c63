"""The ladder, as pure functions from message entries to what stands after a compaction.

A context is a system message and a list of *units* that may not be parted: a user message, or an assistant message
with the results of all its calls. A fold takes units from the front, never one without the other half, and leaves the
turn's own prompt word for word; a prune puts stubs where stale results stood; a shortening keeps head and tail of what
is too long. Nothing here asks a model, measures a window, or touches a file; originals are named by their `n`, and
where they are kept is no concern of this module.

Sizes are tokens as `agent.tokens` estimates them. Entries are never changed in place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any

from agent.log.entries import Entry
from agent.messages import images, text_of, tool_calls
from agent.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD, estimate, message_tokens

STALE_AFTER = 4
"""This many of the newest results are not stale, as far as the tail has room for them."""
STALE_SHARE = 1 / 16
STALE_MOST = 1000
"""A result is worth a stub when it has more than this share of the window, or this many tokens."""
SHORTEST = 48
"""Tokens a shortened message keeps at least."""
MARK = 24
"""Tokens below which a mark says no more than that something is missing."""
LEAST = 12
"""The same where the context would not fit otherwise."""


@dataclass(frozen=True)
class Fold:
    """What leaves the context and what stays, both in order; `head` is all that stood before the cut."""

    folded: tuple[Entry, ...]
    kept: tuple[Entry, ...]
    head: tuple[Entry, ...]

    @cached_property
    def size(self) -> int:
        """Tokens of what leaves."""
        return size(self.folded)

    @cached_property
    def covers(self) -> tuple[int, int, str]:
        """First and last message that the fold stands for, earlier summaries included, and what those said."""
        numbers = [entry.get("n", 0) for entry in self.folded if not entry.get("summary")]
        earlier = ""
        for entry in self.folded:
            if entry.get("summary"):
                numbers += [n for n in entry.get("covers", ()) if isinstance(n, int)]
                earlier = entry.get("written") or earlier
        return min(numbers, default=0), max(numbers, default=0), earlier


def role(entry: Entry) -> Any:
    return entry["message"].get("role")


def size(entries: Iterable[Entry]) -> int:
    return sum(message_tokens(entry["message"]) for entry in entries)


def by_n(body: Sequence[Entry], wanted: Sequence[Entry]) -> list[Entry]:
    """The entries of `body` that `wanted` names: the same messages, without the stubs."""
    numbers = {e.get("n") for e in wanted}
    return [e for e in body if e.get("n") in numbers]


def units(entries: Sequence[Entry]) -> list[int]:
    """Where each unit of a context without its system message begins. Results belong to the unit before them."""
    return [at for at, entry in enumerate(entries) if not at or entry["message"].get("role") != "tool"]


def _prompts(entry: Entry) -> bool:
    """Whether an entry is a message that a user typed."""
    return role(entry) == "user" and not entry.get("summary")


def _last_prompt(entries: Sequence[Entry], end: int) -> int:
    """Where the last prompt before `end` stands, or -1."""
    return next((at for at in range(end - 1, -1, -1) if _prompts(entries[at])), -1)


def last_prompt(entries: Sequence[Entry]) -> Entry:
    """The last message that a user typed, or an empty entry."""
    at = _last_prompt(entries, len(entries))
    return entries[at] if at >= 0 else {}


# ---- rung 2: fold the head ----


def fold(entries: Sequence[Entry], keep: int, *, least: int = 1) -> Fold | None:
    """Fold the head so that about `keep` tokens stay; None when there is nothing to fold.

    The cut stands before a user message. Where that would leave less than half of `keep` because one turn is itself
    too long, it stands between two steps of that turn, whose prompt stays. The last unit and the last prompt always
    stay; `least` units are folded at least, where there are so many.
    """
    starts = units(entries)
    at, kept = len(starts) - 1, size(entries[starts[-1] :]) if starts else 0
    while at > least and kept + (more := size(entries[starts[at - 1] : starts[at]])) <= keep:
        at -= 1
        kept += more
    if at < 1:
        return None
    boundary = next((start for start in starts[at:] if _prompts(entries[start])), None)
    cut = starts[at]
    if boundary is not None and 2 * size(entries[boundary:]) >= min(keep, kept):
        cut = boundary
    pinned = {_last_prompt(entries, len(entries))}
    prompt = _last_prompt(entries, cut)
    if not _prompts(entries[cut]) and prompt >= 0 and size(_unit(entries, prompt)) <= keep // 4:
        pinned.add(prompt)
    parted = _parted(entries, cut, pinned)
    return parted if any(not entry.get("summary") for entry in parted.folded) else None


def last(entries: Sequence[Entry]) -> Fold:
    """The fold after which least stays: the last prompt and the last unit. It may fold nothing, and folds summaries."""
    cut = max(units(entries), default=0)
    parted = _parted(entries, cut, {_last_prompt(entries, len(entries))})
    return Fold(parted.folded, parted.kept, parted.folded)


def _unit(entries: Sequence[Entry], start: int) -> Sequence[Entry]:
    """The unit that begins there."""
    results = takewhile(lambda at: role(entries[at]) == "tool", range(start + 1, len(entries)))
    return entries[start : max(results, default=start) + 1]


def _parted(entries: Sequence[Entry], cut: int, pinned: set[int]) -> Fold:
    """The fold of what stands before `cut`, but for the units that begin at `pinned` (-1: none)."""
    stay = [entry for start in sorted(pinned) if 0 <= start < cut for entry in _unit(entries, start)]
    kept, ids = (*stay, *entries[cut:]), set(map(id, stay))
    return Fold(tuple(e for e in entries[:cut] if id(e) not in ids), kept, tuple(entries[:cut]))


# ---- rung 1: stubs for stale results ----


def prune(entries: Sequence[Entry], window: int, keep: int) -> list[Entry]:
    """The entries with stubs for stale results and for identical repeats; those untouched are the same objects.

    Stale: not in the last step, not among the newest few results that together have `keep` tokens, and large for this
    window.
    """
    results = [entry for entry in entries if role(entry) == "tool"]
    if not results:
        return list(entries)
    last_step = {id(entry) for entry in entries[units(entries)[-1] :]}
    fresh = set(last_step)
    for entry in reversed(results[-STALE_AFTER:]):
        keep -= message_tokens(entry["message"])
        if keep < 0:
            break
        fresh.add(id(entry))
    limit = min(STALE_MOST, int(window * STALE_SHARE))
    newest = {text_of(entry["message"]): entry.get("n") for entry in results}
    pruned = []
    for entry in entries:
        text = text_of(entry["message"])
        if role(entry) != "tool" or id(entry) in last_step or entry.get("pruned"):
            pruned.append(entry)
        elif newest[text] != entry.get("n") and len(text) > 200:
            pruned.append(_stub(entry, f"the same text stands in message {newest[text]}"))
        elif id(entry) not in fresh and message_tokens(entry["message"]) > limit:
            pruned.append(_stub(entry, f"it began: {' '.join(text[:160].split())}"))
        else:
            pruned.append(entry)
    return pruned


def _stub(entry: Entry, told: str) -> Entry:
    length = len(text_of(entry["message"]))
    return _with_text(entry, f"[Result of message {entry.get('n')} left out here, {length:,} characters; {told}]")


def _with_text(entry: Entry, text: str) -> Entry:
    return {**entry, "message": {**entry["message"], "content": text}, "pruned": True}


# ---- rung 4: what is itself too long ----


def shorten(entries: Sequence[Entry], room: int, least: int = SHORTEST) -> list[Entry]:
    """The entries cut down to about `room` tokens: head and tail of the longest ones, the last prompt cut last.

    Total: where even the shortest form of everything, `least` tokens each, is more than `room`, that is returned.
    """
    prompt = _last_prompt(entries, len(entries))
    sizes = [message_tokens(entry["message"]) for entry in entries]
    spared = sizes[prompt] if prompt >= 0 else 0
    level = _level([s for i, s in enumerate(sizes) if i != prompt], room - spared, least)
    shorter = [e if i == prompt or sizes[i] <= level else shortened(e, level, least) for i, e in enumerate(entries)]
    if prompt >= 0 and size(shorter) > room:
        rest = size(shorter) - spared
        shorter[prompt] = shortened(entries[prompt], max(least, room - rest), least)
    return shorter


def _level(sizes: list[int], room: int, least: int) -> int:
    """The cap at which all sizes together fit `room`, like water that finds its level; never below `least`."""
    left, count = room, len(sizes)
    for tokens in sorted(sizes):
        if tokens * count > left:
            return max(least, left // count)
        left -= tokens
        count -= 1
    return max([least, *sizes])


def shortened(entry: Entry, room: int, least: int = SHORTEST) -> Entry:
    """One entry within about `room` tokens: head and tail of its text, and of the long values in its calls."""
    message = dict(entry["message"])
    if message_tokens(message) <= room:
        return entry
    message.pop("reasoning_content", None)
    n = entry.get("n")
    calls = tool_calls(message)
    if calls:
        share = max(least // 2, (room - estimate(text_of(message)[:400])) // len(calls) - 16)
        message["tool_calls"] = [_short_call(raw, share, n) for raw in message["tool_calls"]]
        room -= message_tokens({**message, "content": ""})
    text = text_of(message)
    if least < SHORTEST and (shown := images(message)):  # an image has no head and tail
        kept = shown[: max(0, (room - MESSAGE_OVERHEAD - estimate(text)) // IMAGE_TOKENS)]
        left = len(shown) - len(kept)
        text += f"\n[{left} image{'s' * (left > 1)} left out: no room]" * bool(left)
        if kept:
            return {**entry, "message": {**message, "content": [{"type": "text", "text": text}, *kept]}, "pruned": True}
        message["content"] = text
    if estimate(text) > room:
        message["content"] = head_and_tail(text, max(least // 2, room - MESSAGE_OVERHEAD), n)
    return {**entry, "message": message, "pruned": True}


def head_and_tail(text: str, room: int, n: Any = None) -> str:
    """Head and tail of a text within about `room` tokens, with a mark that says what is missing."""
    tokens = estimate(text)
    if tokens <= room:
        return text
    where = "" if n is None else f" of message {n}"
    scant = room <= MARK
    fewest = 4 if scant else 16
    chars = max(fewest, int(len(text) * max(8, room - (6 if scant else 20)) / tokens))
    while True:
        head, tail = chars * 2 // 3, chars - chars * 2 // 3
        mark = f"\n[… {len(text) - chars:,} characters{where} left out …]\n"
        mark = "\n[…]\n" if scant else mark
        cut = text[:head] + mark + text[len(text) - tail :]
        if estimate(cut) <= room or chars <= fewest:
            return cut
        chars = chars * 3 // 4


def _short_call(raw: Any, room: int, n: Any) -> Any:
    """A call with its arguments within `room`; what is not a call is passed on as it is."""
    function = raw.get("function") if isinstance(raw, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return raw
    return {**raw, "function": {**function, "arguments": _short_arguments(function["arguments"], room, n)}}


def _short_arguments(arguments: str, room: int, n: Any) -> str:
    """The JSON arguments of a call with their long strings shortened; still an object."""
    if estimate(arguments) <= room:
        return arguments
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        given = {"arguments": arguments}
    long = [key for key, value in given.items() if estimate(_as_text(value)) > SHORTEST // 2]
    for key in long:
        given[key] = head_and_tail(_as_text(given[key]), max(SHORTEST // 2, room // len(long)), n)
    return json.dumps(given, ensure_ascii=False)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
