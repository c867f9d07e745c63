"""What servers taught us survives the process, other processes, and a broken file."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from agent.wire.memory import Memory, default_path

URL = "http://127.0.0.1:1/v1"


def test_facts_are_kept_by_server_and_model(tmp_path: Path) -> None:
    path = str(tmp_path / "state" / "learned.json")
    Memory(path).learn(URL, "m", window=4096, dialect={"alternate": True})
    Memory(path).learn(URL, "n", window=8192)
    Memory(path).learn(URL, "m", window=2048, dialect=None)
    known = Memory(path).of(URL, "m")
    assert (known["window"], known.get("dialect"), Memory(path).of(URL, "n")["window"]) == (2048, None, 8192)
    assert Memory(path).of("http://other/v1", "m") == {}
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "state").st_mode) == 0o700
    assert os.listdir(tmp_path / "state") == ["learned.json"]


def test_two_processes_do_not_forget_for_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "learned.json")
    one, two = Memory(path), Memory(path)
    assert one.of(URL, "a") == two.of(URL, "b") == {}
    one.learn(URL, "a", window=1)
    two.learn(URL, "b", window=2)
    assert (Memory(path).of(URL, "a")["window"], Memory(path).of(URL, "b")["window"]) == (1, 2)


@pytest.mark.parametrize(
    "broken", [b"", b"{", b"[]", b'{"servers": 3}', b'{"servers": {"http://127.0.0.1:1/v1 m": 3}}', b"\xff\xfe"]
)
def test_a_broken_file_counts_as_empty_and_is_written_anew(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "learned.json"
    path.write_bytes(broken)
    memory = Memory(str(path))
    assert memory.of(URL, "m") == {}
    memory.learn(URL, "m", window=5)
    assert json.loads(path.read_bytes())["servers"][f"{URL} m"]["window"] == 5


def test_a_place_that_cannot_be_written_is_let_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    memory = Memory(str(tmp_path / "file" / "learned.json"))
    memory.learn(URL, "m", window=5)
    assert memory.of(URL, "m")["window"] == 5


def test_a_server_on_this_machine_is_believed_for_a_day() -> None:
    """It may have been started anew; a hosted one keeps its word."""
    now = [1000.0]
    memory = Memory(clock=lambda: now[0])
    memory.learn(URL, "m", window=5)
    memory.learn("https://x.example/v1", "m", window=5)
    now[0] += 90000
    assert memory.of(URL, "m") == {}
    assert memory.of("https://x.example/v1", "m")["window"] == 5


def test_the_same_fact_again_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    Memory(str(path)).learn(URL, "m", window=5)
    os.utime(path, (1, 1))
    Memory(str(path)).learn(URL, "m", window=5)
    assert path.stat().st_mtime == 1


def test_the_file_stands_in_the_state_directory() -> None:
    assert default_path({"XDG_STATE_HOME": "/s"}) == "/s/agent/learned.json"
