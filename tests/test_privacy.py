"""No key and no Authorization header ever reaches a file, however the run goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Runner
from server import ScriptedServer, calls, overflow, status, text

KEY = "sk-test-4f9d1c7ab2e84c6d"
SCRIPTS = {
    "an answer": [text("hello")],
    "a tool that prints the environment": [calls([("bash", {"command": "env; cat /proc/self/environ"})]), text("done")],
    "a tool that looks at its parent": [
        calls([("bash", {"command": "cat /proc/$PPID/environ | tr '\\0' '\\n'"})]),
        text("-"),
    ],
    "a refusal that repeats the key": [status(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})],
    "a bad request that repeats the header": [status(400, f"bad header Authorization: Bearer {KEY}")],
    "an overflow": [overflow(9000, 8000)],
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_key_stays_in_the_environment(agent: Runner, home: Path, tmp_path: Path, name: str) -> None:
    """Session, archive, side files, state, cache, work directory, stdout, stderr with --debug: nowhere."""
    with ScriptedServer(SCRIPTS[name], repeat_last=True) as server:
        done = agent(
            "--debug", "--yolo", "go", OPENAI_BASE_URL=server.url, MODEL="scripted", OPENAI_API_KEY=KEY
        )  # fmt: skip
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY not in done.out + done.err
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".jsonl" for path in written)
    assert [str(path) for path in written if KEY.encode() in path.read_bytes()] == []
