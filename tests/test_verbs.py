"""`agent sessions ...` as typed: whole outputs, exit codes, and what a terminal gets."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import environment
from disks import Quick
from lives import ask, compact, prune, user

from agent.cli import main
from agent.session import Session

ID = "20260101-100000-abc12345"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with one session of this directory: two turns, a compaction, a turn."""
    monkeypatch.chdir(tmp_path)
    store = str(tmp_path / "store")
    monkeypatch.setenv("AGENT_SESSION_DIR", store)
    with Session.create(store, {"cwd": str(tmp_path), "model": "m"}, id=ID, disk=Quick()) as session:
        ask(session, "one")
        ask(session, "two")
        compact(session)
        ask(session, "the launch code", "it is \x1b[31m0000")
    return store


class Said:
    """What one command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> object:
        return json.loads(self.out)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter((self.code, self.out, self.err))


@pytest.fixture
def here(capfdbinary: pytest.CaptureFixture[bytes]):  # type: ignore[no-untyped-def]
    """`here("doctor", ID)` runs `agent doctor ID` in this process."""

    def run(*argv: str) -> Said:
        code = main([*argv])
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Said(code, out.decode(), err.decode())

    return run


@pytest.fixture
def sessions(here):  # type: ignore[no-untyped-def]
    """`sessions("list", "--json")` runs `agent sessions list --json` in this process."""
    return lambda *argv: here("sessions", *argv)


def test_list(store: str, sessions) -> None:  # type: ignore[no-untyped-def]
    """A row a session; --json one object a line; the bare verb is the same; other directories are counted."""
    row = f"{ID}   0s     8       107  m                    one\n"
    assert (*sessions("list"),) == (0, row, "")
    assert sessions().out == row
    found = sessions("list", "--json").json
    assert {k: found[k] for k in ("id", "messages", "tokens", "model", "compactions", "first_words")} == {
        "id": ID, "messages": 8, "tokens": 107, "model": "m", "compactions": 1, "first_words": "one",
    }  # fmt: skip
    Session.create(store, {"cwd": "/other"}, id="elsewhere", disk=Quick()).close()
    assert sessions("list").err == "agent: 1 of other directories: agent sessions list --all\n"
    assert len(sessions("list", "--all").out.splitlines()) == 2
    assert len(sessions("list", "--all", "-n", "1").out.splitlines()) == 1
    assert "elsewhere" in sessions("list", "--cwd", "/other").out


def test_an_empty_store(store: str, sessions, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Nothing on stdout, a notice on stderr, exit 0; the store is not made."""
    where = str(tmp_path / "none")
    assert (*sessions("list", "--session-dir", where),) == (
        0,
        "",
        f"agent: no sessions in {where}, which is not there\n",
    )
    assert (*sessions("list", "--json", "--session-dir", where),) == (0, "", "")
    assert not os.path.exists(where)


def test_show(store: str, sessions) -> None:  # type: ignore[no-untyped-def]
    """The whole life with the compaction in place; the last answer alone; both as JSON."""
    compaction = "compacted (manual, window_plus_summary, messages 1 to 2 folded, 2 kept, 900 -> 90 tokens, "
    assert sessions("show", ID).out == (
        "user · 1\none\n\nassistant · 2\nre: one\n\nuser · 3\ntwo\n\nassistant · 4\nre: two\n\n"
        f"--- {compaction}original in archive 0001)\n\nsummary · 6\na summary\n\n"
        "user · 7\nthe launch code\n\nassistant · 8\nit is \x1b[31m0000\n\n"
    )
    assert (*sessions("show", "last", "--last-answer"),) == (0, "it is \x1b[31m0000\n", "")
    assert sessions("show", "abc", "--last-answer", "--json").json == {"id": ID, "answer": "it is \x1b[31m0000"}
    assert len(sessions("show", ID, "--json").json["history"]) == 7


def test_last_path_and_name(store: str, sessions) -> None:  # type: ignore[no-untyped-def]
    assert sessions("last").out == f"{ID}\n"
    assert sessions("path").out == f"{store}\n"
    assert sessions("path", "abc", "--json").json == {"path": f"{store}/{ID}.jsonl"}
    assert (*sessions("name", ID, "the-plan"),) == (0, "", f"agent: session {ID} is now the-plan\n")
    assert sessions("path", "the-plan").out == f"{store}/{ID}.jsonl\n"
    assert "[the-plan] one" in sessions("list").out
    assert sessions("name", ID, "two words").code == 2


def test_search(store: str, sessions) -> None:  # type: ignore[no-untyped-def]
    """Hits with id and n, archives included; nothing found is exit 1, as grep has it."""
    assert sessions("search", "LAUNCH").out == f"{ID}      7  user       the launch code\n"
    assert sessions("search", "one", "--json").out.count("\n") == 2
    assert (*sessions("search", "nowhere"),) == (1, "", "agent: no message holds 'nowhere'\n")
    assert sessions("search", " ").code == 2


def test_fork_and_rm(store: str, sessions) -> None:  # type: ignore[no-untyped-def]
    """The new id on stdout; removed again with everything it had, but by a dry run nothing."""
    new = sessions("fork", ID, "--at", "3").out.strip()
    assert sessions("show", new).out.endswith("user · 3\ntwo\n\n")
    assert sessions("fork", ID, "--at", "99").code == 2
    would = f"{new}  would be removed\n{ID}  would be removed\n"
    assert (*sessions("rm", new, ID, new, "--dry-run"),) == (0, would, "")
    assert sessions("rm", new, "--dry-run", "--json").json == {"id": new, "removed": False}
    assert (*sessions("rm", new, "--json"),) == (0, f'{{"id":"{new}","removed":true}}\n', "")
    assert sorted(os.listdir(store)) == [f"{ID}.archive", f"{ID}.jsonl", f"{ID}.lock"]
    assert sessions("rm", "nosuch").code == 4


def test_export(store: str, sessions) -> None:  # type: ignore[no-untyped-def]
    """jsonl is the file byte for byte, and stderr tells what only the archive has; every form goes to stdout."""
    more = (
        f"agent: 2 more messages stand only in the archive; for all of them: agent sessions export {ID} --format json\n"
    )
    assert (*sessions("export", ID, "--format", "jsonl"),) == (0, Path(store, f"{ID}.jsonl").read_text(), more)
    with Session.open(store, ID) as session:
        prune(session, 4)
    assert sessions("export", ID, "--format", "jsonl").err == more.replace("2 more", "3 more")
    history = sessions("export", ID, "--format", "json").json["history"]
    assert [e["message"]["content"] for e in history][:4] == ["one", "re: one", "two", "re: two"]
    assert sessions("undo", ID).code == sessions("undo", ID).code == 0
    assert sessions("export", ID, "--format", "jsonl").err == ""
    assert sessions("export", ID).out.startswith(f"# {ID}\n")
    assert sessions("export", ID, "--format", "html").out.startswith("<!doctype html>")
    assert sessions("export", ID, "--json").json["meta"]["id"] == ID
    assert sessions("export", ID, "--format", "pdf").code == 2


def test_prune(store: str, sessions) -> None:  # type: ignore[no-untyped-def]
    """A dry run says what would go; nothing old says so."""
    assert (*sessions("prune", "--older-than", "30d"),) == (0, "", "agent: no session is older than 30d\n")
    long_ago = time.time() - 40 * 86400
    os.utime(f"{store}/{ID}.jsonl", (long_ago, long_ago))
    would = sessions("prune", "--older-than", "30d", "--dry-run", "--json").json
    assert would == {"id": ID, "outcome": "would be removed"}
    assert (*sessions("prune", "--older-than", "30d", "--dry-run"),) == (0, f"{ID}  would be removed\n", "")
    assert sessions("prune", "--older-than", "5x").code == 2
    assert sessions("prune", "--older-than", "30d", "--json").json == {"id": ID, "outcome": "removed"}
    assert os.listdir(store) == []


def test_undo_and_redo(store: str, sessions) -> None:  # type: ignore[no-untyped-def]
    """And a second undo of one compaction is exit 4."""
    done = sessions("undo", ID)
    assert (done.code, done.out) == (0, "")
    assert done.err == (f"agent: compaction undone: 5 -> 6 messages; to redo it: agent sessions undo {ID} --redo\n")
    assert (*sessions("undo", ID),) == (4, "", f"agent: session {ID} has no compaction to undo\n")
    back = sessions("undo", ID, "--redo", "--json").json
    assert (back["undid"], back["redo"], back["messages"]) == (9, True, {"before": 6, "after": 5})


def test_undo_says_that_what_it_restores_was_altered(store: str, sessions, here) -> None:  # type: ignore[no-untyped-def]
    """It restores what is there all the same; the doctor names what is altered or missing."""
    archive = Path(store, f"{ID}.archive")
    log = f"ok       {ID}: every line is whole\n"
    step = f"\n         → Put the file back from a backup: {archive}\n"
    as_archived = "ok       archive: 1 of 1 files are as they were archived\n"
    assert (*here("doctor", ID),) == (0, log + as_archived, "")
    whole = (archive / "0001.jsonl").read_bytes()
    (archive / "0001.jsonl").write_bytes(whole.replace(b"re: one", b"re: One"))
    altered = "archive: 0001 has changed since it was archived"
    assert (*here("doctor", ID),) == (1, f"{log}failed   {altered}{step}", "")
    assert (*sessions("undo", ID),) == (0, "", (
        f"agent: compaction undone: 5 -> 6 messages; to redo it: agent sessions undo {ID} --redo\n"
        "agent: warning: archive 0001 has changed since it was archived: what was restored may not be what was said; "
        f"see agent sessions replay {ID} --check\n"
    ))  # fmt: skip
    assert "re: One" in sessions("show", ID).out
    assert sessions("undo", ID, "--redo", "--json").json["problems"] == []
    (archive / "0002.jsonl").unlink()
    assert (*here("doctor", ID),) == (1, f"{log}failed   archive: 0002 is missing{step}", "")
    (archive / "0001.jsonl").unlink()
    missing = "failed   archive: archives 0001 to 0002 are missing"
    assert (*here("doctor", ID, "--dry-run"),) == (1, f"{log}{missing}{step}", "")


def test_undo_of_files(store: str, sessions, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """The files that the last turn's tools changed are put back; what somebody changed since is not."""
    import hashlib

    from agent.tools import backup

    def digest(data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    with Session.open(store, ID) as session:
        session.append(user("change them"))
        for name in ("a.txt", "b.txt"):
            kept = backup.keep(b"before", session.files_dir())
            (tmp_path / name).write_bytes(b"after")
            record = {"path": str(tmp_path / name), "name": kept, "mode": 0o644}
            record |= {"before": digest(b"before"), "after": digest(b"after")}
            result = {"role": "tool", "tool_call_id": name, "content": "ok"}
            session.append({"type": "message", "message": result, "tool": {"name": "write_file", "backup": record}})
    (tmp_path / "b.txt").write_bytes(b"my own")
    assert sessions("undo", ID, "--files").out == (
        f"restore  {tmp_path}/a.txt\nskip     {tmp_path}/b.txt  (changed since by something else)\n"
    )
    assert [(tmp_path / n).read_bytes() for n in ("a.txt", "b.txt")] == [b"before", b"my own"]
    with Session.open(store, ID) as session:
        session.append(user("change nothing"))
    assert (*sessions("undo", ID, "--files"),) == (0, "", "agent: the last turn changed no files\n")


def test_replay_and_its_proof(store: str, sessions) -> None:  # type: ignore[no-untyped-def]
    """Request K as it was sent; --check agrees, and after one changed byte says so with exit 1."""
    assert sessions("replay", ID, "--request", "2", "--json").json == {
        "messages": [
            {"role": "user", "content": "one"}, {"role": "assistant", "content": "re: one"},
            {"role": "user", "content": "two"},
        ]
    }  # fmt: skip
    assert sessions("replay", ID, "--request", "1").out == "user · 1\none\n\n"
    assert len(sessions("replay", ID, "--json").json["messages"]) >= 5
    assert sessions("replay", ID, "--request", "9").code == 4
    agree = "3 requests and 1 archived file checked: they agree\n"
    assert (*sessions("replay", ID, "--check"),) == (0, agree, "")
    archived = Path(store, f"{ID}.archive", "0001.jsonl")
    archived.write_bytes(archived.read_bytes().replace(b"re: one", b"re: One"))
    checked = sessions("replay", ID, "--check", "--json")
    assert (checked.code, checked.json["ok"]) == (1, False)
    assert checked.json["problems"][0] == "archive 0001 has changed since it was archived"
    assert checked.json["problems"][1].startswith("request 2 (0001): ")
    assert sessions("replay", ID, "--request", "1").err == ""
    assert sessions("replay", ID, "--request", "2").err == (
        f"agent: request 2 cannot be reproduced exactly: its digest differs from what was sent; see: agent sessions replay {ID} --check\n"
    )


def test_damage_is_shown_and_told(store: str, sessions) -> None:  # type: ignore[no-untyped-def]
    """Reading verbs go past a bad line and name it; writing verbs stop with exit 4."""
    with open(f"{store}/{ID}.jsonl", "ab") as file:
        file.write(b"junk\n")
    shown = sessions("show", ID)
    assert (shown.code, "the launch code" in shown.out) == (0, True)
    assert shown.err.startswith("agent: line 8 cannot be read: it is not JSON")
    assert sessions("undo", ID).code == 4
    assert sessions("replay", ID, "--check").code == 1


@pytest.mark.parametrize("verb", ["show", "name", "fork", "export", "rm", "undo", "replay", "path"])
def test_a_session_that_is_not_there_is_exit_4(store: str, verb: str, sessions) -> None:  # type: ignore[no-untyped-def]
    """For every verb, with nothing on stdout and a path never touched."""
    more = ["x1x"] if verb == "name" else []
    for id in ("nosuch", "../../etc/passwd", "a b"):
        code, out, err = sessions(verb, id, *more)
        assert (code, out, err[:7]) == (4, "", "agent: ")


def on_a_terminal(command: list[str], env: dict[str, str], answers: bytes = b"") -> str:
    """What a terminal shows of a command, with `answers` typed."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=env, close_fds=True)
    os.close(follower)
    os.write(leader, answers)
    shown = b""
    try:
        while chunk := os.read(leader, 65536):
            shown += chunk
    except OSError:
        pass  # the terminal's other side is closed
    os.close(leader)
    process.wait()
    return shown.decode().replace("\r\n", "\n")


def test_on_a_terminal(store: str) -> None:
    """Escape sequences that were stored are shown, not obeyed; `show` goes through $PAGER; `rm` asks."""
    env = dict(environment(PAGER="sed s/^/PAGED:/", AGENT_SESSION_DIR=store))
    base = [sys.executable, "-m", "agent", "sessions"]
    assert on_a_terminal([*base, "show", ID, "--last-answer"], env) == "it is ^[[31m0000\n"
    shown = on_a_terminal([*base, "show", ID], env)
    assert "PAGED:user · 1\n" in shown
    assert "PAGED:it is ^[[31m0000\n" in shown
    listed = on_a_terminal([*base, "list", "--all"], env)
    assert [line[:24].strip() for line in listed.splitlines()] == ["ID", ID]
    assert "Remove" in on_a_terminal([*base, "rm", ID], env, b"n\n")
    assert os.path.exists(f"{store}/{ID}.jsonl")
    on_a_terminal([*base, "rm", ID], env, b"y\n")
    assert not os.path.exists(f"{store}/{ID}.jsonl")


def left(argv: list[str], cwd: Path, unbuffered: str = "") -> tuple[int, bytes]:
    """Exit code and stderr of a command whose reader has gone before it writes."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "agent", *argv], cwd=cwd, env=dict(environment(PYTHONUNBUFFERED=unbuffered)),
        stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize("argv", [
    "sessions list --all --json", "sessions list --all", "sessions show abc", "sessions show abc --json",
    "sessions export abc", "sessions export abc --format json", "sessions export abc --format html",
    "sessions export abc --format jsonl", "sessions replay abc", "sessions replay abc --check", "sessions search one",
    "sessions search long", "sessions stats", "sessions stats abc", "sessions path", "sessions --help", "config show",
    "config show --json", "models", "models --json", "completion bash", "doctor --offline", "--help", "-V",
])  # fmt: skip
def test_a_reader_that_has_gone_is_no_error(store: str, tmp_path: Path, argv: str) -> None:
    """Whether it is noticed at the first line, in the middle, or at the end."""
    with Session.open(store, ID) as session:
        for number in range(30):
            ask(session, f"long {number}", "word " * 2000)
    for number in range(40):
        Session.create(store, {"cwd": str(tmp_path)}, id=f"{number}-more", disk=Quick()).close()
    assert [left(argv.split(), tmp_path, unbuffered) for unbuffered in ("", "1")] == [(0, b"")] * 2


def test_a_difference_stays_one_where_the_reader_has_gone(store: str, tmp_path: Path) -> None:
    archived = Path(store, f"{ID}.archive", "0001.jsonl")
    archived.write_bytes(archived.read_bytes().replace(b"re: one", b"re: One"))
    command = ["sessions", "replay", ID, "--check"]
    assert [left(command, tmp_path, unbuffered) for unbuffered in ("", "1")] == [(1, b"")] * 2


def test_an_error_that_nobody_reads_keeps_its_code(store: str, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "agent", "sessions", "show", "nosuch"]
    done = subprocess.run(command, cwd=tmp_path, env=dict(environment()), stderr=writer, check=False)
    os.close(writer)
    assert done.returncode == 4


@pytest.mark.parametrize("argv", ["sessions list --all", "sessions export abc", "sessions stats", "config show --json"])
def test_a_full_disk_is_an_error_of_every_command(store: str, tmp_path: Path, argv: str) -> None:
    """In the middle of the output, and at its end."""
    with Session.open(store, ID) as session:
        ask(session, "long", "word " * 10_000)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "agent", *argv.split()], cwd=tmp_path, env=dict(environment()),
            stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, b"agent: Cannot write to standard output: No space left on device\n")


def test_the_verbs_import_neither_httpx_nor_tiktoken(store: str) -> None:
    """`agent sessions list` starts fast."""
    code = (
        "import sys; from agent.cli import main; main(['sessions', 'list']); main(['sessions', 'show', 'abc']);"
        "print([m for m in ('httpx', 'tiktoken', 'rich', 'click', 'asyncio', 'ssl', 'sqlite3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=dict(environment()))
    assert done.stdout.splitlines()[-1] == b"[]"
