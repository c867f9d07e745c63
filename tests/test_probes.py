"""Asking servers for their window, in the form of each kind of server."""

from __future__ import annotations

from typing import Any

import pytest
from server import ScriptedServer
from wiring import asking

from agent.wire.probes import model_names, next_question, outcome, questions, window_in_models
from agent.wire.providers import Target

LISTINGS: list[tuple[Any, int | None]] = [
    ({"data": [{"id": "m", "meta": {"n_ctx": 2048, "n_ctx_train": 8192}}]}, 2048),
    ({"data": [{"id": "other", "max_model_len": 1}, {"id": "m", "max_model_len": 32768}]}, 32768),
    ([{"id": "m", "context_length": 131072}], 131072),
    ({"models": [{"name": "m", "inputTokenLimit": 1048576}]}, 1048576),
    ({"data": [{"id": "m", "context_window": 131072, "max_completion_tokens": 8192}]}, 131072),
    ({"data": [{"id": "m", "context_length": 200000, "top_provider": {"context_length": 128000}}]}, 128000),
    ({"data": [{"id": "m", "capabilities": {"limits": {"max_prompt_tokens": 90000, "max_context_window_tokens": 128000}}}]}, 90000),
    ({"data": [{"id": "whatever", "max_model_len": 4096}]}, 4096),
    ({"data": [{"id": "a", "max_model_len": 1}, {"id": "b", "max_model_len": 2}]}, None),
    ({"data": [{"id": "m", "max_model_len": "many"}]}, None),
    ({"data": None}, None), ("nonsense", None), (None, None),
]  # fmt: skip


@pytest.mark.parametrize("listing, expect", LISTINGS)
def test_a_window_in_a_list_of_models(listing: Any, expect: int | None) -> None:
    assert window_in_models(listing, "m") == expect


def test_names_of_models_in_any_shape() -> None:
    assert model_names({"data": [{"id": "a"}, {"name": "b"}, 3]}) == ["a", "b"]


ROUTES: list[tuple[str, dict[str, Any], int | None]] = [
    (
        "llamacpp",
        {"GET /v1/models": {"data": [{"id": "m"}]}, "GET /props": {"default_generation_settings": {"n_ctx": 2048}}},
        2048,
    ),
    ("", {"GET /v1/models": (404, {}), "GET /info": {"max_total_tokens": 4096}}, 4096),
    ("", {"GET /v1/model": {"parameters": {"max_seq_len": 8192}}}, 8192),
    ("ollama", {"GET /api/ps": {"models": [{"name": "m:latest", "context_length": 4096}]}}, 4096),
    ("ollama", {"GET /api/ps": {"models": []}, "POST /api/show": {"parameters": "stop x\nnum_ctx    16384"}}, 16384),
    ("lmstudio", {"GET /api/v0/models/m": {"loaded_context_length": 7424, "max_context_length": 131072}}, 7424),
    ("vllm", {"GET /v1/models": {"data": [{"id": "m", "max_model_len": 32768}]}}, 32768),
    ("", {}, None),
    ("openai", {"GET /v1/models": {"data": [{"id": "m", "max_model_len": 1}]}}, None),
]


@pytest.mark.parametrize("provider, routes, expect", ROUTES)
def test_each_kind_of_server_is_asked_in_its_own_way(provider: str, routes: dict[str, Any], expect: int | None) -> None:
    """And one that is known not to tell is not asked at all."""
    with ScriptedServer(routes=routes) as server:
        assert asking(server, provider=provider, model="m").client.ask_window() == expect
    assert provider != "openai" or server.asked == []


def test_a_server_that_is_not_there_is_no_window() -> None:
    with ScriptedServer() as server:
        asked = asking(server)
    assert asked.client.ask_window() is None


def asked_in(target: Target, answers: dict[str, int], runs: int) -> list[str | None]:
    """The questions that so many runs put, a minute apart, to a server that answers these."""
    known: dict[str, Any] = {}
    put = []
    for run in range(runs):
        now = 1_000_000 + 60 * run
        question = next_question(target, known, now)
        put.append(question)
        if question:
            facts = outcome(target, known, question, answers.get(question), now)
            known = {name: value for name, value in {**known, **facts}.items() if value is not None}
    return put


UNKNOWN = Target("", "http://127.0.0.1:5000/v1", "m")
HOSTED = Target("groq", "https://api.groq.com/openai/v1", "m")


def test_a_run_puts_one_question_and_the_next_another_until_one_is_answered() -> None:
    assert asked_in(UNKNOWN, {"lmstudio": 4096}, 6) == [
        "models",
        "props",
        "lmstudio",
        "lmstudio",
        "lmstudio",
        "lmstudio",
    ]


def test_a_server_that_answers_none_is_left_alone_for_a_day() -> None:
    every = list(questions(UNKNOWN))
    assert asked_in(UNKNOWN, {}, len(every) + 2) == [*every, None, None]
    tired = {"unanswered": every, "unanswered_at": 1_000_000}
    assert next_question(UNKNOWN, tired, 1_000_000 + 86_401) == every[0]
    assert outcome(UNKNOWN, tired, "models", None, 1_090_000)["unanswered"] == ["models"]


def test_a_local_server_of_a_known_kind_is_asked_its_own_question_each_time() -> None:
    """What it has loaded changes."""
    assert asked_in(Target("ollama", "http://127.0.0.1:11434/v1", "m"), {}, 3) == ["ollama"] * 3


def test_a_hosted_server_is_asked_once() -> None:
    assert asked_in(HOSTED, {}, 3) == ["models", None, None]
    assert outcome(HOSTED, {}, "models", 8192, 7) == {
        "question": "models", "unanswered": None, "unanswered_at": None, "asked": 8192, "asked_at": 7,
    }  # fmt: skip
