"""Real processes killed with SIGKILL at random moments of a tool-running turn: what reached the server is on disk.

A request is sent only after everything in it was synced. So whatever the scripted server was ever asked, messages and
tool results, must be in the log after the kill; and the next turn continues, with a request the strict server takes.
AGENT_TEST_KILLS sets the number of runs (200 for a release; a few in the everyday suite).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from conftest import environment
from server import ScriptedServer, calls, text

from agent.log import archive
from agent.session import Session

RUNS = int(os.environ.get("AGENT_TEST_KILLS", "6"))


def contents(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """What must not be lost of a request's messages."""
    return [(m["role"], m.get("content") or [c["function"] for c in m["tool_calls"]]) for m in messages]


def killed_in_a_turn(store: str, work: Path, chance: random.Random) -> list[Any]:
    """Run a turn of endless tool calls and kill it some milliseconds after a random request; the last request."""
    fatal, delay = chance.randrange(1, 5), chance.random() * 0.05
    started: list[subprocess.Popen[bytes]] = []

    def reply(_: dict[str, Any], index: int) -> Any:
        if index == fatal:
            threading.Timer(delay, started[0].kill).start()
        commands = [("bash", {"command": f"echo result {index}.{number}"}) for number in range(3)]
        return calls(commands, f"step {index}")

    with ScriptedServer(reply) as server:
        env = dict(environment(OPENAI_BASE_URL=server.url, MODEL="scripted", AGENT_SESSION_DIR=store))
        command = [sys.executable, "-m", "agent", "--yolo", "--max-steps", "500", "go on for ever"]
        started.append(subprocess.Popen(command, cwd=work, env=env, stdout=-3, stderr=-3, stdin=-3))
        started[0].wait(60)
        assert started[0].returncode == -9
        assert [v for v in server.violations if "is not UTF-8 JSON" not in v] == []  # a body that the kill cut short
        return [request["messages"] for request in server.requests if request.get("messages")][-1]


def test_nothing_that_was_sent_is_lost_by_a_kill(tmp_path: Path) -> None:
    """Every message of the last request is in the log, in order; `-c` goes on and the server finds nothing wrong."""
    chance = random.Random(1)
    for run in range(RUNS):
        store, work = str(tmp_path / f"store{run}"), tmp_path / f"work{run}"
        work.mkdir()
        sent = contents(killed_in_a_turn(store, work, chance))
        [id] = [name.removesuffix(".jsonl") for name in os.listdir(store) if name.endswith(".jsonl")]
        with Session.open(store, id) as session:
            kept = contents(session.view())
        assert kept[: len(sent)] == sent
        assert archive.check(Session.read(store, id)).problems == []
        with ScriptedServer([text("I am back")]) as server:
            env = dict(environment(OPENAI_BASE_URL=server.url, MODEL="scripted", AGENT_SESSION_DIR=store))
            command = [sys.executable, "-m", "agent", "-q", "-c", id, "and now?"]
            done = subprocess.run(command, cwd=work, env=env, capture_output=True, stdin=-3, check=False)
            assert (done.returncode, done.stdout) == (0, b"I am back\n")
            assert server.violations == []
            assert contents(server.requests[0]["messages"])[: len(sent)] == sent
