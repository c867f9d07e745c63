"""A turn of many steps on a real llama.cpp server whose window holds few of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))


from bench.long_run import Outcome, run


@pytest.fixture(scope="module")
def outcome(model_file: str) -> Outcome:
    return run(model_file, steps=9, kilobytes=1, window=1536)


def test_it_ends_well_and_every_step_was_taken(outcome: Outcome) -> None:
    assert (outcome.code, outcome.steps, outcome.refused) == (0, 9, []), outcome.said


def test_it_was_compacted_more_than_once_and_nothing_was_sent_that_the_window_does_not_hold(outcome: Outcome) -> None:
    assert sum(outcome.compactions.values()) >= 2
    assert outcome.largest < 1536


def test_between_compactions_the_server_s_cache_held_what_had_been_sent(outcome: Outcome) -> None:
    assert outcome.cold == 0, outcome.said
