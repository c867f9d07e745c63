"""The figures of a session's life and their picture: exact, in plain characters, and honest about what is estimated."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from conftest import Runner, environment
from disks import Quick
from hypothesis import given
from hypothesis import strategies as st
from lives import META, answer, ask, compact, user

from agent.log import archive
from agent.messages import Usage
from agent.session import Session
from agent.views.chart import Lines, bars, columns, draw, fit, svg
from agent.views.stats import KINDS, Fold, Life, Step, Totals, life_of, lives

ID = "20260101-100000-abc12345"


def step(prompt: int, cached: int | None = None) -> Step:
    return Step(1, "2026-01-01T00:00:00Z", "m", prompt, 5, cached, True, None)


def fold(after: int, kind: str = "compacted") -> Fold:
    return Fold(9, "2026-01-01T00:00:00Z", after, kind, 900, 90, "manual", "pruned", "0001")


def price(model: str, usage: Usage) -> float | None:
    """A dollar a thousand tokens, for the model that has a price."""
    return (usage.prompt + usage.completion) / 1000 if model == "m" else None


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Two turns, a compaction, a turn, an undo, a turn without reported usage."""
    store = str(tmp_path / "store")
    with Session.create(store, META | {"name": "解析器"}, id=ID, disk=Quick()) as session:
        ask(session, "one")
        ask(session, "two")
        compact(session)
        ask(session, "three")
        archive.undo(session)
        session.append(user("four"))
        session.append(answer("re: four", model="other", request={"k": 4, "sha256": "", "messages": 9}))
    return store


# ---- the figures ----


def test_steps_and_folds_of_a_life_with_an_undo(store: str) -> None:
    """Every answer of the life once, in order; what was not reported is estimated and says so; costs where known."""
    figures = life_of(Session.read(store, ID), price)
    assert [(s.prompt if s.reported else "about", s.model, s.cost) for s in figures.steps] == [
        (100, "m", 0.107), (100, "m", 0.107), (100, "m", 0.107), ("about", "other", None)
    ]  # fmt: skip
    assert [(f.after, f.kind, f.before, f.left) for f in figures.folds] == [
        (2, "compacted", 900, 90),
        (3, "undone", None, figures.folds[1].left),
    ]
    assert figures.totals.as_json() == {
        "sessions": 1, "requests": 4, "prompt_tokens": 300, "cached_tokens": 0, "completion_tokens": 21,
        "compactions": 1, "cost_usd": 0.321,
    }  # fmt: skip


def test_a_fork_is_not_counted_twice(store: str) -> None:
    """What it shares with its parent is shown in its picture and counted once in the sums."""
    new = archive.fork(store, ID)
    with Session.open(store, new) as session:
        ask(session, "five")
    figures = life_of(Session.read(store, new))
    assert (len(figures.steps), figures.totals.requests, figures.totals.compactions) == (5, 1, 0)
    whole = Totals()
    for _, found in lives(store, lambda meta: price):
        assert found is not None
        whole.plus(found.totals)
    assert (whole.sessions, whole.requests, whole.prompt, whole.compactions) == (2, 5, 400, 1)


def test_a_summarys_own_request_is_in_the_sums() -> None:
    """It is paid for, and it is no step."""
    from agent.views.stats import life

    record = {
        "type": "compaction",
        "n": 1,
        "at": "2026-01-02T00:00:00Z",
        "usage": {"prompt_tokens": 70, "completion_tokens": 9},
    }
    figures = life([record])
    assert (figures.steps, figures.totals.prompt, figures.totals.requests) == ([], 70, 1)
    assert list(figures.days) == ["2026-01-02"]


def test_odd_figures_in_a_file_are_no_figures() -> None:
    from agent.views.stats import life

    entries: list[dict[str, Any]] = [
        {"type": "compaction", "n": 1, "tokens": "many"},
        {"type": "compaction", "n": 2, "tokens": {"before": None, "after_estimate": "x"}, "usage": []},
        {"type": "undo", "n": 3},
        {"type": "message", "n": 4, "message": {"role": "assistant", "content": "x"}, "usage": {"prompt_tokens": "9"}},
    ]
    figures = life(entries)
    assert (len(figures.steps), len(figures.folds), figures.totals.prompt) == (1, 3, 0)
    assert figures.steps[0].reported is False


# ---- the picture, in characters ----


def test_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Growth, the trigger, a compaction, growth again: every row of it."""
    steps = [step(1000), step(2000, 1000), step(3000, 2000), step(4000, 3000), step(1500), step(2500, 1500)]
    assert draw(steps, [fold(4)], Lines(5000, 4000), 60) == [
        " window 5,000 ┤──────────────────────────",
        "              ┤",
        "trigger 4,000 ┤╌╌╌╌╌╌╌╌╌╌╌╌▅▅▅╌╌╌╌╌╌╌╌╌╌╌",
        "              ┤            ███",
        "              ┤        ▂▂▂ ███",
        "              ┤        ███ ░░░",
        "              ┤        ███ ░░░     ███",
        "              ┤    ▆▆▆ ░░░ ░░░     ███",
        "              ┤    ███ ░░░ ░░░ ▅▅▅ ░░░",
        "              ┤▃▃▃ ███ ░░░ ░░░ ███ ░░░",
        "              ┤███ ░░░ ░░░ ░░░ ███ ░░░",
        "            0 ┤███ ░░░ ░░░ ░░░ ███ ░░░",
        "              └────────────────────────",
        "                               ▼",
        "               1                      6",
    ]


def test_lines_far_above_stay_out_of_the_picture() -> None:
    """A window of a million does not flatten the bars."""
    rows = draw([step(900), step(1000)], [], Lines(1_000_000, 400_000), 60)
    assert rows[0].startswith("1,000 ┤")
    assert "window" not in "".join(rows)


@given(
    prompts=st.lists(st.integers(0, 10**7), min_size=1, max_size=400),
    width=st.integers(1, 300),
    window=st.none() | st.integers(1, 10**7),
    after=st.lists(st.integers(0, 400), max_size=5),
    colour=st.booleans(),
)
def test_any_picture_fits_its_terminal(
    prompts: list[int], width: int, window: int | None, after: list[int], colour: bool
) -> None:
    """Never wider than asked (40 at least), every step in a bar, no escape without colour, SVG well-formed."""
    steps = [step(prompt, prompt // 2) for prompt in prompts]
    folds = [fold(min(a, len(steps)), KINDS[a % 3]) for a in after]
    lines = Lines(window, window and window * 3 // 4)
    rows = draw(steps, folds, lines, width, colour=colour)
    plain = draw(steps, folds, lines, width)
    assert max(map(columns, plain)) <= max(width, 40) + 1
    assert colour or "\x1b" not in "".join(rows)
    assert "".join(rows).count("\x1b[") % 2 == 0
    assert max(prompt for prompt, _ in bars(steps, width)) == max(prompts)
    Strict().feed(svg(steps, folds, lines))


class Strict(HTMLParser):
    """Fails on an element that is closed out of turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_wide_characters_count_two() -> None:
    assert [columns(text) for text in ("abc", "解析器", "é", "👍", "e\u0301")] == [3, 6, 1, 2, 1]
    assert [fit("解析器-port", width) for width in (11, 10, 5, 4, 1)] == [
        "解析器-port",
        "解析器-po…",
        "解析…",
        "解…",
        "…",
    ]


# ---- as typed ----


def test_stats_of_one_session(agent: Runner, store: str) -> None:
    done = agent("sessions", "stats", ID, CONTEXT_WINDOW="200", AGENT_SESSION_DIR=store, MODEL="m", COLUMNS="70")
    lines = done.out.splitlines()
    assert (done.code, done.err, "\x1b" in done.out) == (0, "", False)
    assert lines[:3] == [
        f"{ID} · 解析器 · other",
        "4 requests · 300 tokens in · 21 out",
        "window 200 (CONTEXT_WINDOW), trigger 150",
    ]
    assert lines[4].startswith(" window 200 ┤──")
    assert lines[-4:] == [
        "tokens of each step's prompt: █ new ░ cached ▼ compacted ▲ undone",
        "1 of 4 sizes were not reported and are estimated",
        "▼ compacted after step 2: 900 → about 90 tokens (manual, window_plus_…",
        "▲ undone after step 3",
    ]
    assert max(map(columns, lines)) <= 70


def test_stats_for_machines(agent: Runner, store: str) -> None:
    told = json.loads(agent("sessions", "stats", ID, "--json", AGENT_SESSION_DIR=store, CONTEXT_WINDOW="200").out)
    assert list(told) == ["id", "window", "window_source", "trigger", "steps", "compactions", "totals"]
    assert told["steps"][0] | {"at": ""} == {
        "step": 1, "n": 2, "at": "", "model": "m", "prompt_tokens": 100, "completion_tokens": 7,
        "cached_tokens": None, "reported": True, "cost_usd": None,
    }  # fmt: skip
    assert [fold["kind"] for fold in told["compactions"]] == ["compacted", "undone"]


def test_stats_of_all_sessions(agent: Runner, store: str) -> None:
    """Sums, then a line a day; one that cannot be read is named."""
    (Path(store) / "20260101-100000-00000000.jsonl").symlink_to(Path(store) / f"{ID}.jsonl")
    done = agent("sessions", "stats", AGENT_SESSION_DIR=store)
    assert done.out.splitlines()[0] == "1 session · 4 requests · 300 tokens in · 21 out · 1 compaction"
    assert sum("4 requests" in line or "1 request" in line for line in done.out.splitlines()[1:]) >= 1
    told = json.loads(agent("sessions", "stats", "--json", AGENT_SESSION_DIR=store).out)
    assert (told["requests"], told["sessions"], told["unreadable"]) == (4, 1, [])
    assert sum(day["requests"] for day in told["days"].values()) == 4
    assert agent("sessions", "stats", AGENT_SESSION_DIR=store + "-none").out.startswith("0 sessions · 0 requests")


def test_cost_is_shown_where_it_is_known(agent: Runner, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with Session.create(store, META | {"model": "openai/gpt-4o"}, id=ID, disk=Quick()) as session:
        ask(session, "one")
        usage = {"prompt_tokens": 1_000_000, "completion_tokens": 0, "cached_tokens": 1_000_000}
        session.append(answer("two", model="gpt-4o-2024-08-06", usage=usage))
    assert (
        agent("sessions", "stats", ID, AGENT_SESSION_DIR=store)
        .out.splitlines()[1]
        .endswith("(99 % cached) · 7 out · $1.25")
    )


def test_a_terminal_gets_colour_unless_it_says_no(store: str, tmp_path: Path) -> None:
    for more, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        ours, theirs = pty.openpty()
        env = environment(AGENT_SESSION_DIR=store, CONTEXT_WINDOW="200", TERM="xterm") | more
        argv = [sys.executable, "-m", "agent", "sessions", "stats", ID]
        subprocess.run(argv, stdout=theirs, stderr=theirs, stdin=theirs, env=env, cwd=tmp_path, check=True)
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:
            pass
        os.close(ours)
        assert (b"\x1b[" in shown) == coloured


def test_a_session_without_answers_has_no_picture(agent: Runner, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with Session.create(store, META, id=ID, disk=Quick()) as session:
        session.append(user("hello"))
    assert agent("sessions", "stats", ID, AGENT_SESSION_DIR=store).out.splitlines()[-1] == "no answers yet"
    assert Life().steps == []


def test_the_page_has_the_same_picture(agent: Runner, store: str) -> None:
    """Bars, both lines and both marks, with the window that holds here."""
    page = agent("sessions", "export", ID, "--format", "html", AGENT_SESSION_DIR=store, CONTEXT_WINDOW="200").out
    assert page.count('<rect class="bar"') == 4
    assert page.count('<line class="window"') == page.count('<line class="trigger"') == 1
    assert ">window 200</text>" in page and "window 200 (CONTEXT_WINDOW)" in page
    assert page.count("▼</text>") == page.count("▲</text>") == 1
