"""The ladder, its occasions and its guards, on sessions in memory and models that only write summaries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from server import check_messages
from writers import READ, Talk, Writer, chatter, reply, sections, talk

from agent import tokens
from agent.compaction import summary
from agent.errors import APIError, AuthError, ContextOverflow, LimitError, StorageError, TemporaryError
from agent.events import Compacted, Compacting, NotCompacted, Notice
from agent.messages import Usage
from agent.views.printing import last_answer
from agent.views.stats import life
from agent.views.story import story
from agent.wire import encode_messages, prepare_for_wire

SMALL_TALK = sections("fine", "Small talk about everything and nothing at all")
FACTS = ("phoenix", "1.26", "read_file", "write_file")


def phoenix(model: Writer, **more: Any) -> Talk:
    """The first document's experiment: three facts, then a paragraph that crosses a window of 700."""
    made = talk(model, 700, "你是一个能操作本地文件和 shell 的助手，通过工具真正执行动作。" * 3, **more)
    made.say("user", "我在写一个叫 phoenix 的 Go 项目，帮我记住这个项目名")
    made.answer("好的，已记住。")
    background = "背景是读写文件和恢复会话。" * 40
    made.say("user", f"phoenix 用 Go 1.26 写，已经有 read_file 和 write_file 两个工具了，也记一下。{background}")
    made.answer("好的，已记住。")
    made.say("user", "给这个项目起一句简短的中文口号")
    return made


# ---- the experiment ----


@pytest.mark.parametrize(
    "answer",
    [
        reply(""),
        reply("DONE"),
        reply("## Goal\n- The user", "length", truncated=True),
        reply(None, "tool_calls", calls=1),
        reply("抱歉，我无法总结这段对话。"),
        reply(sections("没有什么特别的内容需要记录，一切正常。", "继续写项目")),
        reply("好的，口号是：浴火重生。"),
        reply("Half a", None, complete=False, error=TemporaryError("the stream ended early")),
        reply("Error: upstream timed out (504)"),
        reply(sections("The project has no name", "Write a project in the Go language, all in all") * 3),
        TemporaryError("500"),
        AuthError("401"),
        ContextOverflow("prompt is too long"),
    ],
    ids=lambda answer: repr(answer)[:60],
)
def test_whatever_the_summary_call_comes_to_the_facts_stay_and_the_context_shrinks(answer: Any) -> None:
    """Empty, obeying, cut, calling, refusing, hollow, broken off, an error text, an exception: all facts stay."""
    made = phoenix(Writer([answer]))
    before = tokens.estimate_messages(made.session.view())

    assert made.compactor.make_room()

    assert made.told() == ["Compacting", "Compacted"]
    assert [fact for fact in FACTS if fact not in made.whole()] == []
    assert tokens.estimate_messages(made.session.view()) < before
    assert made.texts()[-1] == "给这个项目起一句简短的中文口号"
    assert set(made.record()["checks"]["reasons"]) <= set(summary.REASONS)
    assert made.record()["strategy"] == "raw_fallback" and "truncation" in made.texts()[1]


def test_a_good_summary_is_taken_and_stands_in_its_frame() -> None:
    """Strategy, record, frame and kept messages of a compaction that went well."""
    good = sections("phoenix 用 Go 1.26，工具是 read_file 和 write_file", "写 phoenix")
    made = phoenix(Writer([reply(good)]))

    assert made.compactor.make_room()

    record, (system, standing, last) = made.record(), made.session.view()
    assert {key: record[key] for key in ("reason", "strategy", "folded", "kept", "archive", "model")} == {
        "reason": "threshold",
        "strategy": "window_plus_summary",
        "folded": [2, 5],
        "kept": 1,
        "archive": "0001",
        "model": "writer",
    }
    assert record["checks"]["ok"] and record["tokens"]["after_estimate"] < record["tokens"]["before"]
    assert system["role"] == "system" and standing["role"] == last["role"] == "user"
    assert standing["content"].startswith("[Messages 2..5 are left out here; a summary follows.")
    assert good in standing["content"]
    assert [e["type"] for e in made.session.entries] == ["compaction", "message", "message", "message"]


def test_the_system_message_and_the_numbers_of_what_is_kept_stay() -> None:
    made = phoenix(Writer([reply("")]))
    system, last = made.session.entries[0], made.session.entries[-1]
    made.compactor.make_room()
    assert made.session.entries[1] == system
    assert made.session.entries[-1] == last


# ---- when ----


def test_below_the_trigger_nothing_happens() -> None:
    made = talk()
    chatter(made, 2)
    assert not made.compactor.make_room()
    assert made.events == [] and made.model.requests == []


def test_off_is_off_and_an_overflow_is_still_answered() -> None:
    """compact_at off: no proactive compaction at any size; the reactive one works."""
    made = talk(window=700, compact_at="off")
    chatter(made, 40)
    made.say("user", "And now?")
    assert not made.compactor.make_room()
    made.compactor.after_overflow(ContextOverflow("too long", limit=700), 1)
    assert made.record()["reason"] == "overflow"
    assert tokens.estimate_messages(made.session.view()) < 525


def test_the_reported_size_of_the_last_answer_counts_and_what_came_after_it() -> None:
    """A conversation that the server reports as large is compacted; the report of another model is not believed."""
    made = talk(window=4000)
    chatter(made, 12)
    made.say("user", "Once more?")
    made.answer("Yes.", prompt_tokens=3200)
    made.say("user", "Thanks.")
    assert made.compactor.make_room()

    other = talk(Writer([reply(sections())], name="another-model"), window=4000)
    chatter(other, 12)
    other.say("assistant", "Yes.", model="writer", usage=Usage(3200, 10).as_json())
    assert not other.compactor.make_room()


def test_tool_results_after_the_last_report_are_counted_before_the_next_request() -> None:
    """Usage said 10 %, then one step brought 80 %: it is made smaller before it is sent."""
    made = talk(window=4000)
    made.say("user", "Read them all.")
    made.answer("I will.", prompt_tokens=400)
    made.act("a.txt", "line of text number one two three\n" * 400)
    assert made.compactor.make_room()
    assert tokens.estimate_messages(made.session.view()) < made.limits.trigger


def test_usage_before_a_compaction_is_void_after_it() -> None:
    """The stale figure of a kept answer does not start a second compaction."""
    made = talk(window=4000)
    chatter(made, 12)
    made.answer("Done.", prompt_tokens=3300)
    assert made.compactor.after_turn()
    made.say("user", "Next?")
    assert not made.compactor.make_room()
    assert len(made.model.requests) == 1


def test_fixed_parts_larger_than_the_window_are_one_clear_error() -> None:
    """System message and tools alone over the window: LimitError (exit 6); between trigger and window: sent."""
    made = talk(window=700, system="Rules. " * 900)
    made.say("user", "Hello")
    with pytest.raises(LimitError, match="system prompt and the tools alone take"):
        made.compactor.make_room()
    assert not made.compactor.after_turn()

    tight = talk(window=700, system="Rules. " * 280)
    tight.say("user", "Hello")
    assert not tight.compactor.make_room()


# ---- the ladder ----


def test_stubs_for_stale_results_are_enough_when_they_are_enough() -> None:
    """Rung 1: no model is asked, the stubs name their message, the last results stay, the next rung is not taken."""
    made = talk(window=8192)
    made.say("user", "Read all the files and tell me about them.")
    for step in range(9):
        made.act(f"file_{step}.txt", f"contents of file {step} " * (200 if step < 5 else 90))
    assert made.compactor.make_room()
    assert made.model.requests == []
    record, texts = made.record(), made.texts()
    assert record["strategy"] == "pruned"
    assert texts[1] == "Read all the files and tell me about them."
    assert texts[3].startswith("[Result of message 4 left out here, 3,800 characters; it began: contents of file 0")
    assert texts[-1] == "contents of file 8 " * 90
    assert [e.get("pruned", False) for e in made.session.entries[4::2]] == [True] * 5 + [False] * 4


def test_one_turn_with_sixty_steps_never_loses_its_prompt_or_parts_a_call_from_its_result() -> None:
    """In-turn cuts: 60 steps of 4 KB in a window of 8,192; the prompt stands word for word in every request."""
    made = talk(Writer([reply(sections("nothing in particular"))]), window=8192, tools=[READ])
    made.say("user", "Look at every file; never touch legacy/.")
    for step in range(60):
        made.compactor.make_room()
        view = made.session.view()
        assert "Look at every file; never touch legacy/." in [m["content"] for m in view if m["role"] == "user"]
        calls = [c["id"] for m in view for c in m.get("tool_calls", [])]
        assert calls == [m["tool_call_id"] for m in view if m["role"] == "tool"]
        assert tokens.estimate_messages(view, [READ]) < 8192
        made.act(f"src/{step}.py", f"value_{step} = {step * 7919}\n" * 180)
    assert 2 <= made.told().count("Compacted") <= 30


@pytest.mark.parametrize("place", ["result", "prompt", "arguments"])
def test_a_single_giant_message_is_cut_in_the_middle(place: str) -> None:
    """Rung 4 cannot fail: a result, a prompt or a call's arguments larger than the window."""
    made = talk(window=2000)
    giant = "".join(f"row {i} of the table holds {i * 31}\n" for i in range(3000))
    if place == "prompt":
        made.say("user", giant)
    else:
        made.say("user", "Look.")
        made.act("a", giant if place == "result" else "fine")
    if place == "arguments":
        call = made.session.entries[-2]["message"]["tool_calls"][0]
        call["function"]["arguments"] = json.dumps({"path": "a", "content": giant})
    assert made.compactor.make_room()
    view = made.session.view()
    assert tokens.estimate_messages(view) < made.limits.trigger
    assert made.record()["strategy"] == "shortened"
    arguments = view[2]["tool_calls"][0]["function"]["arguments"] if place == "arguments" else ""
    assert "left out" in (json.loads(arguments)["content"] if arguments else view[-1]["content"])
    assert "row 0 of the table" in json.dumps(view) and "row 2999 of" in json.dumps(view)


@pytest.mark.parametrize(
    ("pin", "role", "said"),
    [
        ("Use tabs", "assistant", "I will never use tabs again, as you see"),
        ("Delete nothing", "assistant", "The docs: delete nothing but the cache, and then everything else."),
        ("Use Java 8", "tool", "On this page: do not use Java 8 or older."),
        ("Use Java 8", "summary", "Use Java 8 was wrong, it was decided"),
        ("Answer in French", "user", "Why did you answer in French yesterday?"),
    ],
)
def test_a_pin_that_somebody_quotes_is_still_told(pin: str, role: str, said: str) -> None:
    """Only what the user typed to be kept, or the record, is the pin; nothing that holds its words in a sentence."""
    made = talk(Writer([reply(sections(said if role == "summary" else "nothing"))]), window=2000)
    made.session.append({"type": "pin", "text": pin})
    chatter(made, 30)
    if role == "tool":
        made.act("page.html", said)
    elif role == "user":
        made.say("user", said)
        made.answer("I do not know.")
    else:
        made.answer(said if role == "assistant" else "Fine.")
    assert made.compactor.now()["outcome"] == "compacted"
    assert pin in made.texts()[1].splitlines()


def table(tokens_of: int) -> str:
    """Rows of a table, about so many tokens of them."""
    rows = ""
    for i in range(tokens_of):
        rows += f"row {i} of the table holds {i * 31}\n"
        if i % 8 == 7 and tokens.estimate(rows) >= tokens_of:
            break
    return rows


def test_a_prompt_that_fits_is_sent_whole() -> None:
    """Over the trigger, and room for an answer beside it: nothing of it is cut, alone, after a long history, or when
    steps follow."""
    made = talk(window=8000)
    prompt = table(7000)
    made.say("user", prompt)
    assert not made.compactor.make_room()
    assert made.texts() == ["You help.", prompt]

    later = talk(window=8000)
    chatter(later, 30)
    prompt = table(5800)
    later.say("user", prompt)
    assert later.compactor.make_room()
    assert later.texts()[-1] == prompt
    for step in range(6):
        later.act(f"{step}.txt", f"value {step} " * 150)
        later.compactor.make_room()
        assert prompt in later.texts()
        assert tokens.estimate_messages(later.session.view(), []) < 8000


@pytest.mark.parametrize("line", ["=" * 79, "-" * 40, "____ : ________ | ", "." * 60])
def test_a_prompt_that_an_estimate_takes_for_long_and_that_fits_is_sent_whole(line: str) -> None:
    """Where the estimate says that it does not fit, it is counted, however far off the estimate is."""
    prompt = f"What is this?\n{f'{line}{chr(10)}' * 300}"
    window = 2 * tokens.count(prompt) + 200
    made = talk(window=window)
    made.say("user", prompt)
    assert not made.compactor.make_room()
    assert (made.texts()[-1], made.events) == (prompt, [])


def test_a_prompt_with_no_room_for_an_answer_is_cut_to_the_trigger() -> None:
    made = talk(window=8000)
    prompt = table(7700)
    made.say("user", prompt)
    assert made.compactor.make_room()
    assert 0.85 * made.limits.trigger < tokens.estimate_messages(made.session.view()) < made.limits.trigger
    (notice,) = [e for e in made.events if isinstance(e, Notice)]
    assert (notice.code, notice.text) == (
        "prompt_cut",
        f"a window of 8000 tokens has no room for the middle of the prompt ({len(prompt):,} characters): the model sees "
        "only its beginning and end",
    )


# ---- the call ----


def test_the_main_model_is_asked_with_the_conversation_as_its_prefix() -> None:
    """Same messages, same tools (shown, not callable), instruction last, a cap, temperature 0."""
    made = talk(window=4000, tools=[READ])
    chatter(made, 15)
    sent = made.session.view()
    made.compactor.make_room()
    (request,) = made.model.requests
    *prefix, order = request.messages
    assert prefix == sent[: len(prefix)] and len(prefix) > 10
    assert order["role"] == "user" and "## Goal" in order["content"]
    assert (list(request.tools), request.call_tools) == ([READ], False)
    assert (request.temperature, request.purpose) == (0.0, "summary")
    assert request.max_tokens is not None and request.max_tokens <= 4000 // 12


def test_another_model_gets_the_history_as_marked_text_and_the_main_model_stands_in_when_it_fails() -> None:
    cheap = Writer([TemporaryError("busy")], name="cheap")
    made = talk(Writer([reply(SMALL_TALK)]), summary_model=cheap)
    chatter(made, 30)
    assert made.compactor.make_room()
    (asked,) = cheap.requests
    assert [m["role"] for m in asked.messages] == ["system", "user"] and asked.tools == ()
    assert "<conversation>\n[2 user] Question 0" in asked.messages[1]["content"]
    assert made.record()["strategy"] == "window_plus_summary" and made.record()["model"] == "writer"


def test_a_head_larger_than_the_window_is_summarised_in_parts_that_fit() -> None:
    """A session resumed with a smaller model: every request for a summary fits, each updates the one before."""
    made = talk(Writer([reply(SMALL_TALK)]), window=1500)
    chatter(made, 60)
    assert made.compactor.make_room()
    sizes = [tokens.estimate_messages(r.messages, r.tools) + (r.max_tokens or 0) for r in made.model.requests]
    assert len(sizes) > 1 and max(sizes) <= 1500
    assert "<earlier_summary>" in made.model.requests[1].messages[1]["content"]


def test_an_overflow_of_the_summary_itself_is_tried_once_with_half_of_it() -> None:
    made = talk(Writer([ContextOverflow("too long"), reply(SMALL_TALK)]))
    chatter(made, 30)
    assert made.compactor.make_room()
    first, second = (tokens.estimate_messages(r.messages) for r in made.model.requests)
    assert second < 0.7 * first and made.record()["strategy"] == "window_plus_summary"


def test_ctrl_c_during_the_call_changes_nothing() -> None:
    made = talk(Writer([KeyboardInterrupt()]))
    chatter(made, 30)
    before = list(made.session.entries)
    with pytest.raises(KeyboardInterrupt):
        made.compactor.make_room()
    assert made.session.entries == before


def test_a_disk_that_refuses_leaves_the_history_and_the_turn_goes_on_where_it_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = talk(window=40_000, compact_at=2000)
    chatter(made, 30)
    before = list(made.session.entries)

    def full(entries: list[dict[str, Any]], **changes: Any) -> str:
        raise StorageError("no space left on device")

    monkeypatch.setattr(made.session, "rewrite", full)
    assert not made.compactor.make_room()
    *untouched, attempt = made.session.entries
    assert untouched == before and (attempt["type"], attempt["outcome"]) == ("attempt", "failed")
    assert made.told() == ["Compacting", "NotCompacted failed"]
    small = talk()
    chatter(small, 30)
    monkeypatch.setattr(small.session, "rewrite", full)
    with pytest.raises(StorageError, match="no space left"):
        small.compactor.make_room()
    with pytest.raises(StorageError, match="no space left"):
        small.compactor.after_overflow(ContextOverflow("too long"), 1)


def test_what_fits_is_not_cut_because_a_server_cannot_be_had() -> None:
    """An outage, a bad key: the history stays, and what does not fit is cut all the same."""
    for error in (TemporaryError("503"), AuthError("401"), TemporaryError("connection refused")):
        roomy, tight = talk(Writer([error]), window=40_000, compact_at=2000), talk(Writer([error]))
        for made, told in ((roomy, "NotCompacted failed"), (tight, "Compacted")):
            chatter(made, 30)
            before = list(made.session.view())
            assert made.compactor.make_room() == (made is tight)
            assert (made.session.view() == before, made.told()) == (made is roomy, ["Compacting", told])


def test_an_outage_holds_nothing_up_afterwards() -> None:
    """It counts as no attempt; within one run it is not asked again; the next process asks, also over the window."""
    made = talk(Writer([TemporaryError("503")]), window=9000, compact_at=2000)
    chatter(made, 12)
    compactor = made.compactor
    assert [compactor.make_room() for _ in range(3)] == [False] * 3
    assert len(made.model.requests) == 1
    made.answer("Well. " * 1500, prompt_tokens=9100)
    assert not made.compactor.after_turn()
    made.model.script = [reply(SMALL_TALK)]
    made.say("user", "Go on.")
    assert made.compactor.make_room()
    assert made.record()["strategy"] == "window_plus_summary"


def test_stubs_are_taken_where_no_summary_is_to_be_had() -> None:
    made = talk(Writer([TemporaryError("503")]), window=40_000, compact_at=2000)
    for step in range(9):
        made.act(f"a{step}.py", f"line {step} of a file\n" * 300)
    chatter(made, 20)
    assert made.compactor.make_room()
    assert made.record()["strategy"] == "pruned"


def test_where_not_all_pins_fit_the_short_ones_stay() -> None:
    made = talk(window=4000)
    pins = ["Never push to main.", "A long one: " + "about the harbour " * 900, "Answer in French only."]
    for pin in pins:
        made.session.append({"type": "pin", "text": pin})
    chatter(made, 30)
    assert made.compactor.make_room()
    assert [pin in made.whole() for pin in ("Never push to main", pins[1], "Answer in French only")] == [
        True,
        False,
        True,
    ]


def test_no_summary_is_asked_for_where_pins_take_all_that_it_could_gain() -> None:
    """They stand in every record: a call of which nothing can come costs money and time."""
    made = talk(Writer([reply(sections("none"))]), window=4000)
    made.session.append({"type": "pin", "text": "Never touch " + ", ".join(f"legacy{i}/" for i in range(900))})
    chatter(made, 15)
    assert not made.compactor.make_room()
    assert made.model.requests == []


def test_an_answer_without_text_is_asked_for_once_more_with_no_tools_in_sight() -> None:
    for first in (reply(None, "tool_calls", calls=1), reply("")):
        made = talk(Writer([first, reply(SMALL_TALK)]), window=40_000, compact_at=2000, tools=[READ])
        chatter(made, 30)
        assert made.compactor.make_room()
        assert [bool(request.tools) for request in made.model.requests] == [True, False]
        assert made.record()["usage"]["prompt_tokens"] == 200
        assert made.record()["strategy"] == "window_plus_summary"


# ---- guards ----


def test_at_most_two_in_a_row_where_the_reported_size_stays_over_the_trigger() -> None:
    """A server that reports the same large size whatever is sent: two compactions, then quiet, until it has grown."""
    made = talk(window=4000)
    chatter(made, 30)
    for _ in range(12):
        made.compactor.make_room()
        made.answer("Going on.", prompt_tokens=3900)
        made.say("user", "Go on.")
    assert made.told().count("Compacted") <= 2


def test_two_that_gain_little_are_the_last_until_the_context_has_grown() -> None:
    """Two strikes are remembered in the file: a new process does not start again."""
    made = talk(window=4000)
    chatter(made, 30)
    done = []
    for _ in range(6):
        done.append(made.compactor.make_room())
        made.answer("Going on.", prompt_tokens=3050)
        made.say("user", "Go on, please, there is not much to say.")
    assert sum(done) <= 2


def test_no_second_compaction_without_growth() -> None:
    made = talk(window=4000)
    chatter(made, 30)
    assert made.compactor.make_room()
    assert not made.compactor.make_room()
    assert made.told().count("Compacted") == 1


# ---- overflow ----


def test_an_overflow_teaches_the_window_and_the_deficit_is_covered() -> None:
    made = talk(window=128_000)
    chatter(made, 60)
    made.say("user", "Well?")
    compactor = made.compactor
    compactor.after_overflow(ContextOverflow("n_ctx", have=5000, limit=4096), 1)
    assert (compactor.limits.window, compactor.limits.source, compactor.limits.trigger) == (4096, "learned", 3072)
    assert tokens.estimate_messages(made.session.view()) < 3072
    assert made.texts()[-1] == "Well?"


def test_the_second_attempt_is_harder_and_asks_no_model() -> None:
    made = talk(window=8000)
    chatter(made, 60)
    made.say("user", "Well?")
    compactor = made.compactor
    compactor.after_overflow(ContextOverflow("too long"), 1)
    first, asked = tokens.estimate_messages(made.session.view()), len(made.model.requests)
    compactor.after_overflow(ContextOverflow("too long"), 2)
    assert tokens.estimate_messages(made.session.view()) < 0.75 * first
    assert len(made.model.requests) == asked


def test_an_overflow_of_next_to_nothing_ends_with_the_servers_words() -> None:
    """Nothing left to leave out: exit 6, the server's text verbatim, no loop."""
    made = talk()
    made.say("user", "Hi")
    with pytest.raises(LimitError, match="your input exceeds the maximum context"):
        made.compactor.after_overflow(ContextOverflow("your input exceeds the maximum context"), 1)


# ---- by hand ----


def test_by_hand_below_the_trigger_with_wishes_and_a_dry_run() -> None:
    made = talk(Writer([reply(SMALL_TALK)]), window=100_000)
    chatter(made, 20)
    before = list(made.session.entries)
    shown = made.compactor.now(instructions="keep API names", dry_run=True)
    assert shown["outcome"] == "would_compact" and "Small talk" in shown["summary"]
    assert made.session.entries == before and made.events == []

    done = made.compactor.now(instructions="keep API names")
    assert (done["outcome"], done["reason"], done["strategy"]) == ("compacted", "manual", "window_plus_summary")
    assert "keep API names" in made.model.requests[-1].messages[-1]["content"]


def test_by_hand_the_three_reasons_for_nothing_are_three_notices() -> None:
    """Nothing to compact; no summary produced; failed, history kept."""
    short = talk()
    short.say("user", "Hi")
    assert short.compactor.now()["outcome"] == "nothing"
    assert short.told() == ["NotCompacted nothing"]

    silent = talk(Writer([reply("")]), window=100_000)
    chatter(silent, 20)
    assert silent.compactor.now(dry_run=True)["outcome"] == "no_summary"
    assert silent.session.entries[-1]["type"] == "message"
    assert silent.compactor.now()["outcome"] == "no_summary"
    attempt = {k: v for k, v in silent.session.entries[-1].items() if k not in ("at", "ms")}
    assert attempt == {
        "type": "attempt",
        "n": 42,
        "reason": "manual",
        "outcome": "no_summary",
        "text": "the answer holds no text",
        "tokens": {"before": attempt["tokens"]["before"], "after_estimate": attempt["tokens"]["before"]},
        "checks": {"ok": False, "reasons": ["empty"], "anchors": 0, "hit": 0},
        "guard": {"strikes": 0, "row": 0, "ratio": 1.0, "model": "writer"},
        "model": "writer",
        "usage": {"prompt_tokens": 200, "completion_tokens": 40, "cached_tokens": 160},
        "error": "the answer holds no text",
    }

    broken = talk(Writer([APIError("the server is gone")]), window=100_000)
    chatter(broken, 20)
    outcome = broken.compactor.now()
    assert outcome["outcome"] == "failed" and "the server is gone" in outcome["text"]
    assert [type(e) for e in broken.events] == [Compacting, NotCompacted]
    assert len(broken.session.view()) == 41


def test_by_hand_strategy_and_keep() -> None:
    made = talk(window=100_000)
    chatter(made, 20)
    done = made.compactor.now(strategy="raw_fallback", keep=200)
    assert done["strategy"] == "raw_fallback" and made.model.requests == []
    assert sum(tokens.message_tokens(m) for m in made.session.view()[2:]) <= 200
    assert isinstance(made.events[-1], Compacted)


# ---- what lasts ----


def test_ten_compactions_in_a_row_keep_what_the_user_typed_and_pinned() -> None:
    """User-typed facts, constraints and pins are all there after ten compactions whose summaries say nothing."""
    made = talk(Writer([reply(sections("They went on"))]), window=3000)
    made.session.append({"type": "pin", "text": "The customer is called Ärger & Söhne."})
    facts = [f"The port of service {name} is {4100 + 97 * place}." for place, name in enumerate("abcdefgh")]
    for fact in facts:
        made.say("user", f"{fact} What else?")
        made.answer("Noted.")
    made.say("user", "Never deploy on Fridays. 不要修改 legacy 目录。")
    made.answer("Understood.")
    while made.told().count("Compacted") < 10:
        chatter(made, 4)
        made.say("user", "Go on.")
        made.compactor.make_room()
    wanted = [*facts, "Never deploy on Fridays.", "不要修改 legacy 目录。", "The customer is called Ärger & Söhne."]
    assert [fact for fact in wanted if fact.rstrip(".。") not in made.whole()] == []
    assert made.record()["archive"] == "0010"


def test_a_later_summary_is_told_to_update_the_earlier_one_and_speaks_for_all_messages() -> None:
    made = talk(Writer([reply(SMALL_TALK)]), window=2000)
    chatter(made, 15)
    assert made.compactor.make_room()
    chatter(made, 15)
    assert made.compactor.make_room()
    assert made.texts()[1].startswith("[Messages 2..")
    assert made.record()["folded"][0] == 2 or "Messages 2.." in made.texts()[1]
    assert (
        "record of earlier messages" in made.model.requests[-1].messages[-1]["content"]
        or len(made.model.requests[-1].messages) == 2
    )


def test_between_compactions_each_request_begins_with_the_bytes_of_the_one_before() -> None:
    """A prompt cache holds: over a long conversation the sent bytes change only where a compaction is reported."""
    made = talk(Writer([reply(SMALL_TALK)]), window=3000, tools=[READ])
    last, broken = b"", 0
    for turn in range(30):
        made.say("user", f"Question {turn}: " + "what do you make of it all then " * 12)
        made.compactor.make_room()
        sent = encode_messages(prepare_for_wire(made.session.view()))[:-1]
        broken += not sent.startswith(last)
        last = sent
        made.act(f"src/{turn}.py", "value = 1\n" * 20)
        made.answer("Well, one could say this or that about it.")
    assert broken == made.told().count("Compacted") > 1


def test_a_summary_model_with_a_smaller_window_gets_what_fits_it() -> None:
    cheap = Writer([reply(SMALL_TALK)], name="cheap", window=1200)
    made = talk(window=8000, summary_model=cheap)
    chatter(made, 40)
    assert made.compactor.make_room()
    assert made.record()["model"] == "writer" and made.model.requests == []
    assert all(tokens.estimate_messages(r.messages) + (r.max_tokens or 0) <= 1200 for r in cheap.requests)


def test_an_overflow_with_a_limit_above_ours_does_not_raise_the_window() -> None:
    made = talk(window=4000)
    chatter(made, 30)
    compactor = made.compactor
    compactor.after_overflow(ContextOverflow("too long", have=9000, limit=8192), 1)
    assert compactor.limits.window == 4000


def test_what_a_compaction_does_not_know_survives_it() -> None:
    """Entries of unknown types and unknown keys of kept entries come through the rewrite."""
    made = talk()
    made.session.append({"type": "bookmark", "text": "here"})
    chatter(made, 30)
    made.say("user", "Next?", mood="curious")
    assert made.compactor.make_room()
    assert [e["text"] for e in made.session.entries if e["type"] == "bookmark"] == ["here"]
    assert made.session.entries[-1]["mood"] == "curious"


def test_an_attempt_stays_in_the_archive_when_a_later_one_succeeds() -> None:
    made = talk(Writer([reply(""), reply(""), reply(SMALL_TALK)]), window=100_000)
    chatter(made, 20)
    assert [made.compactor.now()["outcome"] for _ in range(2)] == ["no_summary", "compacted"]
    assert [e["type"] for e in made.session.entries if e["type"] != "message"] == ["compaction"]
    (_, _, archived), _ = made.session.generations()
    assert [e["type"] for e in archived if e["type"] != "message"] == ["attempt"]


def test_what_a_summary_model_took_in_vain_is_on_record_too() -> None:
    """It failed, the conversation's own model wrote the summary: two calls, two entries."""
    cheap = Writer([reply("I cannot do that.")], name="cheap")
    made = talk(Writer([reply(SMALL_TALK)]), window=100_000, summary_model=cheap)
    chatter(made, 20)
    assert made.compactor.now(dry_run=True)["outcome"] == "would_compact"
    assert made.session.entries[-1]["type"] == "message"
    assert made.compactor.now()["outcome"] == "compacted"
    (_, _, archived), (_, _, present) = made.session.generations()
    assert [(e["outcome"], e["usage"]["prompt_tokens"]) for e in archived if e["type"] == "attempt"] == [
        ("no_summary", 100)
    ]
    assert [e["usage"]["prompt_tokens"] for e in present if e["type"] == "compaction"] == [100]
    assert life(story(made.session)).totals.requests == 22


@pytest.mark.parametrize("arguments", ['{"path": ' + "[" * 1500, "[" * 100_000, '{"a":' * 3000])
def test_arguments_as_deep_as_a_stuck_model_writes_them_are_folded_like_any(arguments: str) -> None:
    made = talk(window=4000)
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
    made.session.append({"type": "message", "message": {"role": "assistant", "content": None, "tool_calls": [call]}})
    made.session.append({"type": "message", "message": {"role": "tool", "tool_call_id": "c1", "content": "no JSON"}})
    chatter(made, 30)
    assert made.compactor.make_room()
    assert check_messages(prepare_for_wire(made.session.view())) is None


# ---- the role of the summary ----


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_the_summary_has_the_role_that_is_asked_for(role: str) -> None:
    """Over several compactions; whatever it is, a strict server takes what is sent, and the system prompt is whole."""
    made = talk(window=4000, role=role, system="You help. " * 20)
    compacted = 0
    for turn in range(60):
        made.say("user", f"Question {turn}: what do you make of service s{turn} on port {4100 + turn}? " * 4)
        compacted += made.compactor.make_room()
        assert check_messages(prepare_for_wire(made.session.view())) is None
        made.answer("Well, one could say this or that about it, " * 10)
    assert compacted >= 3
    (summary,) = (e for e in made.session.entries if e.get("summary"))
    assert summary["message"]["role"] == role
    assert made.session.view()[0]["content"] == "You help. " * 20
    assert "port 4100" in made.whole()


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_a_summary_is_no_answer_to_a_prompt_that_failed(role: str) -> None:
    """What was left out of the view before a compaction stays left out after it, and after the next one."""
    made = talk(window=4000, role=role)
    chatter(made, 30)
    poison = made.say("user", "POISON " * 20)
    assert made.compactor.make_room()
    made.session.append({"type": "failed", "prompt": poison["n"], "error": {"kind": "refused", "text": "no"}})
    assert "POISON" not in made.whole()
    chatter(made, 30)
    assert made.compactor.make_room()
    assert "POISON" not in [m["content"][:6] for m in made.session.view()]
    assert life(story(made.session)).totals.requests == 60 + 2
    assert last_answer(made.session.entries).startswith("Well, one could say")


def test_without_a_system_prompt_a_summary_in_its_role_is_still_folded_into_the_next() -> None:
    made = talk(window=4000, role="system", system="")
    chatter(made, 30)
    assert made.compactor.make_room()
    chatter(made, 30)
    assert made.compactor.make_room()
    assert sum(bool(e.get("summary")) for e in made.session.entries) == 1


def test_pins_that_find_no_room_are_told() -> None:
    """Nothing that was promised goes without a word."""
    made = talk(window=900)
    made.session.append({"type": "pin", "text": "Keep this: " + "a long rule about the harbour service " * 120})
    chatter(made, 12)
    assert made.compactor.make_room()
    told = [e for e in made.events if isinstance(e, Notice)]
    assert [(e.code, e.text) for e in told] == [
        (
            "pins_left_out",
            'a window of 900 tokens has no room for 1 of the pins: "Keep this: a long rule about the harbour"',
        )
    ]
