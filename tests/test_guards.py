"""When a compaction would be in vain."""

from __future__ import annotations

from typing import Any

from agent.compaction import guards
from agent.compaction.guards import State
from agent.messages import Usage


def session(before: int, after: int, *reports: int, **guard: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Meta and entries of a session after a compaction, with the sizes reported since."""
    record = {"type": "compaction", "n": 10, "tokens": {"before": before, "after_estimate": after}, "guard": guard}
    entries: list[dict[str, Any]] = [record, {"type": "message", "n": 11, "summary": True, "message": {"role": "user"}}]
    for k, prompt in enumerate(reports, 6):
        usage = Usage(prompt, 5).as_json()
        entries.append(
            {"type": "message", "n": 6 + k, "message": {"role": "assistant"}, "usage": usage, "request": {"k": k}}
        )
    return {"counts": {"requests": 5}}, entries


def test_nothing_is_known_before_the_first() -> None:
    assert guards.state({}, [], 3000) == State() and guards.refusal(State(), 4000, 4000) == ""


def test_the_first_reported_size_decides_not_the_estimate() -> None:
    """It looked like 1000 and was reported as 3900: over the trigger, and hardly a gain."""
    meta, entries = session(4000, 1000, 3900, 3950)
    assert guards.state(meta, entries, 3000) == State(3900, True, 1, 1)


def test_counters_go_on_from_the_record_and_start_again_after_a_gain() -> None:
    meta, entries = session(4000, 1000, 3900, strikes=1, row=1)
    assert guards.state(meta, entries, 3000) == State(3900, True, 2, 2)
    meta, entries = session(4000, 1000, 1100, strikes=1, row=1)
    assert guards.state(meta, entries, 3000) == State(1100, True, 0, 0)


def test_stale_reports_do_not_count() -> None:
    """The usage of a kept answer was of the context before the compaction."""
    meta, entries = session(4000, 1000)
    entries.append({"type": "message", "n": 7, "usage": Usage(3990, 5).as_json(), "request": {"k": 5}, "message": {}})
    assert guards.state(meta, entries, 3000) == State(1000, False, 0, 0)


def test_what_the_server_took_is_a_prompt_and_not_the_sum_of_a_summary_s_calls() -> None:
    meta, entries = session(4000, 1000, 1100, 1300)
    entries[0]["usage"] = Usage(9000, 60).as_json()
    assert guards.taken(meta, entries) == 1300


def test_the_refusals_in_words() -> None:
    cases = [
        (State(1000, grown=False), 3500, "nothing was added since the last compaction"),
        (State(3100, True, 2, 0), 3400, "the last 2 compactions gained too little; the next one waits"),
        (State(3100, True, 0, 2), 3400, "the last 2 compactions gained too little; the next one waits"),
        (State(3100, True, 2, 2), 3600, ""),
        (State(3100, True, 1, 1), 3150, "the context has hardly grown since the last compaction"),
        (State(3100, True, 1, 1), 3400, ""),
        (State(3100, True, 2, 2), 4000, ""),
        (State(4100, True, 2, 2), 4200, "the last 2 compactions gained too little; the next one waits"),
    ]
    for state, size, wanted in cases:
        told = guards.refusal(state, size, 4000)
        assert told.startswith(wanted) and bool(told) == bool(wanted), (state, size, told)


def test_growth_forgives() -> None:
    assert guards.remembered(State(3000, True, 2, 1), 3600, 1.2345, "m") == {
        "strikes": 0,
        "row": 1,
        "ratio": 1.234,
        "model": "m",
    }
    assert guards.remembered(State(3000, True, 1, 1), 3100, 1.0, "m") == {
        "strikes": 1,
        "row": 1,
        "ratio": 1.0,
        "model": "m",
    }


def test_damaged_records_are_read_as_nothing() -> None:
    for damage in ({}, {"tokens": 7, "guard": []}, {"tokens": {"before": "x"}, "guard": {"strikes": None}}):
        assert guards.state({"counts": 3}, [{"type": "compaction", "n": 1, **damage}], 3000).grown is False


def test_an_attempt_that_gained_nothing_is_a_strike_unless_a_person_asked_for_it() -> None:
    """The next waits until there is more to leave out: a model is not asked at every step."""
    meta, entries = session(4000, 1000, 1100)
    attempt = {"type": "attempt", "reason": "threshold", "n": 20, "tokens": {"before": 3500, "after_estimate": 3500}}
    word = {"type": "message", "n": 22, "message": {"role": "user", "content": "Go on."}}
    now = guards.state(meta, [*entries, attempt, word], 3000)
    assert now == State(3500, True, 1, 1)
    assert guards.refusal(now, 3550, 4000) == "the context has hardly grown since the last compaction"
    assert guards.refusal(now, 3800, 4000) == ""
    by_hand = {**attempt, "reason": "manual"}
    assert guards.state(meta, [*entries, by_hand, word], 3000) == State(1100, True, 0, 0)


def test_after_an_outage_the_next_call_waits_for_growth() -> None:
    """By what the file says, so that neither the next request nor the next process asks again at once."""
    attempt = {"type": "attempt", "reason": "threshold", "outcome": "failed", "tokens": {"before": 6000}}
    outage = {**attempt, "checks": {"reasons": ["call_failed"]}}
    unsaved = {**attempt, "checks": {"reasons": []}}
    done = {"type": "compaction", "n": 3}
    assert [guards.resting([done, outage], size) for size in (6000, 6479, 6480)] == [True, True, False]
    assert not guards.resting([outage, done], 6000) and not guards.resting([unsaved], 6000)
    assert guards.last_record([done, outage]) == done and guards.last_record([done, unsaved]) == unsaved
