"""Signals: one stops a run, and none may come between a call and what it gave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import Runner, environment

from agent.signals import Stopped, held, stopping


@pytest.mark.parametrize("argv", [["hello"], ["sessions", "list"]])
def test_ctrl_c_while_modules_load_just_ends_it(argv: list[str], home: Path, tmp_path: Path) -> None:
    """orjson dies of an exception that comes while it loads: sent at the first import it makes itself."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Finder:\n"
        "    loading = False\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        if cls.loading: os.kill(os.getpid(), signal.SIGINT)\n"
        "        cls.loading = name == 'orjson.orjson'\n"
        "sys.meta_path.insert(0, Finder)\n"
    )
    env = environment(PYTHONPATH=str(tmp_path), OPENAI_BASE_URL="http://127.0.0.1:9/v1", MODEL="m")
    done = subprocess.run([sys.executable, "-m", "agent", *argv], env=env, cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
    assert not list(home.rglob("*.jsonl"))


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_raises_once(number: int, code: int) -> None:
    with stopping(), pytest.raises(Stopped) as stopped:
        os.kill(os.getpid(), number)
    assert stopped.value.exit_code == code


def test_what_is_held_is_in_hand_before_the_signal_is_felt() -> None:
    """Sent to the main thread, which is the only one where it matters: other tests' servers have threads of their own."""
    given = []
    with stopping(), pytest.raises(Stopped), held():
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        given.append("a server")
    assert given == ["a server"]


def test_the_second_signal_ends_the_process() -> None:
    code = (
        "import os, signal\nfrom agent.signals import stopping\n"
        "with stopping():\n try: os.kill(os.getpid(), signal.SIGTERM)\n"
        " except KeyboardInterrupt: os.kill(os.getpid(), signal.SIGINT); print('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment())
    assert (done.returncode, done.stdout) == (130, b"")


@pytest.mark.parametrize("seconds", ["0.1", "0.2", "0.3", "0.4", "0.6", "0.9"])
def test_the_time_may_be_over_while_the_built_in_model_loads(seconds: str, agent: Runner, model_file: str) -> None:
    done = agent("--json", "--no-session", "--timeout", seconds, "Tell a long story of the sea.")
    assert done.code in (124, 0), done
    assert '"type":"result"' in done.out.splitlines()[-1]
