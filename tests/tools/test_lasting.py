"""What takes effect outside the sandbox later: no tool changes a hook, git's configuration, or the agent's own
rules."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent.tools import lasting

from .conftest import Box

EVIL = "#!/bin/sh\ntouch /tmp/escaped\n"
GIT = "git -c user.name=a -c user.email=b"


@pytest.fixture
def project(box: Box) -> Box:
    """A root that is a repository with a configuration, a hook of the user's, another repository inside, and rules."""
    for where in (".", "inner"):
        subprocess.run(["git", "init", "-q", str(box.root / where)], check=True)
    box.write(".git/hooks/post-commit", "#!/bin/sh\n").chmod(0o755)
    box.write(".agent.toml", "max_steps = 5\n")
    box.write("a", "one\n")
    return box


def state(box: Box) -> dict[str, tuple[int, bytes]]:
    """Mode and content of everything that takes effect later."""
    found = {}
    for holder, names in lasting.holders([str(box.root)]).items():
        for top in (Path(holder, name) for name in names):
            for path in [top, *(top.rglob("*") if top.is_dir() else ())]:
                if path.is_file() and path.suffix != ".sample":
                    found[str(path)] = (path.stat().st_mode, path.read_bytes())
    return found


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit", ".git/config", ".git/modules/m/hooks/pre-push", ".git/modules/m/config", ".git",
        ".git/worktrees/w/config.worktree", ".git/commondir", "inner/.git/config", "new/.git/hooks/pre-commit",
        ".agent.toml", "deep/er/.agent.toml", ".GIT/Config", "link/pre-commit", "bare/hooks/update", "bare/config",
    ],
)  # fmt: skip
def test_the_file_tools_refuse(project, path):
    """New or old, at any depth, in any case, by a link, in a bare repository: a sentence, and nothing is written."""
    (project.root / "link").symlink_to(".git/hooks")
    for name in ("HEAD", "objects/x", "refs/x"):
        project.write(f"bare/{name}", "")
    before = state(project)
    text = project("write_file", path=path, content=EVIL)
    assert project.result.denied
    assert text.endswith(
        " takes effect outside the sandbox later (git's hooks and configuration, the agent's own rules): no tool may "
        "write it. Tell the user what you would have put there."
    )
    assert state(project) == before and not (project.root / "new").exists()


@pytest.mark.parametrize(
    "path", [".git/info/attributes", ".github/hooks/x", "config", "hooks/x", "agent.toml", ".gitignore"]
)
def test_what_only_looks_like_it_is_written(project, path):
    assert project("write_file", path=path, content="x") == f"Created ROOT/{path} (1 line, 1 byte)."


def test_instructions_are_written_and_said_to_last(project):
    assert project("write_file", path="sub/AGENTS.md", content="x\n") == (
        "Created ROOT/sub/AGENTS.md (1 line, 2 bytes). It will be part of the system prompt of later sessions here: "
        "tell the user."
    )


PLANTED = [
    "cat evil > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "cat evil > .git/hooks/post-commit",
    "rm .git/hooks/post-commit",
    "chmod -x .git/hooks/post-commit",
    "rm -rf .git/hooks && ln -s $PWD/evils .git/hooks",
    "rm -rf .git/hooks && cp -r evils .git/hooks",
    "mkdir .git/hooks/d && cp evil .git/hooks/d/x",
    "git config core.fsmonitor ./evil",
    "git config core.hooksPath evils",
    "echo '[alias] st = !./evil' >> .git/config",
    "rm .git/config && ln -s ../evil .git/config",
    "echo ../../evils > .git/commondir",
    "cp .git/config .git/config.worktree",
    "mv .git g && git init -q . && cp evil .git/hooks/pre-commit",
    "mv .git g && cp evil g/hooks/pre-commit && mv g .git",
    "rm -rf .git && mkdir .git && cp -r evils .git/hooks && git init -q .",
    "cp evil inner/.git/hooks/pre-commit",
    "git -C inner config core.pager ./evil",
    "mv inner elsewhere && cp evil elsewhere/.git/hooks/pre-commit",
    "mv inner x && cp evil x/.git/hooks/pre-commit && mv x inner",
    "echo 'max_steps = 0' > .agent.toml",
    "rm .agent.toml",
    "ln -sf evil .agent.toml",
    "mkdir -p deep/er && echo 'max_steps = 0' > deep/er/.agent.toml",
    "cp .agent.toml inner/; mv inner/.agent.toml evils/",
    "(sleep 0.05; cp evil .git/hooks/pre-commit) & wait",
    "cp evil .git/hooks/pre-commit; kill -9 $$",
    "git init -q fresh && cp evil fresh/.git/hooks/pre-commit",
    "git init -q --bare b && rm -rf b/hooks && cp -r evils b/hooks",
    "mv inner fresh && git init -q inner && cp evil inner/.git/hooks/pre-commit",
]


@pytest.mark.parametrize("attempt", PLANTED)
def test_what_a_command_planted_is_put_back(project, attempt):
    """Hook, configuration and rules are as they were, mode and all, and the result is a denial that says so."""
    project.write("evil", EVIL)
    project.write("evils/pre-commit", EVIL).chmod(0o755)
    before = state(project)
    text = project.bash(attempt)
    after = state(project)
    kept = {path: value for path, value in before.items() if "inner" not in path or (project.root / "inner").exists()}
    assert {path: after.get(path) for path in kept} == kept
    assert not any(EVIL.encode() == content for _, content in after.values())
    assert project.result.denied and not project.result.ok
    assert (
        "[denied: " in text and "put back as it was" in text and "Tell the user what you would have changed.]" in text
    )
    assert project.toolbox.denials[0]["reason"].startswith("[denied: ")


@pytest.mark.parametrize("attempt", PLANTED)
def test_the_same_attempts_last_where_nothing_is_put_back(project, attempt):
    """The control, without a sandbox."""
    project.context.sandbox = "off"
    project.write("evil", EVIL)
    project.write("evils/pre-commit", EVIL).chmod(0o755)
    before = state(project)
    project.bash(attempt)
    assert state(project) != before and not project.result.denied


def test_not_in_two_steps_either(project):
    """Carried away by one command, changed by a second, brought back by a third."""
    project.write("evil", EVIL)
    before = state(project)
    for command in ("mv .git g", "cp evil g/hooks/pre-commit", "mv g .git"):
        project.bash(command)
    assert state(project) == before


def test_what_was_written_is_kept_for_the_user(project):
    """It may have been somebody else's work, done meanwhile."""
    text = project.bash("echo 'max_steps = 0' > .agent.toml")
    copy = text.split("kept in ")[1].split(")")[0]
    assert Path(copy.replace("FILES", str(project.files))).read_text() == "max_steps = 0\n"
    assert (project.root / ".agent.toml").read_text() == "max_steps = 5\n"


WORK = [
    f"{GIT} add a && {GIT} commit -q -m x && {GIT} commit -q --amend -m y",
    f"{GIT} add a && {GIT} commit -q -m x && git checkout -q -b topic && git branch -m other && git stash list",
    f"{GIT} add a && {GIT} commit -q -m x && echo two > a && git diff --stat && {GIT} stash -q && {GIT} stash pop -q",
    f"{GIT} add a && {GIT} commit -q -m x && git worktree add -q ../root/w && cd w && {GIT} commit -q --allow-empty -m z",
    f"{GIT} add a && {GIT} commit -q -m x && git gc -q && git tag v1 && git rm -q --cached a && git reset -q --hard",
    "git init -q fresh && cd fresh && git config user.name me && git config core.pager less",
    f"{GIT} add a && {GIT} commit -q -m x && git clone -q . copy && cd copy && git remote set-url origin elsewhere",
    "git init -q --bare b.git && git -C b.git config core.bare true",
    "rm -rf inner && ls -d inner 2> /dev/null; true",
    "mv inner outer && mv outer inner",
    "git init -q . && git status --short > /dev/null",
    "touch .git/hooks/pre-commit.sample .git/info/attributes",
]


@pytest.mark.parametrize("work", WORK)
def test_git_goes_on_working(project, work):
    """Everyday commands, and repositories that this command makes, which may be configured at will."""
    project.write("evil", EVIL)
    text = project.bash(work)
    assert text.endswith("exit status 0") and "denied" not in text, text
    assert project.result.ok


def test_a_repository_made_in_this_run_may_be_configured_by_a_later_command(box):
    box.bash("git init -q .")
    assert box.bash("git config user.name me && git config user.name") == "me\nexit status 0"
    assert box.bash("rm -r .git/hooks && mv .git sub && mv sub .git") == "(no output)\nexit status 0"
    assert "ROOT/.git/hooks was put back as it was" in box.bash("mkdir .git/hooks; echo x > .git/hooks/pre-push")
    assert os.listdir(box.root / ".git/hooks") == []


def test_a_new_repository_is_not_taken_for_one_that_was_removed(project):
    """The file system may give it the same inode."""
    for _ in range(5):
        assert project.bash("rm -rf inner && git init -q other && git -C other config user.name x && mv other o2") == (
            "(no output)\nexit status 0"
        )
        assert project.bash("rm -rf o2 && git init -q inner && git -C inner config user.email y; rm -rf inner") == (
            "(no output)\nexit status 0"
        )


def test_what_the_user_changes_between_commands_stays(project):
    project.bash("true")
    project.write(".agent.toml", "max_steps = 9\n")
    project.write(".git/hooks/pre-push", "#!/bin/sh\n")
    project.write("sub/.agent.toml", "max_steps = 2\n")
    assert project.bash("true") == "(no output)\nexit status 0"
    assert (project.root / ".agent.toml").read_text() == "max_steps = 9\n"
    assert (project.root / ".git/hooks/pre-push").exists() and (project.root / "sub/.agent.toml").exists()


def test_a_command_that_is_interrupted_leaves_nothing_planted(project):
    """Whatever ends it: a timeout here."""
    before = state(project)
    text = project.bash("git config core.pager evil; echo x > .git/hooks/pre-push; sleep 60", timeout=1)
    assert state(project) == before and "timed out" in text and project.result.denied


def test_nothing_is_put_back_through_a_link(project, tmp_path):
    """A holder that has become a link to the outside is left alone."""
    outside = tmp_path / "outside"
    subprocess.run(["git", "init", "-q", str(outside)], check=True)
    (outside / ".git/config").write_text("theirs")
    project.bash(f"mv inner gone && ln -s {outside} inner")
    assert (outside / ".git/config").read_text() == "theirs" and os.path.islink(project.root / "inner")
