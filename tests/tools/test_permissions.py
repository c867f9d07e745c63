"""Rules: deny wins, allow trusts plain text only, a question without a terminal is a denial that says so."""

from __future__ import annotations

import pytest

from agent.errors import UsageError
from agent.tools import Permissions

from .conftest import Box

BASH = [
    # allow, command, verdict where nothing confines
    (["bash"], "anything; at all", "allow"),
    (["bash(*)"], "anything; at all", "allow"),
    (["*"], "anything; at all", "allow"),
    (["bash(git status)"], "git status", "allow"),
    (["bash(git status)"], "git status -s", "ask"),
    (["bash(git *)"], "git log -1", "allow"),
    (["bash(git *)"], "git", "allow"),
    (["bash(git:*)"], "git log", "allow"),
    (["bash(git log:*)"], "git log -1", "allow"),
    (["bash(git *)"], "gitk", "ask"),
    (["bash(git *)"], "./git log", "ask"),
    (["bash(git *)"], "git log && rm x", "ask"),
    (["bash(git *)"], "git log; rm x", "ask"),
    (["bash(git *)"], "git log $(rm x)", "ask"),
    (["bash(git *)"], "git log `rm x`", "ask"),
    (["bash(git *)"], "git log > /etc/x", "ask"),
    (["bash(git *)"], "git log\nrm x", "ask"),
    (["bash(git *)"], "git log | sh", "ask"),
    (["bash(git *)", "bash(head *)"], "git log | head -3", "allow"),
    (["bash(git *)"], "A=1 git log", "ask"),
    (["bash(git *)"], "git log &", "ask"),
    (["bash(pytest tests/*)"], "pytest tests/test_a.py", "allow"),
    (["bash(pytest tests/*)"], "pytest tests/a tests/b", "ask"),
    (["bash(pytest * -q)"], "pytest tests -q", "allow"),
    (["read_file"], "ls", "ask"),
]


@pytest.mark.parametrize(("allow", "command", "verdict"), BASH)
def test_allow_rules_match_parsed_simple_commands(allow, command, verdict):
    assert Permissions(allow=allow).decide("bash", {"command": command}).verdict == verdict


DENIED = [
    "git push",
    "git push origin main",
    "ls; git push",
    "echo $(git push)",
    "sh -c 'git push'",
    "sudo git push",
    "A=1 git push",
    "/usr/bin/git push",
    "$(echo git) push; git push",
    "x=git; $x push; git  push",
]


@pytest.mark.parametrize("command", DENIED)
def test_deny_wins_over_everything(command):
    """Over allow, over --yolo, wherever in the text the command stands."""
    rules = Permissions(allow=["bash", "*"], deny=["bash(git push *)"], yolo=True, sandboxed=True)
    assert rules.decide("bash", {"command": command}).verdict == "deny"
    assert rules.decide("bash", {"command": "git status"}).verdict == "allow"


PATHS = [
    ("write_file(src/**)", "src/a/b.py", True),
    ("write_file(src/*)", "src/a/b.py", False),
    ("write_file(src/*)", "src/b.py", True),
    ("write_file(**/*.py)", "b.py", True),
    ("write_file(*.py)", "src/b.py", False),
    ("write_file(src/**)", "src/../etc/b", False),
    ("write_file({root}/src/**)", "src/b", True),
    ("write_file(.env)", "./.env", True),
    ("write_file(.env)", "link", True),
]


@pytest.mark.parametrize(("rule", "path", "matches"), PATHS)
def test_path_rules_see_where_a_path_leads(tmp_path, rule, path, matches):
    """Relative to the working directory, after `..` and links."""
    (tmp_path / "link").symlink_to(".env")
    rules = Permissions(deny=[rule.format(root=tmp_path)], cwd=str(tmp_path))
    assert rules.decide("write_file", {"path": path}).verdict == ("deny" if matches else "allow")
    assert rules.decide("read_file", {"path": path}).verdict == "allow"


@pytest.mark.parametrize("text", ["", "bash(", "git status", "Bash(ls)", "no_such_tool", "bash(ls) x"])
def test_a_rule_that_is_none_is_a_usage_error(text):
    """A mistyped deny must not pass in silence."""
    with pytest.raises(UsageError, match="is not a rule"):
        Permissions(deny=[text])


def test_defaults_and_yolo():
    """Unconfined bash asks, confined bash runs; yolo turns ask into allow, never the list of what is never run."""
    command = {"command": "make"}
    assert Permissions().decide("bash", command).verdict == "ask"
    assert Permissions(sandboxed=True).decide("bash", command).verdict == "allow"
    assert Permissions(yolo=True).decide("bash", command).verdict == "allow"
    assert Permissions(allow=["bash"], yolo=True).decide("bash", {"command": "rm -rf /"}).verdict == "deny"
    for name in ("read_file", "write_file", "edit_file"):
        assert Permissions().decide(name, {"path": "a"}).verdict == "allow"


def test_net_is_a_permission():
    assert Permissions(allow=["net"]).allows_net
    assert not Permissions().allows_net
    assert not Permissions(allow=["net"], deny=["net"]).allows_net


def test_a_question_without_a_terminal_is_a_denial_that_says_so(tmp_path):
    box = Box(tmp_path, sandboxed=False)
    assert box.bash("make test") == (
        "Denied, nothing was run: nothing confines commands in this run, and there is no terminal to ask the user on. "
        "Go on without it, or tell the user that --allow 'bash(make test)' would permit it."
    )
    assert box.toolbox.denials == [
        {
            "tool_name": "bash",
            "tool_use_id": "call_1",
            "tool_input": {"command": "make test"},
            "reason": box.result.text,
        }
    ]


def test_asking_shows_the_whole_command_and_remembers_always(tmp_path):
    """yes once, always for this very command, no with a way on; control characters are visible in the question."""
    answers = ["yes", "always", "no"]
    asked = []

    def ask(call, text):
        asked.append(text)
        return answers.pop(0)

    box = Box(tmp_path, sandboxed=False, ask=ask, sandbox="off")
    assert box.bash("echo a; printf '\x1b[2K'") == "a\nexit status 0"
    assert box.bash("echo b") == "b\nexit status 0"
    assert box.bash("echo b") == "b\nexit status 0"
    assert box.bash("echo c") == "The user said no; nothing was run. Ask what they want instead, or go on without it."
    assert asked == ["echo a; printf '\\x1b[2K'", "echo b", "echo c"]
    assert [denial["tool_input"] for denial in box.toolbox.denials] == [{"command": "echo c"}]
