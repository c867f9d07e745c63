"""Any field of a session file replaced by anything, as a hand or another program may leave it: every command ends with
an exit code of its own, never with a traceback."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from disks import Quick
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lives import ask, call, compact, result, user
from server import ScriptedServer, text

from agent.cli import main
from agent.errors import Exit
from agent.session import Session

ID = "20260101-100000-abc12345"
Place = tuple[Any, ...]
"""The way to one field: the number of the line, then keys and indices."""


def a_life(store: str, cwd: str) -> list[dict[str, Any]]:
    """A session with an entry of every type and every field that is written; its lines."""
    meta = {"cwd": cwd, "model": "scripted", "name": "mine", "tools": ["bash"], "parent": {"id": "p", "n": 1}}
    guard = {"guard": {"strikes": 1, "row": 1, "ratio": 1.1}, "checks": {"passed": False, "reasons": ["short"]}}
    told = {"model": "scripted", "usage": {"prompt_tokens": 50, "completion_tokens": 5, "cached_tokens": 3}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    edited = {"name": "edit_file", "ok": True, "seconds": 0.1, "path": "a.txt", "before": "00", "after": "11"}
    with Session.create(store, meta, id=ID, disk=Quick()) as session:
        session.append({"type": "message", "message": {"role": "system", "content": "be brief"}})
        ask(session, "one")
        ask(session, "two")
        compact(session)
        session.append({"type": "pin", "text": "keep it"})
        session.append(user([{"type": "text", "text": "look"}, image]))  # type: ignore[arg-type]
        asked = {"k": 3, "sha256": "0", "messages": 3, "dialect": {"system": "user"}}
        session.append(call("c1") | told | {"finish_reason": "tool_calls", "request": asked})
        session.append(result("c1") | {"tool": edited})
        ask(session, "three")
        failed = session.append(user("four"))["n"]
        session.append({"type": "failed", "prompt": failed, "error": {"kind": "auth", "text": "no"}})
        sizes = {"before": 10, "after_estimate": 10}
        session.append({"type": "attempt", "reason": "proactive", "outcome": "failed", "tokens": sizes} | guard | told)
        session.append({"type": "undo", "undid": 2, "archive": "0001", "redo": True})
        session.append({"type": "undo", "undid": 2, "archive": "0001"})
    lines = [json.loads(line) for line in Path(session.path).read_bytes().splitlines()]
    lines[1] |= guard | told
    return lines


def fields(value: Any, at: Place = ()) -> Iterator[Place]:
    """Every field in these lines, and every field in it."""
    if len(at) > 1:
        yield at
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from fields(inner, (*at, key))


MISSING = object()
ANYTHING = [None, 7, -1, 1.5, 10**30, True, "x", "\ud800", "a\0b", [], [1], ["x"], {}, {"a": 1}, MISSING]
READ = [
    ["list"], ["stats"], ["search", "one"], ["show", ID], ["show", ID, "--json"], ["stats", ID], ["replay", ID],
    ["replay", ID, "--check"], ["replay", ID, "--request", "3"], *(["export", ID, "--format", form] for form in
    ("jsonl", "json", "md", "html")), ["undo", ID, "--files"],
]  # fmt: skip
WRITE = [
    ["-c", ID, "go on"], ["-c", ID, "--fork", "go on"], ["-q", "--last", "go on"], ["sessions", "undo", ID],
    ["sessions", "undo", ID, "--redo"], ["sessions", "fork", ID], ["sessions", "fork", ID, "--at", "9"],
    ["sessions", "name", ID, "another"], ["doctor", ID],
]  # fmt: skip


class Commands:
    """`run(place, value)` puts a value in a place of a session file and runs every command on what comes of it."""

    def __init__(self, root: Path, server: ScriptedServer) -> None:
        self.server = server
        self.whole, self.store = root / "whole", root / "store"
        self.lines = a_life(str(self.whole), str(root))
        self.places = list(fields(self.lines))

    def run(self, place: Place, value: Any) -> None:
        self.lay_out(place, value)
        for command in READ:
            assert main(["sessions", *command]) in list(Exit)
        for command in WRITE:
            self.lay_out(place, value)
            assert main(command) in list(Exit)

    def lay_out(self, place: Place, value: Any) -> None:
        changed: Any = copy.deepcopy(self.lines)
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        if value is MISSING:
            del inner[place[-1]]
        shutil.rmtree(self.store, ignore_errors=True)
        shutil.copytree(self.whole, self.store)
        (self.store / f"{ID}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in changed))


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    monkeypatch.chdir(tmp_path)
    with ScriptedServer([text("fine")], repeat_last=True, strict=False) as server:
        made = Commands(tmp_path, server)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("MODEL", "scripted")
        monkeypatch.setenv("AGENT_SESSION_DIR", str(made.store))
        yield made


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_value_of_any_field_makes_a_traceback(commands: Commands, data: st.DataObject) -> None:
    """An exit code that is documented, from every command."""
    place = data.draw(st.sampled_from(commands.places))
    commands.run(place, data.draw(st.sampled_from(ANYTHING)))


META: list[tuple[str, Any]] = [
    ("counts", "x"), ("counts", {"requests": [1]}), ("counts", None), ("parent", "x"), ("model", 7), ("model", ["x"]),
    ("tools", 7), ("tools", [1]), ("cwd", "a\0b"), ("cwd", "\ud800"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), META, ids=repr)
def test_a_meta_line_of_the_wrong_kind(commands: Commands, key: str, value: Any) -> None:
    """No traceback from any command."""
    commands.run((0, key), value)


ENTRIES: list[tuple[str, str, Any]] = [
    ("failed", "prompt", None), ("failed", "prompt", [1]), ("failed", "prompt", MISSING),
    ("compaction", "folded", [1, "x"]), ("compaction", "folded", [None, 1]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "key", "value"), ENTRIES, ids=repr)
def test_an_entry_of_the_wrong_kind(commands: Commands, kind: str, key: str, value: Any) -> None:
    """The same."""
    line = next(at for at, entry in enumerate(commands.lines) if entry["type"] == kind)
    commands.run((line, key), value)


def test_a_damaged_list_of_tools_gives_none(commands: Commands) -> None:
    """A session that was to have fewer tools never gets more; the run says what it cannot use, and goes on."""
    commands.lay_out((0, "tools"), {"bash": True})
    with Session.open(str(commands.store), ID, disk=Quick()) as session:
        assert session.meta["tools"] == []
        assert session.notices == ["the meta line is damaged: its tools cannot be used"]
    assert main(["-q", "-c", ID, "go on"]) == Exit.DONE
    assert "tools" not in commands.server.requests[-1]
