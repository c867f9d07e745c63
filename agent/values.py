"""What the text of a setting means: tokens, shares, counts, seconds, switches, names, words of a list.

Each reader takes the text of a flag, a variable or a file and raises ValueError, whose words say what is taken instead.
"""

from __future__ import annotations

from collections.abc import Callable

OFF = "off"


def parse_tokens(text: str) -> int:
    """A number of tokens: 8192, 8k (8,000), 1m or 200_000. Raises ValueError for anything else, zero or less."""
    digits = text.strip().lower()
    scale = {"k": 1000, "m": 1_000_000}.get(digits[-1:], 1)
    digits = (digits[:-1] if scale > 1 else digits).replace("_", "")
    if not (digits.isascii() and digits.isdigit()) or int(digits) == 0:
        raise ValueError("a number of tokens such as 8192, 8k or 200_000")
    return int(digits) * scale


def parse_compact_at(text: str) -> float | int | str:
    """When to compact: a fraction of the window (0.75), a number of tokens (90k), or `off`."""
    word = text.strip().lower()
    if word == OFF:
        return OFF
    if "." in word:
        try:
            share = float(word)
        except ValueError:
            share = 0.0
        if 0.0 < share < 1.0:
            return share
        raise ValueError("a fraction between 0 and 1, a number of tokens, or off")
    try:
        tokens = parse_tokens(word)
    except ValueError:
        raise ValueError("a fraction between 0 and 1, a number of tokens, or off") from None
    if tokens <= 100:
        raise ValueError(f"a fraction such as 0.75 (is {tokens} % meant?), a number of tokens above 100, or off")
    return tokens


def parse_count(text: str) -> int:
    """A whole number above zero."""
    word = text.strip().replace("_", "")
    if not (word.isascii() and word.isdigit()) or int(word) == 0:
        raise ValueError("a whole number above zero")
    return int(word)


def parse_seconds(text: str) -> float:
    """Seconds above zero; a fraction is allowed."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 1e7:
        raise ValueError("a number of seconds above zero")
    return seconds


def parse_switch(text: str) -> bool:
    word = text.strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off", ""}:
        return False
    raise ValueError("true or false")


def parse_names(text: str) -> tuple[str, ...]:
    """Names with commas between; empty ones are dropped."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(" or ".join(words))
        return word

    return parse
