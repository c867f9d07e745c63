"""AGENTS.md: found from the root down, named, capped, and never led out of the project."""

from __future__ import annotations

import os

from agent.tools import instructions


def shown(found):
    return [(os.path.basename(os.path.dirname(each.origin)), each.text) for each in found]


def test_the_users_own_first_then_from_the_root_down(tmp_path, home):
    (home / ".config/agent").mkdir(parents=True)
    (home / ".config/agent/AGENTS.md").write_text("mine\n")
    deep = tmp_path / "repo/sub/deep"
    deep.mkdir(parents=True)
    (tmp_path / "AGENTS.md").write_text("above the repository: not read")
    (tmp_path / "repo/.git").mkdir()
    (tmp_path / "repo/AGENTS.md").write_text("root\r\n")
    (deep / "AGENTS.md").write_bytes(b"\xef\xbb\xbfdeep \x1b[31mred")
    found = instructions.load(str(deep), os.environ)
    assert shown(found) == [("agent", "mine"), ("repo", "root"), ("deep", "deep \\x1b[31mred")]
    assert found[1].block() == f"Instructions from {tmp_path}/repo/AGENTS.md:\nroot"


def test_without_a_repository_only_this_directory(tmp_path):
    (tmp_path / "AGENTS.md").write_text("above")
    (tmp_path / "work").mkdir()
    (tmp_path / "work/AGENTS.md").write_text("here")
    assert shown(instructions.load(str(tmp_path / "work"), os.environ)) == [("work", "here")]


def test_a_link_out_of_the_project_is_not_read(tmp_path, home):
    """A cloned project must not have a key read into a prompt that is sent away; a link inside is fine."""
    repo = tmp_path / "repo"
    (repo / ".git").mkdir(parents=True)
    (home / "key").write_text("secret")
    (repo / "AGENTS.md").symlink_to(home / "key")
    assert instructions.load(str(repo), os.environ) == []
    (repo / "AGENTS.md").unlink()
    (repo / "CLAUDE.md").write_text("inside")
    (repo / "AGENTS.md").symlink_to("CLAUDE.md")
    assert shown(instructions.load(str(repo), os.environ)) == [("repo", "inside")]


def test_sizes_are_capped_one_by_one_and_together(tmp_path):
    at = tmp_path
    (at / ".git").mkdir()
    for name in ("", "a", "b", "c"):
        at = at / name
        at.mkdir(exist_ok=True)
        (at / "AGENTS.md").write_text("汉" * 100_000)
    found = instructions.load(str(at), os.environ)
    assert [len(each.text) for each in found] == [8_000, 8_000] and all(each.cut for each in found)
    assert found[0].block().endswith("汉\n[cut at 8,000 characters; read the file for the rest]")


def test_a_fifo_and_a_directory_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "AGENTS.md")
    assert instructions.load(str(tmp_path), os.environ) == []
    (tmp_path / "d/AGENTS.md").mkdir(parents=True)
    assert instructions.load(str(tmp_path / "d"), os.environ) == []
