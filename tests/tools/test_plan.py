"""Plans: the way to a private path stays as it is, whatever a command does to the directories on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.tools import guard, kernel, landlock, lasting, paths, plan, process, sandbox, seccomp

from .conftest import Box

SECRET = "the secret of another"
WAYS = {
    "mounts": sys.platform == "linux" and sandbox.available() == "landlock" and sandbox.may_mount(),
    "entries": landlock.abi() > 0,
    "bubblewrap": sys.platform == "linux" and sandbox.bubblewrap_works(),
}
"""Landlock as root, as an ordinary user has it, and bubblewrap."""


NOBODY = 65534
WAYS_OF_ORDINARY = [by for by, works in (("landlock", WAYS["entries"]), ("bubblewrap", WAYS["bubblewrap"])) if works]
NEEDED = (kernel, lasting, process, seccomp, subprocess, threading)
"""Imported before rights are given up: an ordinary user may not be able to read them here."""


@pytest.fixture(params=[name for name, works in WAYS.items() if works])
def confined(request, monkeypatch) -> str:
    """One way in which commands are confined."""
    monkeypatch.setattr(sandbox, "available", lambda: "bubblewrap" if request.param == "bubblewrap" else "landlock")
    monkeypatch.setattr(sandbox, "may_mount", lambda: request.param == "mounts")
    monkeypatch.setattr(sandbox, "bubblewrap_works", lambda: request.param == "bubblewrap")
    return request.param


class Home(Box):
    """A box whose root is the home directory, with a key, a configuration and a store in it."""

    def __init__(self, base: Path) -> None:
        super().__init__(
            base, private=[str(base / "root/.config/agent"), str(base / "root/.local/state/agent/sessions")]
        )
        self.context.environ = {**os.environ, "HOME": str(self.root)}
        for name in (
            ".ssh/id_rsa",
            ".config/agent/config.toml",
            ".config/gh/hosts.yml",
            ".local/state/agent/sessions/s",
        ):
            self.write(name, SECRET)
        self.write(".config/other/settings", "mine\n")
        self.write("project/a", "mine\n")
        self.write(".bashrc", "mine\n")

    def private(self) -> dict[str, str]:
        """What stands at every private path now, by the names that programs use."""
        found = {}
        for name in paths.private_names(self.context):
            for top, _, files in os.walk(name):
                found |= {os.path.join(top, file): Path(top, file).read_text() for file in files}
            if os.path.isfile(name):
                found[name] = Path(name).read_text()
            elif os.path.lexists(name):
                found[name + "/"] = ""
        return found


TAKEOVERS = [
    "mv .config c && mkdir -p .config/agent && echo x > .config/agent/config.toml",
    "mv .local y; mv .local/state z; mv .local/state/agent w",
    "rm -rf .local .config .ssh",
    "rmdir .config/agent .config; rm -rf .local/state",
    "mkdir project/agent && echo x > project/agent/config.toml && mv -T project/agent .config/agent",
    "mkdir -p project/c/agent && mv -T project/c .config; mv --exchange project/c .config",
    'python3 -c \'import ctypes; ctypes.CDLL(None).renameat2(-100, b"project", -100, b".config", 2)\'',
    "mkdir -p .aws .gnupg .m2 && echo x > .aws/credentials; echo x > .m2/settings.xml",
    "mkdir project/.m2 && echo x > project/.m2/settings.xml && mv project/.m2 .m2; ln -s project/.m2 .m2",
    "echo x > .netrc; cp project/a .npmrc; ln project/a .pypirc; ln -s project/a .git-credentials; mkfifo .pgpass",
    "mkdir -p .config/op .config/git && echo x > .config/git/credentials",
    "mkdir -p .local/share/keyrings .cargo && echo x > .cargo/credentials.toml",
    "cd project && mv ../.config here; mv $HOME/.ssh ../s; cat here/gh/hosts.yml ../s/id_rsa",
    "ln .ssh/id_rsa k; ln -s .ssh project/k; cat k project/k/id_rsa; echo x > project/k/id_rsa; chmod 777 .ssh .config",
    "tar c .config .ssh .local | tar x -C project; cat project/.ssh/id_rsa; cp -r .config .ssh project; grep -r the project",
    "find . -type d -exec mv {} project/ \\; -prune",
    "mv /proc/self/cwd/.config /proc/self/cwd/c; mv ../root/.local ../root/l",
]


@pytest.mark.parametrize("attempt", TAKEOVERS)
def test_the_way_to_a_private_path_stays_as_it_is(tmp_path, confined, attempt):
    """The home directory as working directory: nothing private is read, moved, removed, replaced, or made."""
    home = Home(tmp_path)
    before = home.private()
    text = home.bash(attempt)
    assert home.private() == before
    assert SECRET not in text


def as_ordinary(base: Path, function: Callable[[], str]) -> str:
    """What `function` answers in a process of an ordinary user, to whom `base` then belongs."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chown(base, NOBODY, NOBODY)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            for cached in (sandbox.prepared, sandbox.may_mount, sandbox.bubblewrap_works, guard.start):
                cached.cache_clear()
            answer = function()
            shutil.rmtree(sandbox.prepared())
        except BaseException as error:
            answer = repr(error)
        os.write(writing, answer.encode()[:60_000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer


@pytest.mark.parametrize("by", ["landlock", "bubblewrap"])
def test_the_same_for_an_ordinary_user(monkeypatch, by):
    """Really without rights, where the tests have those to give up: every attempt, and work that goes on."""
    if by not in WAYS_OF_ORDINARY:
        assert by not in os.environ.get("AGENT_TEST_MECHANISMS", "")
        return
    monkeypatch.setattr(sandbox, "available", lambda: by)

    def attempts() -> str:
        home = Home(base)
        before = home.private()
        home.write(".profile", "mine\n")
        for attempt in TAKEOVERS:
            if SECRET in home.bash(attempt) or home.private() != before:
                return attempt
        assert not sandbox.may_mount()
        home.write("project/a", "mine\n")  # what is not private may have gone with an attempt
        return home.bash("id -u; cat project/a .bashrc; echo x > project/n && mv project/n project/m && cat project/m")

    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # that of the tests is closed to others
    base = Path(tempfile.mkdtemp(prefix="agent-test-"))
    try:
        answer = as_ordinary(base, attempts) if os.geteuid() == 0 else attempts()
    finally:
        shutil.rmtree(base)
    assert answer.endswith("\nmine\nmine\nx\nexit status 0"), answer
    assert not answer.startswith("0\n")


@pytest.mark.parametrize("attempt", ["mv .config c", "rm -rf .local/state", "mkdir -p .aws", "mv .ssh project/s"])
def test_the_same_attempts_succeed_unconfined(tmp_path, attempt):
    """The control: it is the plan that stops them."""
    home = Home(tmp_path)
    home.context.sandbox = "off"
    before = home.private()
    assert home.bash(attempt) == "(no output)\nexit status 0"
    assert home.private() != before


STILL_DONE = [
    ("cat project/a .bashrc .config/other/settings", "mine\nmine\nmine"),
    ("cd project && mkdir -p d/e && mv a d/e/b && cp d/e/b c && rm -r d && cat c", "mine"),
    ("echo more >> .bashrc && cat .bashrc", "mine\nmore"),
    ("echo x > .config/other/new && mv .config/other/new .config/other/n && cat .config/other/n", "x"),
    ("cd project && git init -q . && git -c user.name=a -c user.email=b commit -q --allow-empty -m x && git log --format=%s", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "text"), STILL_DONE)
def test_a_home_directory_can_be_worked_in(tmp_path, confined, command, text):
    """What is in it is read and written, and the directories that hold nothing private are open."""
    assert Home(tmp_path).bash(command) == f"{text}\nexit status 0"


def test_the_hint_says_where_names_stay(tmp_path, confined):
    text = Home(tmp_path).bash("mkdir new")
    assert (
        "; names directly in ROOT, ROOT/.config, ROOT/.local, ROOT/.local/state cannot be renamed or removed, " in text
    )
    assert "and new ones can only be made with write_file]" in text
    assert Home(tmp_path)("write_file", path="fresh/a", content="x") == "Created ROOT/fresh/a (1 line, 1 byte)."


@pytest.mark.parametrize("above", [1, 2])
def test_a_root_above_the_home_directory(tmp_path, confined, above):
    """/home, or the root of everything, as working directory is no way round."""
    home = Home(tmp_path)
    top = tmp_path if above == 1 else tmp_path.parent
    home.context.roots, home.context.cwd = [str(top), str(home.root)], str(top)
    before = home.private()
    where = os.path.relpath(home.root, top)
    home.bash(f"mv {where} gone; mv {where.split('/')[0]} g; mv {where}/.config {where}/c; mkdir -p {where}/.aws")
    assert home.private() == before and home.root.is_dir()
    assert home.bash(f"echo y > {where}/project/b && cat {where}/project/b") == "y\nexit status 0"


@pytest.mark.parametrize("link", [".config", ".local/state", ".ssh"])
def test_a_link_on_the_way_cannot_be_turned(tmp_path, confined, link):
    """A configuration kept elsewhere in the home directory and linked to: link and target both stay."""
    home = Home(tmp_path)
    target = home.root / "project" / "kept"
    os.rename(home.root / link, target)
    (home.root / link).symlink_to(target)
    before = home.private()
    home.bash(f"rm {link}; mkdir -p {link}/agent; ln -sfn project {link}; mv project p; rm -rf project/kept")
    home.bash("mv project/kept project/k; mkdir -p project/kept/agent")
    assert home.private() == before and (home.root / link).readlink() == target


def test_a_store_deep_in_a_project(tmp_path, confined):
    """The directories above it cannot be carried away either; where mounts cover it, everything beside it is free."""
    box = Box(tmp_path, private=[str(tmp_path / "root/var/data/sessions")])
    box.write("var/data/sessions/s", SECRET)
    box.write("src/a", "mine\n")
    text = box.bash("mv var v; mv var/data var/d; rm -rf var; mkdir -p var/data/sessions; cat v*/d*/s*/* */*/*/s")
    assert SECRET not in text and (box.root / "var/data/sessions/s").read_text() == SECRET
    assert box.bash("echo y > src/b && mv src/b src/c && cat src/c") == "y\nexit status 0"
    beside = box.bash("echo new > top && echo new > var/data/n && cat top var/data/n")
    assert (
        beside == "new\nnew\nexit status 0" if confined != "entries" else "can only be made with write_file]" in beside
    )


def test_the_file_tools_make_nothing_private(tmp_path):
    """Also where the private path and the directories on the way are not there yet."""
    home = Home(tmp_path)
    for name in (".aws/credentials", ".m2/settings.xml", ".config/agent/x", ".local/state/agent/sessions/s", ".netrc"):
        text = home("write_file", path=name, content="x")
        assert text == f"{name} is private (keys, history, the agent's own files): no tool may use it."


def test_the_way_of_a_path(tmp_path):
    """Directories passed, and the names that decide: links, and what is missing or in the way."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/file").write_text("")
    (tmp_path / "l").symlink_to("a/../a")
    (tmp_path / "loop").symlink_to("loop")

    def ways(name: str) -> tuple[list[str], list[str]]:
        passed, names = plan.way(str(tmp_path / name))
        here = f"{tmp_path}/"
        return [path.removeprefix(here) for path in passed if path.startswith(here)], [
            path.removeprefix(here) for path in names
        ]

    assert ways("a/b") == (["a"], [])
    assert ways("a/c/d") == (["a"], ["a/c"])
    assert ways("a/file/x") == (["a"], ["a/file"])
    assert ways("l/b") == (["a", "a"], ["l"])
    assert set(ways("loop/x")[1]) == {"loop"}


def test_the_user_is_warned_of_a_home_directory_as_working_directory(tmp_path):
    """The root itself or one above it; said before anything is run, and not in a project or where nothing is
    written."""
    home = Home(tmp_path)
    changing = "your home directory: tools can change what your shell and other programs start with (.bashrc, .profile)"
    instead = ". Start in a project's own directory instead"
    closed = "; commands cannot make, rename or remove anything directly in it"
    assert home.shown(sandbox.warning(home.context)) == f"ROOT is {changing}{closed}{instead}"
    home.context.sandbox = "off"
    assert home.shown(sandbox.warning(home.context)) == f"ROOT is {changing}{instead}"
    home.context.sandbox = "read-only"
    assert sandbox.warning(home.context) == ""
    home.context.sandbox = "workspace-write"
    home.context.roots = [str(home.root / "project")]
    assert sandbox.warning(home.context) == ""
    home.context.roots = [str(tmp_path)]
    assert sandbox.warning(home.context) == f"{tmp_path} holds {changing}{closed}{instead}"
