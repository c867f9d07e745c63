"""What every test stands on: a home of its own, a bare environment, loopback only, and a transcript helper."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ORIGINAL = dict(os.environ)
KEPT = ("PATH", "LANG", "LC_ALL", "TERM", "TMPDIR", "VIRTUAL_ENV", "COVERAGE_PROCESS_START")
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
"""The one thing tests share with the machine: the fetched model."""


for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if (
        signal.getsignal(number) == signal.SIG_IGN
    ):  # started with nohup, or by a shell's `&`: children would ignore it, too
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="session")
def temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests and killed processes leave in the temporary directory goes with pytest's own."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("tmp"))
    tempfile.tempdir = None
    yield
    tempfile.tempdir = None
    os.environ.pop("TMPDIR") if before is None else os.environ.update(TMPDIR=before)


@dataclass
class Transcript:
    """What one command did: its exit code and everything it wrote."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh home directory and an environment without keys, servers or settings."""
    home = tmp_path / "home"
    home.mkdir()
    for name in list(os.environ):
        if name not in KEPT and not name.startswith(("PYTEST", "PYTHON", "PIP_", "AGENT_TEST")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", CACHE)
    return home


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse, loudly, any connection that would leave the machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else ""
        if self.family in (socket.AF_INET, socket.AF_INET6) and not str(host).startswith(("127.", "::1", "localhost")):
            raise AssertionError(f"a test reached for {address}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)


Runner = Callable[..., Transcript]


@pytest.fixture(scope="session")
def model_file() -> str:
    """The built-in model's file, fetched once with the environment the tests were started in."""
    from agent import local

    return local.builtin_path(ORIGINAL, lambda line: None, progress=False)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Runner]:
    """`agent("prompt", "-q", stdin=b"...", cwd=..., NAME="value")` runs the real command in a directory of its own."""
    work = tmp_path / "work"
    work.mkdir()

    def run(*argv: str, stdin: bytes | int | None = subprocess.DEVNULL, cwd: Path = work, **env: str) -> Transcript:
        feed: dict[str, object] = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
        done = subprocess.run(
            [sys.executable, "-m", "agent", *argv],
            cwd=cwd,
            env={**os.environ, **env},
            capture_output=True,
            timeout=120,
            check=False,
            **feed,  # type: ignore[call-overload]
        )
        return Transcript(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))

    yield run


def environment(**more: str) -> Mapping[str, str]:
    """The environment of a child process: this one's, and `more`."""
    return {**os.environ, **more}
