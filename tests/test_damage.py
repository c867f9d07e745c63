"""Damage and company as a user meets them: `agent -c` on a broken, torn, busy or missing session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import Runner
from lives import META, ask
from server import ScriptedServer, text

from agent.session import Session

ID = "20260101-100000-abc12345"
BAD = {
    "NULs": bytes(300) + b"\n",
    "glued records": b'{"type":"note","n":7}{"type":"note","n":8}\n',
    "a raw line end": b'{"type":"message","n":7,"message":{"role":"user","content":"broken\nhere"}}\n',
    "not UTF-8": b'{"type":"message","n":7,"message":{"role":"user","content":"\xff"}}\n',
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with one session of one turn."""
    monkeypatch.setenv("AGENT_SESSION_DIR", str(tmp_path / "store"))
    with Session.create(str(tmp_path / "store"), META, id=ID) as session:
        ask(session, "before")
    return tmp_path / "store"


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_stops_the_run_and_doctor_mends_it(agent: Runner, store: Path, name: str) -> None:
    """Exit 4 naming the line, no request, not a byte changed; after `agent doctor ID` the turn goes through, and the
    damaged file is still there, byte for byte."""
    log = store / f"{ID}.jsonl"
    with open(log, "ab") as file:
        file.write(BAD[name])
    damaged = log.read_bytes()
    with ScriptedServer([text("mended")]) as server:
        env = {"OPENAI_BASE_URL": server.url, "MODEL": "scripted"}
        done = agent("-c", ID, "go on", **env)
        assert (done.code, done.out, server.requests, log.read_bytes()) == (4, "", [], damaged)
        assert f"line 4 of {log}" in done.err
        assert f"agent doctor {ID}" in done.err
        assert agent("doctor", ID, **env).code == 0
        assert agent("-q", "-c", ID, "go on", **env).out == "mended\n"
        assert server.violations == []
    assert damaged in [path.read_bytes() for path in store.rglob("*.jsonl")]


def test_a_torn_tail_costs_only_a_notice(agent: Runner, store: Path) -> None:
    """The turn goes through; the torn bytes are in a side file, and stderr says where."""
    with open(store / f"{ID}.jsonl", "ab") as file:
        file.write(b'{"type":"message","n":3,"mess')
    with ScriptedServer([text("fine")]) as server:
        done = agent("-c", ID, "go on", OPENAI_BASE_URL=server.url, MODEL="scripted")
    assert (done.code, done.out) == (0, "fine\n")
    assert f"29 bytes of an unfinished record were moved to {store}/{ID}.archive/torn-0001" in done.err
    assert [m["content"] for m in server.requests[0]["messages"]][-3:] == ["before", "re: before", "go on"]


def test_a_busy_session_is_exit_7(agent: Runner, store: Path) -> None:
    """It names the holder, makes no request, and changes nothing."""
    with Session.open(str(store), ID) as held, ScriptedServer([text("no")]) as server:
        done = agent("-c", ID, "me too", OPENAI_BASE_URL=server.url, MODEL="scripted")
        assert (done.code, done.out, server.requests) == (7, "", [])
        assert f"process {os.getpid()}" in done.err
        assert held.append({"type": "note"})["n"] == 3


@pytest.mark.parametrize("id", ["", "nosuch", "../../etc/passwd", "/etc/passwd", "two words", "x" * 300])
def test_what_is_no_session_is_exit_4(agent: Runner, store: Path, id: str) -> None:
    """No request, and no file is made."""
    before = sorted(os.listdir(store))
    with ScriptedServer([text("no")]) as server:
        done = agent("-c", id, "hello", OPENAI_BASE_URL=server.url, MODEL="scripted")
        assert (done.code, done.out, server.requests) == (4, "", [])
    assert sorted(os.listdir(store)) == before


def test_a_session_of_a_later_version_is_only_read(agent: Runner, store: Path) -> None:
    """Whatever stands in its lines: exit 4 and the advice to upgrade for all that would write or copy it, no request,
    not a byte changed, no copy; reading verbs show what they understand."""
    log = store / f"{ID}.jsonl"
    strange = b'{"type":"thought","n":3,"x":1}\n{"type":"message","n":4,"message":{"speaker":"user"}}\n'
    log.write_bytes(log.read_bytes().replace(b'"version":1', b'"version":2') + strange)
    before = log.read_bytes()
    told = f"session {ID} was written by a later version of agent. Upgrade agent"
    with ScriptedServer([text("no")]) as server:
        env = {"OPENAI_BASE_URL": server.url, "MODEL": "scripted"}
        for command in (
            ["-c", ID, "go on"],
            ["-c", ID, "--fork", "go on"],
            ["sessions", "fork", ID],
            ["sessions", "fork", ID, "--at", "1"],
            ["sessions", "undo", ID],
            ["sessions", "name", ID, "mine"],
            ["sessions", "compact", ID],
            ["doctor", ID],
            ["doctor", ID, "--dry-run"],
        ):
            done = agent(*command, **env)
            assert (done.code, done.out, told in done.err.replace("\n", " ")) == (4, "", True), (command, str(done))
            assert "damaged" not in done.err
        assert server.requests == []
    assert agent("sessions", "show", ID).out == "user · 1\nbefore\n\nassistant · 2\nre: before\n\n"
    assert (log.read_bytes(), sorted(os.listdir(store))) == (before, [f"{ID}.jsonl", f"{ID}.lock"])
