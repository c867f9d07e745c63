"""bash: it always comes back, with what was printed, and leaves nothing running."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from agent.tools import process

from .conftest import Box


def running(marker: str) -> list[str]:
    """The command lines of live processes that mention `marker`, without this test itself."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if marker in line and int(pid) != os.getpid():
            found.append(line)
    return found


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo out; echo err >&2; echo out", "out\nerr\nout\nexit status 0"),
        ("exit 3", "(no output)\nexit status 3"),
        ("kill -9 $$", "(no output)\nexit status 137"),
        ("cat; read x; python3 -c 'input()' 2>&1 | tail -1", "EOFError: EOF when reading a line\nexit status 0"),
        ("tty", "not a tty\nexit status 1"),
        ("printf 'a\\377b\\000c\\n'; echo d", "a�b\\x00c\nd\nexit status 0"),
        ("printf '\\033[31mred\\033[0m \\033]0;t\\007\\n'", "red \nexit status 0"),
        ("echo $0 $1; return 3", None),
        ("no_such_command", "bash: line 1: no_such_command: command not found\nexit status 127"),
        ("echo 'unterminated", None),
        ("cat <<'E'\n$x `y`\nE", "$x `y`\nexit status 0"),
        ("pwd; echo $PWD; echo $AGENT_SESSION_ID", "ROOT\nROOT\n20260101-000000-00000000\nexit status 0"),
        ("umask; ulimit -c", "0077\n0\nexit status 0"),
        ("echo é汉😀", "é汉😀\nexit status 0"),
        ("exec >&-; sleep 0.1; exit 4", "(no output)\nexit status 4"),
        ("cd /; true", "(no output)\nexit status 0"),
        ("echo a > >(cat; echo b)", "a\nb\nexit status 0"),
    ],
)
def test_a_command_tells_all_and_ends_with_its_status(box, command, text):
    """Output in order, closed input, no terminal, bytes that are no text, signals: the last line is the status."""
    found = box.bash(command)
    assert text is None or found == text
    assert found.splitlines()[-1] == f"exit status {box.result.detail['exit_code']}"
    assert box.result.ok == (box.result.detail["exit_code"] == 0)


LEFT_BEHIND = [
    "sleep {m} &",
    "setsid sleep {m} &",
    "(trap '' TERM HUP INT; sleep {m}) &",
    "yes {m} &",
    "nohup sleep {m} >/dev/null 2>&1 &",
    "(setsid setsid sleep {m} &) &",
    "sleep {m} | sleep {m} &",
]


@pytest.mark.parametrize("command", LEFT_BEHIND)
def test_background_processes_hold_nothing_and_are_ended(box, command):
    """The call returns soon after bash has, and says what it ended; nothing is left."""
    marker = f"9{time.time_ns() % 10**8}"
    start = time.monotonic()
    text = box.bash("echo started; " + command.format(m=marker))
    assert time.monotonic() - start < 3
    assert text.startswith("started\n") and " ended with the command]\nexit status 0" in text
    assert running(marker) == []


STUBBORN = [
    "sleep {m}",
    "trap '' TERM INT HUP; sleep {m}; sleep {m}",
    "setsid sleep {m} & wait",
    "yes {m}",
    "(trap '' TERM; sleep {m}) & (setsid sh -c 'trap \"\" TERM; sleep {m}') & wait",
    "exec sleep {m} >&-",
]


@pytest.mark.parametrize("command", STUBBORN)
def test_a_timeout_keeps_the_output_so_far_and_ends_everything(box, command):
    marker = f"9{time.time_ns() % 10**8}"
    start = time.monotonic()
    text = box.bash("echo begun; " + command.format(m=marker), timeout=1)
    assert time.monotonic() - start < 4
    assert text.startswith("begun\n")
    assert text.endswith("exit status 124") or "too much output" in text
    assert running(marker) == []


def test_a_timeout_says_what_to_do(box):
    assert box.bash("echo a; sleep 9", timeout=1) == (
        "a\n[timed out after 1 s: the command and all it started were ended. Output so far is above. Give a larger "
        "timeout (seconds), or do less at a time.]\nexit status 124"
    )
    assert box.result.detail == {"exit_code": 124, "timed_out": True}


def test_long_output_is_cut_and_spilled_whole(tmp_path):
    """Head and tail stay; the file has every byte, mode 0600, and read_file and a command can look into it."""
    box = Box(tmp_path, result_cap=400)
    text = box.bash("seq 1 100000")
    spill = box.result.detail["spill"]
    assert text.startswith("1\n2\n") and text.endswith("\n99999\n100000\nexit status 0")
    assert f" characters cut; all of it is in {box.shown(spill)}: read_file or grep it ...]" in text
    with open(spill) as file:
        assert file.read() == "".join(f"{n}\n" for n in range(1, 100001))
    assert os.stat(spill).st_mode & 0o777 == 0o600
    assert box("read_file", path=spill, offset=5000, limit=1) == (
        "[lines 5000-5000 of 100000]\n5000\n[95000 more lines: offset=5001]"
    )
    assert box.bash(f"grep -c 7 {spill}").startswith("40951\n")


def test_output_that_cannot_be_kept_in_a_file_is_still_told(tmp_path):
    """The command has run and done its work: the model must not read that nothing was done, and do it again."""
    (tmp_path / "files").write_text("in the way")
    box = Box(tmp_path, result_cap=400)
    for command in ("touch made; seq 1 100000", "touch more; seq 1 1000000"):
        text = box.bash(command)
        assert text.startswith("1\n2\n") and text.endswith("00000\nexit status 0")
        assert "; it could not be kept in a file: " in text
        assert (box.result.ok, box.result.detail) == (True, {"exit_code": 0})
    assert sorted(path.name for path in box.root.iterdir()) == ["made", "more"]


def test_ten_gigabytes_take_bounded_memory_time_and_disk(tmp_path):
    """`yes` without end is stopped; memory grows by megabytes, the spill has a limit, and the answer says both."""
    box = Box(tmp_path, result_cap=300)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()
    text = box.bash("yes | head -c 10G")
    assert time.monotonic() - start < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
    assert "the first part is in FILES/output-" in text
    assert "[stopped: too much output. Send it to a file and look at parts of it.]\nexit status 1" in text
    assert os.path.getsize(box.result.detail["spill"]) < 80 * 1024 * 1024


def test_a_command_longer_than_an_argument_may_be(box):
    """5 MB of command go through a file; the result is the same."""
    assert box.bash(f": {'x' * 5_000_000}\necho done") == "done\nexit status 0"


def test_a_fork_bomb_is_stopped(box, monkeypatch):
    """It is bounded by a count of processes as well as by a limit (root has none); nothing of it is left."""
    monkeypatch.setattr(process, "MOST_PROCESSES", 60)
    marker = f"9{time.time_ns() % 10**8}"
    start = time.monotonic()
    text = box.bash(f"for i in $(seq 150); do setsid sleep {marker} & done; wait", timeout=20)
    assert time.monotonic() - start < 10
    assert text.endswith("[stopped: the command started too many processes.]\nexit status 137")
    assert running(marker) == []


PROGRAM = """
import sys
from agent.messages import ToolCall
from agent.tools import Permissions, ToolContext, build_toolbox
context = ToolContext(cwd=sys.argv[1], roots=[sys.argv[1]], files_dir=lambda: sys.argv[1])
box = build_toolbox(["bash"], context, Permissions(sandboxed=True))
try:
    box.run(ToolCall("1", "bash", '{"command": "touch begun; trap \\'\\' INT TERM; setsid sleep %s & sleep %s"}'))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_passes_through_and_leaves_nothing(box):
    """KeyboardInterrupt is not swallowed; the command, its stubborn child and a setsid child are gone."""
    marker = f"9{time.time_ns() % 10**8}"
    program = PROGRAM % (marker, marker)
    with subprocess.Popen([sys.executable, "-c", program, str(box.root)], stdout=subprocess.PIPE, text=True) as child:
        deadline = time.monotonic() + 20
        while not (box.root / "begun").exists() and time.monotonic() < deadline:
            os.sched_yield()
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=10)[0] == "interrupted\n"
    assert [line for line in running(marker) if line.startswith("sleep")] == []


def test_a_killed_agent_takes_its_command_with_it(box):
    """SIGKILL leaves no time to clean up: the command must not go on while the session is resumed."""
    marker = f"9{time.time_ns() % 10**8}"
    program = (PROGRAM % (marker, marker)).replace("setsid ", "")
    with subprocess.Popen([sys.executable, "-c", program, str(box.root)]) as child:
        deadline = time.monotonic() + 20
        while not (box.root / "begun").exists() and time.monotonic() < deadline:
            os.sched_yield()
        child.kill()
    while running(f"sleep {marker}") and time.monotonic() < deadline:
        os.sched_yield()
    assert running(f"sleep {marker}") == []


def test_other_children_of_the_agent_are_left_alone(box):
    """Only what the command started is ended."""
    with subprocess.Popen(["sleep", "60"]) as other:
        box.bash("sleep 60 & echo")
        assert other.poll() is None
        other.kill()


def test_a_vanished_directory_is_said(box):
    os.rmdir(box.root)
    assert box.bash("ls").startswith("The command could not be run: No such file or directory")


@pytest.mark.parametrize("command", ["", "  \n", "a\0b"])
def test_an_empty_command_is_not_run(box, command):
    assert box.bash(command) == "The command is empty or holds a NUL character. Nothing was run."
