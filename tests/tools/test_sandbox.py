"""Confinement: every way out is tried from inside, by each mechanism this system has.

The mechanisms are found when the tests are collected, none is skipped; `AGENT_TEST_MECHANISMS=landlock,bubblewrap`
makes it an error when one of those is not there.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.tools import landlock, sandbox

from .conftest import Box

SECRET = "the secret of another"
MECHANISMS = [
    name
    for name, works in (
        ("landlock", sandbox.available() == "landlock"),
        ("bubblewrap", sys.platform == "linux" and sandbox.bubblewrap_works()),
        ("seatbelt", sandbox.available() == "seatbelt"),
    )
    if works
]
WANTED = list(filter(None, os.environ.get("AGENT_TEST_MECHANISMS", "").split(",")))


def test_the_mechanisms_that_are_asked_for_are_here():
    assert MECHANISMS and set(WANTED) <= set(MECHANISMS)


@pytest.fixture(params=MECHANISMS)
def confined(request, tmp_path: Path, home: Path, monkeypatch) -> Iterator[Box]:
    """A box confined by one mechanism, beside things that must not be reached: a file, a key, a store."""
    monkeypatch.setattr(sandbox, "available", lambda: request.param)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text(SECRET)
    (home / ".ssh").mkdir()
    (home / ".ssh/id_ed25519").write_text(SECRET)
    (home / ".netrc").write_text(SECRET)
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    box = Box(tmp_path)
    (box.store / "other.jsonl").write_text(SECRET)
    box.write("mine", "my own\n")
    yield box


def state(tmp_path: Path) -> dict[str, tuple[object, ...]]:
    """Content, mode, time and attributes of everything beside the root."""
    found = {}
    for top, directories, names in os.walk(tmp_path):
        if Path(top) == tmp_path:
            directories[:] = [name for name in directories if name != "root"]
        for name in [*names, *directories]:
            path = Path(top) / name
            kept = path.read_text() if path.is_file() else ""
            status = path.lstat()
            found[str(path)] = (kept, status.st_mode, status.st_mtime, *os.listxattr(path, follow_symlinks=False))
    return found


WRITES = [
    "echo x > {out}/new",
    "echo x >> {out}/file",
    "cp mine {out}/new",
    "mv mine {out}/new",
    "mv {out}/file .",
    "rm {out}/file",
    "rm -r {out}",
    "mkdir {out}/d",
    "ln -s /etc {out}/l",
    "ln mine {out}/h",
    "ln {out}/file h && echo x > h",
    "truncate -s 0 {out}/file",
    ": > {out}/file",
    "chmod 777 {out}/file",
    "chmod 000 {out}",
    "cd {out} && chmod 777 file",
    "chmod -R 777 {home}",
    "mkfifo {out}/f",
    "ln -s {out} l && echo x > l/file",
    "ln -s {out}/file l && chmod 777 l",
    "echo x > /proc/self/cwd/../outside/file",
    "echo x > /proc/$PPID/root{out}/file",
    "sh -c 'sh -c \"echo x > {out}/new\"'",
    "python3 -c \"open('{out}/file', 'w')\"",
    "python3 -c \"import os; os.rename('mine', '{out}/new')\"",
    "python3 -c \"import os; d = os.open('{out}', 0); os.chmod('file', 511, dir_fd=d)\"",
    "python3 -c \"import os; os.fchmod(os.open('{out}/file', 0), 511)\"",
    "python3 -c \"import os; os.truncate('{out}/file', 0)\"",
    "echo x > {home}/.bashrc",
    "echo x >> {home}/.ssh/authorized_keys",
    "echo x > {store}/other.jsonl",
    "rm -rf {store}",
    "touch -d 2001-01-01 {out}/file",
    "touch -h -d 2001-01-01 {out}/file",
    "touch -r / {out}",
    "python3 -c \"import os; os.setxattr('{out}/file', 'user.x', b'1')\"",
    "python3 -c \"import os; os.utime(os.open('{out}/file', 0), (1, 1))\"",
    "git init -q {out}/repo",
    "tar cf {out}/t.tar mine",
    "(echo x > {out}/new) & wait",
    "setsid sh -c 'echo x > {out}/new'; sleep 0.05",
    "mount -t tmpfs none {out}",
    "unshare -rm sh -c 'echo x > {out}/new'",
    "chroot / sh -c 'echo x > {out}/new'",
    "find {out} -name file -exec rm {{}} +",
    "dd if=/dev/zero of={out}/file count=1",
    "install -m 777 mine {out}/new",
]


@pytest.mark.parametrize("attempt", WRITES)
def test_nothing_outside_the_roots_can_be_changed(confined, tmp_path, home, attempt):
    """Content and modes outside are the same after every attempt, and the command learns that it failed."""
    before = state(tmp_path)
    text = confined.bash(attempt.format(out=tmp_path / "outside", home=home, store=confined.store))
    assert state(tmp_path) == before
    assert not text.endswith("exit status 0") or "setsid" in attempt or "wait" in attempt, text


NEEDS_MORE_RIGHTS = ("mount", "unshare", "chroot", "echo x > /proc/$PPID")


@pytest.mark.parametrize("attempt", [each for each in WRITES if not each.startswith(NEEDS_MORE_RIGHTS)])
def test_the_same_attempts_succeed_unconfined(tmp_path, home, attempt):
    """The control: it is the confinement that stops them, not a mistake in the attempt."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text(SECRET)
    (home / ".ssh").mkdir()
    box = Box(tmp_path, sandbox="off")
    (box.store / "other.jsonl").write_text(SECRET)
    box.write("mine", "my own\n")
    before = state(tmp_path)
    text = box.bash(attempt.format(out=tmp_path / "outside", home=home, store=box.store))
    assert state(tmp_path) != before, text


READS = [
    "cat {home}/.ssh/id_ed25519",
    "cat {home}/.netrc",
    "cat {store}/other.jsonl",
    "cp {home}/.ssh/id_ed25519 k; cat k",
    "ln -s {home}/.ssh s; cat s/id_ed25519",
    "ln {home}/.netrc n; cat n",
    "cat ../home/.ssh/id_ed25519",
    "tar c {home} | strings",
    "cat /proc/self/root{home}/.netrc",
    "python3 -c \"print(open('{home}/.netrc').read())\"",
    "grep -r . {home} {store}",
    "cd {home} && cat .netrc",
    "mv {home}/.ssh . ; cat .ssh/*",
    "(cat {home}/.netrc)",
    "cat /proc/{pid}/root{home}/.netrc",
    "env",
    "printenv SOME_API_KEY",
    "cat /proc/{pid}/environ",
    "cat /proc/self/environ",
    "cat /proc/$PPID/environ",
    "cat /proc/*/environ 2>/dev/null",
    "tr '\\0' '\\n' < /proc/{pid}/environ",
    "strings /proc/{pid}/mem",
    "declare -p; set",
    'python3 -c "import os; print(os.environ)"',
    "cat /proc/{pid}/task/*/environ",
]


@pytest.mark.parametrize("attempt", READS)
def test_keys_stores_and_the_agents_environment_cannot_be_read(confined, home, attempt):
    values = {"home": home, "store": confined.store, "pid": os.getpid()}
    assert SECRET not in confined.bash(attempt.format(**values) if "{" in attempt else attempt)


SOCKETS = [
    "import socket; socket.create_connection(('127.0.0.1', {port}), 2)",
    "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()",
    "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
    "import socket; socket.socket(socket.AF_INET6)",
    "import socket; socket.socket(socket.AF_UNIX).connect('{unix}')",
    "import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + '{abstract}')",
    "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "import ctypes; assert ctypes.CDLL(None, use_errno=True).syscall(425, 8, ctypes.create_string_buffer(120)) >= 0",
]


@pytest.mark.parametrize("attempt", SOCKETS)
def test_no_socket_of_any_kind(confined, tmp_path, attempt):
    """TCP, UDP, UNIX by path and by abstract name, netlink, packet, and io_uring, which would go round the filter."""
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        unix.bind(path := str(confined.root / "s"))
        abstract.bind("\0" + (name := f"agent-test-{os.getpid()}"))
        for server in (unix, abstract):
            server.listen()
        code = attempt.format(port=tcp.getsockname()[1], unix=path, abstract=name)
        text = confined.bash(f'python3 -c "{code}" 2>&1 | tail -1; exit ${{PIPESTATUS[0]}}')
    assert text.endswith("exit status 1") and ("Error" in text), text
    assert "ModuleNotFound" not in text and "SyntaxError" not in text


def test_the_network_opens_when_it_is_allowed(confined):
    """TCP then works; the sockets of daemons stay closed."""
    confined.context.allow_net = True
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert confined.bash(f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo in") == "in\nexit status 0"
        server.accept()[0].close()
    text = confined.bash("python3 -c 'import socket; socket.socket(socket.AF_UNIX)' 2>&1 | tail -1")
    assert text.startswith("PermissionError")


KILLS = [
    "kill -9 {pid}",
    "kill -TERM $PPID",
    "pkill -9 -f pytest; true",
    "kill -9 {other}",
    "python3 -c 'import os; os.kill({pid}, 9)'",
]


@pytest.mark.parametrize("attempt", KILLS)
def test_no_process_outside_can_be_signalled(confined, attempt):
    import subprocess

    with subprocess.Popen(["sleep", "60"]) as other:
        confined.bash(attempt.format(pid=os.getpid(), other=other.pid))
        assert other.poll() is None
        other.kill()


EVERYDAY = [
    ("cat mine", "my own"),
    ("echo x > new && cat new && rm new", "x"),
    ("mkdir -p a/b && mv mine a/b/ && ls a/b && mv a/b/mine .", "mine"),
    ("ln mine hard && ln -s mine soft && cat hard soft", "my own\nmy own"),
    ("printf '#!/bin/sh\\necho ran\\n' > run && chmod +x run && ./run", "ran"),
    ("chmod 700 . && chmod -R u+rw . && install -m 755 mine i && stat -c %a i", "755"),
    ("echo t > $TMPDIR/t && cat $TMPDIR/t && f=$(mktemp) && echo m > $f && cat $f", "t\nm"),
    ("git init -q . && git -c user.name=a -c user.email=b commit -q --allow-empty -m x && git log --format=%s", "x"),
    ("python3 -c 'import socket; a, b = socket.socketpair(); a.send(b\"x\"); print(b.recv(1))'", "b'x'"),
    (
        'python3 -c \'import subprocess; print(subprocess.run(["echo", "sub"], capture_output=True).stdout)\'',
        "b'sub\\n'",
    ),
    ("head -c 4 /dev/zero | wc -c; head -c 2 /dev/urandom | wc -c; echo > /dev/null", "4\n2"),
    ("sleep 60 & kill $! && wait $!; echo $?", "143"),
    ("tar cf t.tar mine && mkdir o && tar xf t.tar -C o && cat o/mine", "my own"),
    ("touch -d 2001-01-01T00:00 mine && cp -a mine c && stat -c %y c | cut -c 1-10", "2001-01-01"),
    ("ln -s nowhere l && touch -h -d 2001-01-01 l && stat -c %y l | cut -c 1-10", "2001-01-01"),
    ("mkdir t && ln -s nowhere t/l && echo x > t/f && tar cf - t | (mkdir u && tar xf - -C u) && ls u/t", "f\nl"),
    ("chown $(id -u) mine && chgrp -h $(id -g) mine && echo owned", "owned"),
    ("ls /usr > /dev/null && cat /etc/passwd > /dev/null && echo readable", "readable"),
]


@pytest.mark.parametrize(("command", "text"), EVERYDAY)
def test_everyday_work_is_not_in_the_way(confined, command, text):
    assert confined.bash(command) == f"{text}\nexit status 0"


def test_a_refusal_names_the_sandbox(confined, tmp_path):
    """The model learns in one step what it may write."""
    text = confined.bash(f"echo x > {tmp_path}/outside/file")
    assert text.splitlines()[-2:] == [
        f"[sandbox: only {confined.shown(str(confined.root))} and $TMPDIR can be written; there is no network]",
        "exit status 1",
    ]


def test_read_only_mode(confined):
    """Nothing but the temporary directory can be written."""
    confined.context.sandbox = "read-only"
    assert confined.bash("echo x > $TMPDIR/t && cat mine") == "my own\nexit status 0"
    assert "exit status 1" in confined.bash("echo x > mine")
    assert "exit status 1" in confined.bash("chmod 777 mine")
    assert (confined.root / "mine").read_text() == "my own\n"


@pytest.mark.parametrize("way", ["mounts", "bubblewrap", "entries"])
def test_a_store_inside_the_root_is_out_of_reach(tmp_path, monkeypatch, way):
    """The checkout with its own sessions: not read, not changed, by each of the ways there are here; where new names
    beside it cannot be made, the result says what to do."""
    ways = {"mounts": sandbox.may_mount(), "bubblewrap": sandbox.bubblewrap_works(), "entries": landlock.abi() > 0}
    if not ways[way]:
        assert way not in WANTED
        return
    monkeypatch.setattr(sandbox, "may_mount", lambda: way == "mounts")
    monkeypatch.setattr(sandbox, "bubblewrap_works", lambda: way == "bubblewrap")
    box = Box(tmp_path, private=[str(tmp_path / "root/sessions")])
    box.write("sessions/other.jsonl", SECRET)
    box.write("src/a", "mine\n")
    assert SECRET not in box.bash("cat sessions/*; grep -r . .")
    box.bash(
        "echo x >> sessions/other.jsonl; rm -rf sessions; mv sessions s; echo x > sessions/new; chmod 777 sessions"
    )
    assert {path.name: path.read_text() for path in (box.root / "sessions").iterdir()} == {"other.jsonl": SECRET}
    assert box.bash("echo y > src/b; cat src/*") == "mine\ny\nexit status 0"
    text = box.bash("echo new > top && cat top")
    assert text == "new\nexit status 0" if way != "entries" else "can only be made with write_file]" in text


def test_a_planted_link_is_not_written_through(box, tmp_path):
    """The agent itself writes long commands into the directory that commands may write in."""
    (tmp_path / "victim").write_text(SECRET)
    box.bash(f"cd $TMPDIR && for n in command.sh $(seq 9); do ln -s {tmp_path}/victim $n; done")
    assert box.bash(f": {'x' * 200_000}; echo done") == "done\nexit status 0"
    assert (tmp_path / "victim").read_text() == SECRET


@pytest.mark.parametrize("version", range(1, landlock.abi() + 1))
def test_files_are_safe_with_every_landlock_this_kernel_has(tmp_path, home, monkeypatch, version):
    """An older kernel's Landlock sees less; the filter makes up for truncation, and nothing is asked in vain."""
    monkeypatch.setattr(landlock, "abi", lambda: version)
    monkeypatch.setattr(sandbox, "available", lambda: "landlock")
    box = Box(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text(SECRET)
    before = state(tmp_path)
    out = tmp_path / "outside"
    box.bash(
        f"echo x > {out}/file; truncate -s 0 {out}/file; rm {out}/file; mv {out}/file .; chmod 777 {out}/file; ln {out}/file h"
    )
    box.bash(f"python3 -c \"import os; os.open('{out}/file', os.O_RDONLY | os.O_TRUNC)\"")
    box.bash(f"python3 -c \"import os; os.truncate('{out}/file', 0)\"")
    assert state(tmp_path) == before
    assert (
        box.bash('echo a > a && echo b > a && cat a && python3 -c \'open("a", "w")\'; wc -c < a')
        == "b\n0\nexit status 0"
    )


def test_the_sessions_own_files_are_readable_inside_a_hidden_store(tmp_path):
    """A spilled output can be searched with commands; the rest of the store cannot."""
    box = Box(tmp_path, private=[str(tmp_path)], result_cap=300)
    box.bash("seq 1 5000")
    spill = box.result.detail["spill"]
    assert box.bash(f"tail -1 {spill}") == "5000\nexit status 0"
    assert box.bash(f"echo x >> {spill}").endswith("exit status 1")


def test_one_thread_is_confined_and_not_the_agent(confined, tmp_path):
    """After a confined call the agent itself still may do everything."""
    before = set(threading.enumerate())
    confined.bash("true")
    (tmp_path / "outside/file").write_text("x")
    os.chmod(tmp_path / "outside/file", 0o600)
    socket.socket().close()
    assert [thread.name for thread in threading.enumerate() if thread not in before] == []


def test_many_questions_about_modes_are_answered(confined):
    """A warden that is asked a thousand times by several processes at once answers each."""
    text = confined.bash(
        "for i in $(seq 4); do (touch f$i; for j in $(seq 100); "
        "do chmod 6$((j % 8))0 f$i; done) & done; wait; stat -c %a f*"
    )
    assert text == "640\n640\n640\n640\nexit status 0"


def test_what_is_asked_for_and_not_to_be_had_is_a_configuration_error(monkeypatch):
    """Exit 3, and what to do; by default it is said and bash asks."""
    monkeypatch.setattr(sandbox, "available", lambda: "none")
    assert sandbox.mechanism("workspace-write") == "none"
    with pytest.raises(ConfigError, match="Install bubblewrap"):
        sandbox.mechanism("workspace-write", demanded=True)
    with pytest.raises(ConfigError, match="There is no sandbox mode 'on'"):
        sandbox.mechanism("on")
    assert sandbox.mechanism("off", demanded=True) == "off"


def test_when_confining_fails_nothing_is_run(box, monkeypatch):
    """A kernel that refuses in the last moment: the command does not run unconfined."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(sandbox, "available", lambda: "landlock")
    monkeypatch.setattr(landlock, "restrict", refuse)
    assert box.bash("touch ran") == "The command could not be run: Operation not permitted. Nothing was done."
    assert not (box.root / "ran").exists()


def test_the_profile_of_sandbox_exec():
    """macOS: the same plan in its words."""
    plan = sandbox.Plan(
        "/w", ["/w", "/t"], ["/home/.ssh"], ["/store/own"], holding=["/w/.config"], names=["/w/.config/agent"]
    )
    assert sandbox.seatbelt_profile(plan) == PROFILE


PROFILE = """\
(version 1)
(allow default)
(deny file-write*)
(allow file-write* (subpath "/w"))
(allow file-write* (subpath "/t"))
(allow file-write* (literal "/dev/null"))
(allow file-write* (literal "/dev/zero"))
(allow file-write* (literal "/dev/full"))
(allow file-write* (literal "/dev/random"))
(allow file-write* (literal "/dev/urandom"))
(deny file-write-unlink (literal "/w/.config"))
(deny file-write* (subpath "/w/.config/agent"))
(deny file-read* file-write* (subpath "/home/.ssh"))
(allow file-read* (subpath "/store/own"))
(deny network*)
(deny signal (target others))"""
