"""Sizes: the cheap estimate against a real tokenizer, what a context counts as, and the limits of a window."""

from __future__ import annotations

import base64
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import tokens
from agent.compaction import form, summary
from agent.errors import UsageError
from agent.messages import Usage

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "sessions"
HERE = Path(__file__).resolve().parent
RNG = random.Random(7)

TEXTS = {
    "English": (HERE.parent / "LICENSE").read_text(),
    "code": (HERE.parent / "agent" / "errors.py").read_text(),
    "Chinese": "我在写一个命令行助手，它会读写文件、运行命令，并且在窗口快满的时候压缩历史。" * 40,
    "Japanese": "こんにちは、私の名前は太郎です。東京に住んでいます。プログラムを書いています。" * 40,
    "Korean": "안녕하세요 제 이름은 철수이고 서울에 살고 있습니다. 프로그램을 만듭니다. " * 40,
    "Russian": "Привет, меня зовут Иван, и я живу в Москве. Сегодня мы пишем программу. " * 40,
    "emoji": "".join(RNG.choice("😀🎉👩🔥🚀❤️✅") for _ in range(1000)),
    "base64": base64.b64encode(RNG.randbytes(3000)).decode(),
    "hex": RNG.randbytes(2000).hex(),
    "JSON": json.dumps([{"id": i, "name": f"row {i}", "ok": i % 2 == 0} for i in range(200)]),
    "minified": "function a(b,c){return b.map(function(d){return d*c+" * 60,
}


@pytest.mark.parametrize("kind", TEXTS)
def test_the_estimate_errs_high_within_a_bound(kind: str) -> None:
    """Of long texts: never below 0.9 of tiktoken's count, never above 1.9 of it."""
    ratio = tokens.estimate(TEXTS[kind]) / tokens.count(TEXTS[kind])
    assert 0.9 <= ratio <= 1.9, f"{kind}: {ratio:.2f}"


def test_the_estimate_of_whole_sessions_is_high_and_no_more_than_a_third_too_high() -> None:
    """Real sessions, where they are at hand, and a session made of all the texts above."""
    sessions = [[{"role": "user", "content": text} for text in TEXTS.values()]]
    for path in sorted(SHARED.glob("*.jsonl")) if SHARED.is_dir() else []:
        lines = [json.loads(line) for line in path.read_text().split("\n") if line]
        sessions.append([line["message"] for line in lines if line["type"] == "message"])
    for messages in sessions:
        ratio = tokens.estimate_messages(messages) / tokens.estimate_messages(messages, measure=tokens.count)
        assert 0.99 <= ratio <= 1.34, f"{messages[0]}: {ratio:.2f}"


@given(st.text(), st.text())
def test_estimates_are_total_and_almost_additive(one: str, two: str) -> None:
    """Any text has a size, nothing has none, and cutting a text in two changes little."""
    whole = tokens.estimate(one + two)
    assert tokens.estimate("") == 0 and (whole > 0) == bool(one + two)
    assert whole <= tokens.estimate(one) + tokens.estimate(two) + 1 + len(one + two) // 2


def test_lone_surrogates_and_long_runs_are_counted_without_an_error_or_a_wait() -> None:
    assert tokens.count("\ud800 broken") > 0 and tokens.estimate("\ud800 broken") > 0
    assert tokens.count("x" * 1_000_000) > 0


def test_without_a_vocabulary_the_count_is_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_encoding", lambda: None)
    assert tokens.count(TEXTS["English"]) == tokens.estimate(TEXTS["English"])


def test_a_message_counts_its_calls_its_reasoning_and_its_images() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}
    plain = {"role": "assistant", "content": "Hello there"}
    size = tokens.message_tokens(plain)
    assert tokens.message_tokens({**plain, "tool_calls": [call]}) > size + 10
    assert tokens.message_tokens({**plain, "reasoning_content": "I think so, therefore"}) > size + 3
    image = [
        {"type": "text", "text": "Hello there"},
        {"type": "image_url", "image_url": {"url": "data:" + "x" * 99_999}},
    ]
    assert tokens.message_tokens({"role": "user", "content": image}) == size + tokens.IMAGE_TOKENS


# ---- the size of a context ----


def entry(n: int, role: str, text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "n": n, "message": {"role": role, "content": text}, **more}


def reported(n: int, prompt: int, k: int = 1, model: str = "m-1", completion: int = 5) -> dict[str, Any]:
    usage = Usage(prompt, completion).as_json()
    return entry(n, "assistant", "Yes, of course.", usage=usage, model=model, request={"k": k})


def test_the_last_report_counts_with_its_answer_and_what_came_after() -> None:
    entries = [entry(1, "user", "Hello"), reported(2, 1000), entry(3, "user", "And now?")]
    size = tokens.context_size({}, entries, "m-1")
    assert size.reported and 1005 < size.tokens < 1050


@pytest.mark.parametrize(
    ("meta", "last"),
    [
        ({}, reported(2, 1000, model="other")),
        ({}, reported(2, 0)),
        ({"counts": {"requests": 1}}, reported(2, 1000, k=1)),
        ({}, entry(2, "assistant", "Yes")),
    ],
    ids=["another model", "zero", "before the compaction", "no usage"],
)
def test_reports_that_do_not_hold_are_not_used(meta: dict[str, Any], last: dict[str, Any]) -> None:
    size = tokens.context_size(meta, [entry(1, "user", "Hello"), last], "m-1")
    assert not size.reported and size.tokens < 60


@pytest.mark.parametrize("counts", ["x", {"requests": [1]}, {"requests": None}, None])
def test_counts_that_are_none_make_no_report_void(counts: Any) -> None:
    """What was written into a file by hand."""
    entries = [entry(1, "user", "Hello"), reported(2, 1000, k=1)]
    assert tokens.context_size({"counts": counts}, entries, "m-1").reported


def test_a_report_far_below_the_estimate_is_no_size() -> None:
    """A server that cuts the prompt in silence reports what it saw, not what was sent."""
    entries = [entry(1, "user", "word " * 4000), reported(2, 100)]
    assert tokens.context_size({}, entries, "m-1").tokens > 3000


def test_a_dated_name_of_the_model_is_the_same_model() -> None:
    entries = [entry(1, "user", "Hello"), reported(2, 1000, model="gpt-4o-2024-08-06")]
    assert tokens.context_size({}, entries, "openai/gpt-4o").reported


def test_prompts_of_failed_turns_do_not_count() -> None:
    giant = entry(1, "user", "word " * 4000)
    failed = {"type": "failed", "n": 2, "prompt": 1, "error": {"kind": "overflow", "text": ""}}
    assert tokens.context_size({}, [giant, failed, entry(3, "user", "Hi")], "m").tokens < 20


def test_the_ratio_of_reported_to_estimated_corrects_the_estimate_and_lives_in_the_record() -> None:
    """Learnt from a report, bounded, and taken from the compaction record before the first report after it."""
    talk = [entry(1, "user", "word " * 4000), reported(2, 9000), entry(3, "user", "word " * 400)]
    ratio = tokens.calibration({}, talk, "m-1")
    assert 1.5 < ratio < 2.2
    assert tokens.context_size({}, talk, "m-1").tokens > 9000 + 1.4 * tokens.estimate("word " * 400)
    record = {"type": "compaction", "n": 4, "guard": {"ratio": ratio}}
    after = [record, entry(5, "user", "word " * 400)]
    assert tokens.context_size({}, after, "m-1").tokens == round(ratio * tokens.message_tokens(after[1]["message"]))
    assert tokens.calibration({}, [entry(1, "user", "a"), reported(2, 99_999)], "m-1") == tokens.RATIO_BOUNDS[1]


def test_what_a_server_adds_to_every_request_is_no_factor() -> None:
    """1,400 tokens of a gateway's own: one report of a short prompt does not triple what follows, two tell the truth."""
    said, more = entry(1, "user", "word " * 500), entry(3, "user", "word " * 20_000)
    small, large = (tokens.message_tokens(e["message"]) for e in (said, more))
    first = [said, reported(2, small + 1400), more]
    assert tokens.context_size({}, first, "m-1").tokens < (small + 1400 + large) * 1.31
    second = [*first, reported(4, small + 1400 + large), entry(5, "user", "word " * 20_000)]
    assert abs(tokens.context_size({}, second, "m-1").tokens - (small + 1400 + 2 * large)) < 100


def test_what_is_no_sample_of_a_tokenizer() -> None:
    """A report from before the compaction, a stretch without growth, one with an image: what follows is estimated."""
    large = entry(5, "user", "word " * 20_000)
    tokens_of = tokens.message_tokens(large["message"])
    long = entry(1, "user", "word " * 4000)
    about = tokens.message_tokens(long["message"])
    picture = {**entry(3, "user", ""), "message": {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}}
    shrunk = [long, reported(2, 30_000), entry(3, "user", "word " * 800), reported(4, about), large]
    pictured = [long, reported(2, about), picture, reported(4, about + 85), large]
    before = {**reported(2, 30_000), "request": {"k": 7}}
    old = [before, entry(3, "user", "word " * 4000), {**reported(4, about), "request": {"k": 9}}, large]
    for meta, talk in (({}, shrunk), ({}, pictured), ({"counts": {"requests": 8}}, old)):
        assert abs(tokens.context_size(meta, talk, "m-1").tokens / (about + tokens_of) - 1) < 0.15


def test_how_one_model_counts_says_nothing_of_another() -> None:
    record = {"type": "compaction", "n": 4, "guard": {"ratio": 2.5, "model": "m-1"}}
    after = [record, entry(5, "user", "word " * 400)]
    whole = tokens.message_tokens(after[1]["message"])
    assert tokens.context_size({}, after, "m-1").tokens == round(2.5 * whole)
    assert tokens.context_size({}, after, "other").tokens == whole


# ---- limits ----


@given(st.integers(700, 1_000_000))
def test_the_trigger_leaves_room_for_the_reply_and_for_the_compaction_itself(window: int) -> None:
    """0.75 of the window, never above window - reserve; trigger + instruction + summary fit the window."""
    limits = tokens.limits_for(window, "flag")
    assert limits.trigger == min(int(0.75 * window), window - limits.reserve)
    assert limits.keep == min(int(0.30 * window), limits.trigger // 2)
    assert limits.target == limits.trigger // 2
    cap = summary.summary_cap(window)
    order = {"role": "user", "content": form.instruction(cap, window)}
    assert limits.trigger + tokens.message_tokens(order) + cap <= window


def test_compact_at_takes_a_share_a_number_or_off() -> None:
    def trigger(value: Any, **more: Any) -> int | None:
        return tokens.limits_for(10_000, "flag", compact_at=value, **more).trigger

    assert [trigger(x) for x in (None, 0.5, 4000, "off", 0.99, 20_000)] == [7500, 5000, 4000, None, 7500, 7500]
    assert trigger(0.99, max_output=500) == 9500
    assert trigger(None, max_output=4000) == 6000
    assert tokens.limits_for(1_000_000, "flag", most=256_000).trigger == 256_000
    for bad in ("soon", 0, -1):
        with pytest.raises(UsageError, match="Cannot compact at"):
            trigger(bad)


def test_a_learnt_window_keeps_the_shares() -> None:
    limits = tokens.limits_for(128_000, "table", compact_at=0.5).for_window(4096)
    assert (limits.window, limits.source, limits.trigger) == (4096, "learned", 2048)
    assert tokens.limits_for(128_000, "table", compact_at="off").for_window(4096).trigger is None


def test_the_everyday_path_does_not_load_tiktoken() -> None:
    """Estimating in a fresh process leaves tiktoken, json and sqlite3 unloaded."""
    import subprocess
    import sys

    code = "import sys; from agent import tokens; tokens.estimate('hello'); print('tiktoken' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    )
    assert done.stdout == "False\n", done.stderr


DRAWN = [
    "=" * 79,
    "-" * 79,
    "_" * 40,
    "*" * 60,
    "#" * 100,
    "~" * 33,
    "." * 70,
    "%" * 50,
    "─" * 60,
    "═" * 60,
    "\t" * 40,
    "\n" * 24,
]


@pytest.mark.parametrize("line", DRAWN, ids=lambda line: repr(line[:2]))
def test_what_is_drawn_with_one_character_is_not_taken_for_words(line: str) -> None:
    """Rules, forms and empty cells cost a few tokens a line; an estimate that says otherwise cuts what fits."""
    text = f"{line}\nTitle\n" * 200
    assert tokens.count(text) <= tokens.estimate(text) <= 6 * tokens.count(text)
