"""Each check of the doctor, against servers that do and do not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from server import ScriptedServer, calls, hang, status, text
from wiring import KEY

from agent.wire.doctor import Check, examine, first_on_path
from agent.wire.memory import Memory
from agent.wire.providers import Target

MODELS = {"data": [{"id": "good", "meta": {"n_ctx": 4096}}]}


def answering(request: dict[str, Any], index: int) -> Any:
    """A server that can everything."""
    if request.get("tools"):
        return calls([("report", {"word": "ready"})])
    return text("one two three four five", usage=(9, 5, 2))


def examined(server: ScriptedServer, **about: Any) -> list[Check]:
    target = Target(
        "", server.url, about.pop("model", "good"), KEY, key_variable="OPENAI_API_KEY", source="OPENAI_BASE_URL"
    )
    return list(examine(target, {}, **about))


def test_a_server_that_can_everything_is_all_ok(tmp_path: Path) -> None:
    with ScriptedServer(answering, routes={"GET /v1/models": MODELS}) as server:
        checks = examined(server)
    lines = [(c.name, c.state, c.text) for c in checks if c.name not in ("command", "answer")]
    assert lines == [
        ("configuration", "ok", f"good at {server.url} (from OPENAI_BASE_URL), key from OPENAI_API_KEY"),
        ("models", "ok", "good is one of 1"),
        ("stream", "ok", "3 fragments"),
        ("usage", "ok", "9 tokens in, 2 from the cache, 5 out"),
        ("tools", "ok", 'called report {"word": "ready"}'),
        ("response_format", "ok", "json_object is taken"),
        ("window", "ok", "4096 tokens, stated by the server"),
    ]
    assert server.violations == []
    assert KEY not in repr(checks)


def test_a_server_that_takes_no_tools_and_counts_nothing() -> None:
    """Warnings, each with what to do; what was learned is remembered."""

    def plain(request: dict[str, Any], index: int) -> Any:
        if request.get("tools"):
            return status(400, {"error": {"message": "this model does not support tools"}})
        if request.get("response_format"):
            return status(400, {"error": "'response_format.type' must be 'json_schema' or 'text'"})
        return text("one two three", usage=None, pieces=1)

    memory = Memory()
    with ScriptedServer(plain) as server:
        checks = examined(server, model="other", memory=memory)
    states = {c.name: (c.state, bool(c.next)) for c in checks if c.name != "command"}
    assert states == {
        "configuration": ("ok", False), "models": ("warning", True), "answer": ("ok", False), "stream": ("warning", True),
        "usage": ("warning", True), "tools": ("warning", True), "response_format": ("warning", False),
        "dialect": ("ok", False), "window": ("warning", True),
    }  # fmt: skip
    assert memory.of(server.url, "other")["dialect"] == {"tools": False, "drop": ["response_format"]}


def test_a_wrong_key_is_a_failed_check_with_advice() -> None:
    with ScriptedServer([status(401, {"error": {"message": f"Incorrect API key {KEY}"}})]) as server:
        checks = examined(server)
    failed = next(c for c in checks if c.state == "failed")
    assert (failed.name, failed.text) == (
        "answer", "The server does not accept the API key (HTTP 401): Incorrect API key [redacted]",
    )  # fmt: skip
    assert failed.next.startswith("Check the key")


def test_a_silent_server_ends_in_time() -> None:
    with ScriptedServer([hang()], repeat_last=True) as server:
        target = Target("", server.url, "m")
        from agent.client import ChatClient

        client = ChatClient(target, environ={}, first_byte_timeout=0.05, sleep=lambda seconds: None)
        checks = list(examine(target, {}, client=client))
    assert [(c.name, c.state) for c in checks if c.state == "failed"] == [("answer", "failed")]


def test_another_agent_before_ours_is_said(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        program = tmp_path / name / "agent"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    first = first_on_path({"PATH": os.pathsep.join([theirs, ours])}, ours)
    assert (first.state, first.text) == ("warning", f"`agent` is {theirs}/agent, not this program")
    assert first_on_path({"PATH": os.pathsep.join([ours, theirs])}, ours).state == "ok"
    assert first_on_path({"PATH": "/nowhere"}, ours).state == "warning"
