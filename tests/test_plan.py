"""The pure steps of the ladder, on conversations that hypothesis makes up."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from server import check_messages

from agent.compaction import plan
from agent.log.entries import replay
from agent.tokens import estimate
from agent.wire import Dialect, prepare_for_wire

Entry = dict[str, Any]


@st.composite
def conversations(draw: st.DrawFn) -> list[Entry]:
    """Entries in any order a session can have: consecutive users, parallel calls, calls without results, long texts."""
    entries: list[Entry] = []

    def add(message: dict[str, Any], **more: Any) -> None:
        entries.append({"type": "message", "n": len(entries) + 2, "message": message, **more})

    for turn in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["user", "user", "assistant", "step", "step", "dangling"]))
        text = draw(st.sampled_from(["Yes.", "word " * 50, "数据" * 80, "line of a log 12345\n" * 120]))
        if kind == "user" or not entries:
            add({"role": "user", "content": text})
        elif kind == "assistant":
            add({"role": "assistant", "content": text})
        else:
            count = draw(st.integers(1, 3))
            function = {"name": "bash", "arguments": json.dumps({"command": text})}
            calls = [{"id": f"c{turn}_{i}", "type": "function", "function": function} for i in range(count)]
            add({"role": "assistant", "content": None, "tool_calls": calls})
            for call in calls[: draw(st.integers(0, count)) if kind == "dangling" else count]:
                add({"role": "tool", "tool_call_id": call["id"], "content": text})
    return entries


SUMMARY = {"type": "message", "n": 999, "summary": True, "message": {"role": "user", "content": "[Messages 2..9]"}}


def violation(entries: list[Entry]) -> str | None:
    """What the strict server would say to the request for these entries."""
    system = {"type": "message", "n": 1, "message": {"role": "system", "content": "You help."}}
    return check_messages(prepare_for_wire(replay([system, *entries]), Dialect()))


@given(conversations(), st.integers(0, 3000), st.integers(1, 6))
def test_a_cut_anywhere_leaves_a_valid_request(entries: list[Entry], keep: int, least: int) -> None:
    """Whatever is kept: nothing is lost or doubled, calls stay with their results, the last prompt stays."""
    cut = plan.fold(entries, keep, least=least)
    if cut is None:
        return
    assert sorted(e["n"] for e in (*cut.folded, *cut.kept)) == [e["n"] for e in entries]
    assert violation([SUMMARY, *cut.kept]) is None
    calls = {c["id"] for e in cut.kept for c in e["message"].get("tool_calls", [])}
    assert all(e["message"]["tool_call_id"] in calls for e in cut.kept if plan.role(e) == "tool")
    prompts = [e for e in entries if plan.role(e) == "user"]
    assert prompts[-1] in cut.kept
    assert list(cut.head) == entries[: len(cut.head)] and set(map(id, cut.folded)) <= set(map(id, cut.head))


@given(conversations(), st.integers(0, 3000))
def test_the_tail_is_no_longer_than_asked_unless_one_unit_is(entries: list[Entry], keep: int) -> None:
    cut = plan.fold(entries, keep)
    if cut is not None:
        starts = plan.units(entries)
        parts = [entries[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
        prompts = [plan.size(part) for part in parts if plan.role(part[0]) == "user"]
        assert plan.size(cut.kept) <= max(keep, plan.size(parts[-1])) + prompts[-1] + max(prompts)


@given(conversations(), st.integers(500, 100_000), st.integers(0, 5000))
def test_pruning_only_shortens_results_and_is_done_in_one_pass(entries: list[Entry], window: int, keep: int) -> None:
    """Only results change, never those of the last step; the second pass changes nothing; the request stays valid."""
    pruned = plan.prune(entries, window, keep)
    assert [e["n"] for e in pruned] == [e["n"] for e in entries]
    for old, new in zip(entries, pruned, strict=True):
        assert new is old or (plan.role(old) == "tool" and new["pruned"] and str(old["n"]) in new["message"]["content"])
    last = entries[plan.units(entries)[-1] :]
    assert all(any(e is kept for e in pruned) for kept in last)
    assert plan.prune(pruned, window, keep) == pruned
    assert violation(pruned) is None


@given(conversations(), st.integers(0, 4000))
def test_shortening_always_ends_and_leaves_a_valid_request(entries: list[Entry], room: int) -> None:
    """Within the room, or as short as it goes; calls keep JSON objects as arguments; originals are not touched."""
    before = json.dumps(entries)
    short = plan.shorten(entries, room)
    assert json.dumps(entries) == before
    assert violation(short) is None
    assert plan.size(short) <= max(room * 1.1, len(short) * 4 * plan.SHORTEST)
    for entry in short:
        for call in entry["message"].get("tool_calls", []):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)


@given(st.text(min_size=1), st.integers(8, 2000))
def test_head_and_tail_never_grow_a_text(text: str, room: int) -> None:
    cut = plan.head_and_tail(text * 40, room, 7)
    assert cut == text * 40 or ("characters of message 7 left out" if room > plan.MARK else "\n[…]\n") in cut
    assert estimate(cut) <= max(room, 60)


def test_a_cut_inside_a_turn_keeps_its_prompt() -> None:
    """One prompt, ten steps: the prompt and the newest steps stay, the rest is folded."""
    entries: list[Entry] = [{"type": "message", "n": 2, "message": {"role": "user", "content": "Read it all."}}]
    for step in range(10):
        call = {"id": f"c{step}", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        entries.append({"n": 3 + 2 * step, "message": {"role": "assistant", "content": None, "tool_calls": [call]}})
        result = {"role": "tool", "tool_call_id": f"c{step}", "content": "word " * 100}
        entries.append({"n": 4 + 2 * step, "message": result})
    cut = plan.fold(entries, 300)
    assert cut is not None
    assert [e["n"] for e in cut.kept] == [2, 19, 20, 21, 22]
    assert [e["n"] for e in cut.folded] == list(range(3, 19))


def test_a_summary_alone_is_not_folded_again() -> None:
    prompt = {"n": 1000, "message": {"role": "user", "content": "Go on."}}
    assert plan.fold([SUMMARY, prompt], 10) is None


def test_images_are_left_out_one_by_one_and_said() -> None:
    """What fits stays; the model is told what it does not see."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    message = {"role": "user", "content": [{"type": "text", "text": "What is wrong in these?"}, picture, picture]}
    entry = {"type": "message", "n": 2, "message": message}
    one = plan.shortened(entry, 1200, plan.LEAST)["message"]["content"]
    assert one == [{"type": "text", "text": "What is wrong in these?\n[1 image left out: no room]"}, picture]
    none = plan.shortened(entry, 300, plan.LEAST)["message"]["content"]
    assert none == "What is wrong in these?\n[2 images left out: no room]"
