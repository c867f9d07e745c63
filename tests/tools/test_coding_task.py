"""A whole coding task by the real command on a scripted, strict server: find, test, read, edit, test again, undo."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from server import ScriptedServer, calls, text

BROKEN = "def add(a, b):\n    return a - b\n"
TEST = "from calc import add\n\nassert add(2, 3) == 5, add(2, 3)\nprint('1 passed')\n"
TASK = [
    calls(
        [("bash", {"command": "grep -rn 'def add' ."}), ("bash", {"command": "python3 -B test_calc.py 2>&1 | tail -1"})]
    ),
    calls([("read_file", {"path": "calc.py"})]),
    calls([("edit_file", {"path": "calc.py", "edits": [{"old": "a - b", "new": "a + b"}]})]),
    calls(
        [("bash", {"command": "python3 -B test_calc.py; cat ~/.netrc; env | grep -c OPENAI_API_KEY; touch ../outside"})]
    ),
    calls([("read_file", {"path": "/etc/hostname"})]),
    text("The sign was wrong; the test passes now."),
]

SEEN = [
    "./calc.py:1:def add(a, b):\nexit status 0",
    "AssertionError: -1\nexit status 0",
    "[2 lines]\ndef add(a, b):\n    return a - b",
    "Edited WORK/calc.py (1 edit).",
    "1 passed\n...\n0\n...\n[sandbox: only WORK and $TMPDIR can be written; there is no network]\nexit status 1",
    "/etc/hostname is outside the allowed directories. Allowed: WORK. The user can add one with --add-dir.",
]


def test_find_test_read_edit_test_undo(agent, tmp_path: Path, home: Path):
    """What the model was told, what is on disk, what the session keeps, and the way back."""
    work = tmp_path / "work"
    (work / "calc.py").write_text(BROKEN)
    (work / "test_calc.py").write_text(TEST)
    (home / ".netrc").write_text("a secret of the user")
    key = "sk-test-the-users-own-key"
    with ScriptedServer(TASK) as server:
        told = {"OPENAI_BASE_URL": server.url, "MODEL": "scripted", "OPENAI_API_KEY": key}
        done = agent("the test fails, mend it", "--json", **told)
        assert done.code == 0, done
    assert server.violations == []
    results = [m["content"] for m in server.requests[-1]["messages"] if m["role"] == "tool"]
    told_by_the_system = re.compile(r"^(cat|touch): .*$", re.MULTILINE)  # each mechanism refuses in its own words
    assert [told_by_the_system.sub("...", result.replace(str(work), "WORK")) for result in results] == SEEN
    assert (work / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert not (tmp_path / "outside").exists()
    log = next((home / ".local/state/agent/sessions").glob("*.jsonl"))
    assert key not in log.read_text() and "a secret of the user" not in log.read_text()
    kept = [entry["tool"] for entry in map(json.loads, log.read_text().splitlines()) if "tool" in entry]
    assert [tool.get("exit_code") for tool in kept] == [0, 0, None, None, 1, None]
    assert kept[3]["files"] == {"changed": [os.path.join(os.path.realpath(work), "calc.py")]}
    denied = json.loads(done.out.splitlines()[-1])["permission_denials"]
    assert [(each["tool_name"], each["tool_input"]) for each in denied] == [("read_file", {"path": "/etc/hostname"})]
    undone = agent("sessions", "undo", log.stem, "--files")
    assert (undone.code, (work / "calc.py").read_text()) == (0, BROKEN), undone
