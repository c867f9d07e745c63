"""The gate before the compaction: it opens when the compactor must look, and the compactor is not loaded before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent.gate import Gate
from agent.session import Session
from agent.tokens import limits_for

LIMITS = limits_for(10_000, "flag")


class Named:
    """A model that is never asked."""

    name = "m"
    takes_tools = True
    structured = ""


def session_of(characters: int, prompt_tokens: int | None = None) -> Session:
    """A session with one long message, and an answer that reports `prompt_tokens`."""
    session = Session.ephemeral({"model": "m"})
    session.append({"type": "message", "message": {"role": "user", "content": "word " * (characters // 5)}})
    answer = {"type": "message", "message": {"role": "assistant", "content": "ok"}, "model": "m"}
    if prompt_tokens:
        answer["usage"] = {"prompt_tokens": prompt_tokens, "completion_tokens": 1}
    session.append(answer)
    return session


@pytest.mark.parametrize(
    ("characters", "reported", "opens"),
    [
        (1_000, None, False),
        (20_000, None, False),
        (30_000, None, True),  # an estimate near the trigger: the compactor counts
        (30_000, 7_000, False),  # reported and below the trigger of 7,500
        (30_000, 7_600, True),
    ],
)
def test_it_opens_near_the_trigger(characters: int, reported: int | None, opens: bool) -> None:
    gate = Gate(session_of(characters, reported), Named(), LIMITS, (), lambda event: None)  # type: ignore[arg-type]
    assert gate._near_trigger() is opens


def test_without_a_trigger_only_the_window_counts() -> None:
    limits = limits_for(10_000, "flag", compact_at="off")
    gate = Gate(session_of(40_000), Named(), limits, (), lambda event: None)  # type: ignore[arg-type]
    assert (gate._near_trigger(), gate.make_room(), gate.after_turn()) == (True, False, False)


def test_a_turn_with_room_loads_no_compaction() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests'); from test_gate import *; "
        "gate = Gate(session_of(1000), Named(), LIMITS, (), None); "
        "assert not gate.make_room() and not gate.after_turn(); "
        "sys.exit('agent.compaction' in sys.modules or 'agent.anchors' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
