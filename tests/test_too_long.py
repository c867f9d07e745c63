"""A context that is too long for a server, however it says so, ends no run and no session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Runner
from server import ScriptedServer, cut, overflow, status, text
from test_run import at, only_log

from agent.session import Session


def holding(characters: int, words: str, answer: str = "word " * 60) -> Any:
    """A server that takes so much and refuses what is longer with these words."""

    def script(request: dict[str, Any], index: int) -> Any:
        size = len(json.dumps(request["messages"]))
        return text(answer) if size <= characters else status(400, {"error": {"message": words}})

    return script


def told(server: ScriptedServer) -> list[int]:
    """The characters of each request's messages."""
    return [len(json.dumps(request["messages"])) for request in server.requests]


@pytest.mark.parametrize(
    "words",
    [
        "Request too long for this model",
        "Prompt exceeds budget",
        "tokens_in=15846 ctx=8192 rejected",
        "Bağlam uzunluğu aşıldı",
        "This conversation cannot be continued. Please start a new one.",
        "bad request",
    ],
)
def test_in_words_that_nobody_knows(words: str, agent: Runner, home: Path) -> None:
    """What is longer than all that the server took is made much shorter once; that goes through, and can be shown."""
    with ScriptedServer(holding(14_000, words)) as server:
        env = at(server)
        agent("one " + "lorem ipsum " * 1000, **env)
        done = agent("--last", "two " + "dolor sit amet " * 100, **env)
        later = agent("--last", "three", **env)
        checked = agent("sessions", "replay", only_log(home).stem, "--check")
    assert (done.code, done.out, later.code, checked.code) == (0, "word " * 60 + "\n", 0, 0)
    assert server.requests[-1]["messages"][-1]["content"] == "three"
    assert server.violations == []


def test_what_is_refused_for_another_reason_leaves_the_history_as_it_was(agent: Runner, home: Path) -> None:
    """One more request, and everything is as before; the words of the server are the error."""
    replies = [text("word " * 60), text("word " * 60)]

    def script(request: dict[str, Any], index: int) -> Any:
        return replies[index] if index < 2 else status(400, {"error": {"message": "the moon is not full"}})

    with ScriptedServer(script) as server:
        env = at(server)
        agent("one " + "lorem ipsum " * 500, **env)
        agent("--last", "two " + "dolor sit " * 400, **env)
        before = Session.read(str(only_log(home).parent), only_log(home).stem).view()
        done = agent("--last", "three " + "amet " * 2000, **env)
        after = Session.read(str(only_log(home).parent), only_log(home).stem)
        checked = agent("sessions", "replay", only_log(home).stem, "--check")
    assert (done.code, done.out) == (1, "")
    assert "the moon is not full" in done.err.splitlines()[-1]
    assert "the shorter context did not help; the history is restored" in done.err
    assert after.view() == before
    assert (len(server.requests), checked.code) == (4, 0)
    assert told(server)[-1] < told(server)[-2] // 2


MOON = status(400, {"error": {"message": "the moon is not full"}})


@pytest.mark.parametrize(
    ("replies", "code", "said"),
    [
        ([MOON, status(401, {"error": {"message": "bad key"}})], 3, "bad key"),
        ([MOON, status(402, {"error": {"message": "no credit"}})], 1, "no credit"),
        ([MOON, cut("")], 75, "peer closed connection"),
        ([MOON, overflow(9000, 6000), MOON, MOON], 1, "the moon is not full"),
        ([status(400, {"error": {"message": "prompt is too long"}})] * 9, 6, "cannot be made to fit"),
        ([MOON, *[status(413, {"error": {"message": "Request body too large"}})] * 9], 6, "cannot be made to fit"),
    ],
)
def test_where_nothing_is_answered_in_the_end_the_history_is_as_it_was(
    replies: list[Any], code: int, said: str, agent: Runner, home: Path
) -> None:
    """However it ends: what was made smaller in vain is put back, pins and all, and the next run sees it."""
    first = [text("Answer. " + "lorem ipsum " * 300), text("Answer. " + "dolor sit " * 300)]
    with ScriptedServer([*first, *replies, *replies[-1:] * 8]) as server:
        env = at(server, CONTEXT_WINDOW="200000", AGENT_RETRY_SECONDS="0.1")
        agent("one", "--pin", "Never touch legacy/", **env)
        agent("--last", "two", **env)
        id, folder = only_log(home).stem, str(only_log(home).parent)
        before = Session.read(folder, id).view()
        done = agent("--last", "three " + "amet " * 2000, **env)
        after = Session.read(folder, id).view()
        checked = agent("sessions", "replay", id, "--check")
    assert (done.code, said in done.err, checked.code) == (code, True, 0), done.err
    assert after[: len(before)] == before and len(after) <= len(before) + 1
    with ScriptedServer([text("fine")]) as server:
        later = agent("--last", "four", **at(server, CONTEXT_WINDOW="200000"))
    assert (later.out, "Never touch legacy/" in json.dumps(server.requests[0])) == ("fine\n", True)


def test_a_compaction_that_the_run_took_back_is_not_there_to_be_redone(agent: Runner, home: Path) -> None:
    with ScriptedServer(
        [text("word " * 60), *[status(413, {"error": {"message": "Request body too large"}})] * 9]
    ) as server:
        env = at(server, CONTEXT_WINDOW="200000")
        agent("one " + "lorem ipsum " * 300, **env)
        assert agent("--last", "two " + "amet " * 2000, **env).code == 6
        redone = agent("sessions", "undo", "--redo", only_log(home).stem)
    assert (redone.code, "has no undo" in redone.err) == (4, True), redone.err


def test_a_cap_is_not_lowered_to_a_window_that_the_server_has_outgrown(agent: Runner) -> None:
    """A guessed window, or one that is smaller than what was taken, says nothing of the room for an answer."""
    with ScriptedServer([text("word " * 60, usage=(13_707, 60))], repeat_last=True) as server:
        for more in ({}, {"CONTEXT_WINDOW": "12000"}):
            agent("one", "--compact-at", "off", "--max-tokens", "2000", **at(server, **more))
            agent("--last", "two", "--compact-at", "off", "--max-tokens", "2000", **at(server, **more))
    assert [request["max_tokens"] for request in server.requests] == [2000] * 4


def test_what_was_tried_in_vain_is_not_tried_again_before_an_answer(agent: Runner, home: Path) -> None:
    with ScriptedServer(
        [text("Answer. " + "lorem ipsum " * 300), MOON, MOON, MOON, text("fine"), MOON, MOON]
    ) as server:
        env = at(server)
        agent("one", **env)
        for prompt in ("two " + "amet " * 2000, "three " + "amet " * 2000, "four", "five " + "amet " * 2500):
            agent("--last", prompt, **env)
    assert len(server.requests) == 7


def test_an_image_is_never_left_out_on_a_guess(agent: Runner, home: Path, tmp_path: Path) -> None:
    (tmp_path / "i.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    with ScriptedServer([MOON]) as server:
        done = agent("-f", str(tmp_path / "i.png"), "what is in it? " + "lorem ipsum " * 2000, **at(server))
    assert (done.code, len(server.requests)) == (1, 1)


def test_another_model_is_not_known_by_what_the_first_one_took(agent: Runner, home: Path) -> None:
    """A long session that goes on with a model whose server holds less, and says so in words of its own."""
    with ScriptedServer([text("Answer. " + "lorem ipsum " * 2000)] * 2) as server:
        agent("one", **at(server, CONTEXT_WINDOW="200000"))
        agent("--last", "two", **at(server, CONTEXT_WINDOW="200000"))
    with ScriptedServer(holding(14_000, "no", "fine")) as server:
        done = agent("--last", "-m", "smaller", "three", **at(server, CONTEXT_WINDOW="200000"))
    assert (done.code, done.out) == (0, "fine\n"), done.err


def test_a_short_request_is_not_made_shorter(agent: Runner, home: Path) -> None:
    with ScriptedServer([status(400, {"error": {"message": "the moon is not full"}})]) as server:
        done = agent("hello", **at(server))
    assert (done.code, len(server.requests)) == (1, 1)


@pytest.mark.parametrize("characters", [14_000, 5_000, 2_500])
def test_a_window_that_is_a_small_part_of_what_was_believed(characters: int, agent: Runner, home: Path) -> None:
    """Refusals state no number: each attempt is harder, and the same run ends well."""
    long = text("Answer. " + "lorem ipsum dolor sit amet " * 200)
    with ScriptedServer([long] * 12) as server:
        env = at(server, CONTEXT_WINDOW="1000000")
        agent("one", **env)
        for _ in range(11):
            agent("--last", "go on", **env)
    with ScriptedServer(holding(characters, "prompt is too long", "fine")) as server:
        done = agent("--last", "and now?", **at(server, CONTEXT_WINDOW="1000000"))
    assert (done.code, done.out) == (0, "fine\n"), done.err
    assert told(server)[0] > 50_000 and server.requests[-1]["messages"][-1]["content"] == "and now?"


def test_a_summary_without_end_is_not_waited_for(agent: Runner, home: Path) -> None:
    """A server that holds the summary call to no limit: what is far longer than was asked for is cut, and judged so."""
    with ScriptedServer([text("word " * 700), text("word " * 700), text("and so on " * 60_000), text("ok")]) as server:
        env = at(server)
        agent("one", **env)
        agent("--last", "two", **env)
        done = agent("--last", "three", "--window", "2k", **env)
    assert (done.code, done.out) == (0, "ok\n")
    assert "no summary (the answer was cut by its token limit;" in done.err


def test_a_compaction_by_hand_whose_request_is_refused_asks_with_less(agent: Runner, home: Path) -> None:
    """The conversation as it was sent is refused; as marked text, of which a part is left out, it is taken."""

    def script(request: dict[str, Any], index: int) -> Any:
        asked = "## Goal" in request["messages"][-1]["content"]
        refused = asked and len(json.dumps(request["messages"])) > 9_000
        return status(400, {"error": {"message": "no"}}) if refused else text("word " * 700)

    with ScriptedServer(script) as server:
        env = at(server)
        for prompt in ("one", "two", "three", "four", "five"):
            agent(*(["--last"] if prompt != "one" else []), prompt, **env)
        agent("sessions", "compact", only_log(home).stem, **env)
    first, second = server.requests[5:]
    assert [len(first["messages"]) > 6, len(second["messages"])] == [True, 2]
    assert second["messages"][1]["content"].startswith("<conversation>")
