"""Reports: what the prompt tokens that a server says it read tell of its window. Pure.

A report that is far too low may come from a server that cut the prompt, or from a gateway that leaves out what was
cached: it is believed where the server states a window as small, where it is a round number, as windows are, or where two
reports agree; but no window is smaller than what the same server says that it has read before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AGREE = 0.05
"""Two reports agree that differ by no more than this share."""


def read_in_part(prompt: int, counted: int, stated: int | None, known: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """What to remember of a server that read `prompt` of about `counted` tokens, and what to say. `stated` is the window
    it states, `known` what was learnt of it before: "low" and "most" are the last report of this kind and the largest."""
    said = f"the server says that it read only {prompt} of about {counted} tokens"
    if stated is not None and stated < counted:
        window = stated
    else:
        low, most = (n if isinstance(n := known.get(name), int) else 0 for name in ("low", "most"))
        agreed = abs(prompt - low) <= AGREE * low
        window = -(-prompt // 1024) * 1024
        if most > window or not (agreed or prompt % 256 == 0):
            return {"low": prompt, "most": max(most, prompt)}, f"{said}, and may have left out the rest"
    return {
        "window": window,
        "low": None,
        "most": None,
    }, f"{said} and left out the rest: its window seems to be {window}"


def outgrown(prompt: int, known: Mapping[str, Any]) -> dict[str, None]:
    """The windows that were learnt and are none, since the server has just read more, to be forgotten."""
    return {name: None for name in ("window", "max_input") if isinstance(n := known.get(name), int) and n < prompt}
