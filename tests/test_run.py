"""Whole runs of the real command against a scripted, strict server: what was asked, what was shown, what is on disk."""

import fcntl
import json
import os
import re
import select
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Runner, Transcript, environment
from server import ScriptedServer, calls, chunk, cut, hang, overflow, raw, sse, status, text

from agent.log.entries import INTERRUPTED

DATA = Path(__file__).parent / "data"


def at(server: ScriptedServer, **more: str) -> dict[str, str]:
    """The environment that points a run at the server."""
    return {"OPENAI_BASE_URL": server.url, "MODEL": "scripted", **more}


def store(home: Path) -> Path:
    return home / ".local" / "state" / "agent" / "sessions"


def only_log(home: Path) -> Path:
    [path] = store(home).glob("*.jsonl")
    return path


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def shape(path: Path) -> list[str]:
    """The lines of a session in short: their type, or the role and text of a message."""
    told = []
    for entry in entries(path):
        message = entry.get("message")
        if message is None:
            told.append(entry["type"])
        elif message.get("tool_calls"):
            told.append(f"assistant calls {', '.join(c['function']['name'] for c in message['tool_calls'])}")
        elif message["role"] == "system":
            told.append("system")
        else:
            told.append(f"{message['role']}: {message['content'][:60]}")
    return told


# ---- the main job ----


def test_a_first_turn(agent: Runner, home: Path) -> None:
    """The answer alone on stdout; the session on disk, private, in the order of events."""
    with ScriptedServer([text("Hello there", usage=(120, 2, 64))]) as server:
        done = agent("say", "hello", "now", **at(server))
    log = only_log(home)
    assert (done.code, done.out) == (0, "Hello there\n")
    assert done.err.splitlines()[0] == f"session: {log.stem} (new)"
    assert done.err.splitlines()[-1] == (
        "1 step · last input 120 tokens (64 cached), 2 out · finish_reason=stop · continue: agent -c " + log.stem
    )
    assert shape(log) == ["meta", "system", "user: say hello now", "assistant: Hello there"]
    assert oct(log.stat().st_mode & 0o777) == "0o600"
    assert oct(log.parent.stat().st_mode & 0o777) == "0o700"
    assert server.requests[0]["messages"][-1] == {"role": "user", "content": "say hello now"}
    answer = entries(log)[-1]
    assert answer["usage"] == {"prompt_tokens": 120, "completion_tokens": 2, "cached_tokens": 64}
    assert (answer["request"]["k"], answer["request"]["messages"]) == (1, 2)


def test_the_second_turn_sees_the_first(agent: Runner, home: Path, tmp_path: Path) -> None:
    """By prefix, and from another directory; the earlier bytes of the request do not change."""
    with ScriptedServer([text("one"), text("two"), text("three")]) as server:
        agent("first", **at(server))
        log = only_log(home)
        assert agent("-c", log.stem[:15], "second", cwd=tmp_path, **at(server)).out == "two\n"
        assert agent("-q", "third", "-c", log.stem[-8:], **at(server)).out == "three\n"
    told = [message["content"] for message in server.requests[2]["messages"][1:]]
    assert told == ["first", "one", "second", "two", "third"]
    prefix = [
        body[body.index(b'"messages":[') : body.index(b"]", body.index(b'"messages":['))] for body in server.bodies
    ]
    assert prefix[2].startswith(prefix[1])
    assert prefix[1].startswith(prefix[0])
    assert server.violations == []


def test_how_long_to_wait_is_looked_at_even_where_there_is_nothing_to_wait_for(agent: Runner, home: Path) -> None:
    with ScriptedServer([text("one"), text("two")]) as server:
        refused = agent("first", "--wait", "soon", **at(server))
        assert agent("--wait", "0", "first", **at(server)).code == 0
        assert agent("--wait", "0", "-c", only_log(home).stem, "second", **at(server)).out == "two\n"
    told = "agent: --wait is 'soon', but it takes a number of seconds above zero, or 0"
    assert (refused.code, refused.err.splitlines()[0]) == (2, told)


def test_a_new_name_says_what_the_old_one_was_and_an_empty_one_is_none(agent: Runner, home: Path) -> None:
    with ScriptedServer([text("one"), text("two")]) as server:
        assert agent("-n", "", "first", **at(server)).code == 2
        agent("-n", "phx", "first", **at(server))
        renamed = agent("-c", "phx", "-n", "phoenix", "second", **at(server))
    assert "info: the session was called phx; now it is phoenix" in renamed.err


def test_what_cannot_be_meant_together_is_refused(agent: Runner, tmp_path: Path) -> None:
    """Before anything is made or paid for: exit 2, and a line that says what to do."""
    cases = {
        (
            "--last",
            "-c",
            "x",
            "hi",
        ): "agent: --last and -c cannot be combined. Leave one out: -c last is the same as --last",
        ("--no-session", "-n", "x", "hi"): (
            "agent: --no-session leaves nothing that could have a name. Leave out -n, or --no-session"
        ),
        ("-o", "-", "hi"): "agent: -o - : the answer is on standard output anyway. Give -o a file, or leave it out",
    }
    for argv, told in cases.items():
        done = agent(*argv)
        assert (done.code, done.err.splitlines()[0]) == (2, told)


def test_the_first_line_says_what_becomes_of_the_session(agent: Runner, home: Path) -> None:
    with ScriptedServer([text("one"), text("two"), text("three")]) as server:
        agent("first", **at(server))
        first = only_log(home).stem
        fork = agent("-c", first, "--fork", "second", **at(server)).err.splitlines()[0]
        gone = agent("--no-session", "third", **at(server)).err.splitlines()[0]
    assert re.fullmatch(rf"session: \S+ \(fork of {first}, 3 messages\)", fork)
    assert gone == "session: not kept"


def test_last_is_the_newest_of_this_directory(agent: Runner, home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with ScriptedServer([text("here"), text("there"), text("again")]) as server:
        agent("here", **at(server))
        agent("there", cwd=elsewhere, **at(server))
        assert agent("--last", "more", **at(server)).out == "again\n"
    assert [m["content"] for m in server.requests[2]["messages"][1:]] == ["here", "here", "more"]


def test_tools_run_and_every_byte_is_in_the_order_of_events(agent: Runner, home: Path, tmp_path: Path) -> None:
    script = [
        calls([("write_file", {"path": "a.txt", "content": "one\n"}), ("bash", {"command": "cat a.txt"})], "Writing."),
        text("Done"),
    ]
    with ScriptedServer(script) as server:
        done = agent("make a.txt", **at(server))
    assert (done.code, done.out) == (0, "Writing.\nDone\n")
    assert (tmp_path / "work" / "a.txt").read_text() == "one\n"
    log = only_log(home)
    assert [line.split(":")[0] for line in shape(log)] == [
        "meta", "system", "user", "assistant calls write_file, bash", "tool", "tool", "assistant"
    ]  # fmt: skip
    assert [entry["tool"]["name"] for entry in entries(log) if "tool" in entry] == ["write_file", "bash"]
    assert "one" in entries(log)[5]["message"]["content"]
    assert server.violations == []


def test_nothing_is_left_on_disk_when_asked(agent: Runner, home: Path) -> None:
    with ScriptedServer([text("Hi")]) as server:
        assert agent("--no-session", "hi", **at(server)).out == "Hi\n"
    assert not store(home).exists()


# ---- the experiment of exercise 13 ----

SUMMARY = (
    "## Goal\nThe user wants a talk about letters.\n## Done\nThe letters were said, one after the other.\n"
    "## Facts and decisions\nnone\n## State and next step\nWait for the user.\n## Open\nnone\n## Constraints\nnone\n"
)
BACKGROUND = (
    "The service reads sensor data from the harbour, keeps it for ninety days and draws a map every hour. " * 14
)


@pytest.mark.parametrize(
    "summary",
    [
        SUMMARY,
        "",
        "I cannot help with that.",
    ],
    ids=["without the facts", "empty", "refused"],
)
def test_the_four_steps(agent: Runner, home: Path, summary: str) -> None:
    """Whatever the summary says, the facts are in the context afterwards, and the originals in the archive."""

    def script(request: dict[str, Any], index: int) -> Any:
        last = request["messages"][-1]["content"]
        return text(summary) if index >= 2 and "slogan" not in last and "remind" not in last else text("OK")

    with ScriptedServer(script, tokens=lambda request: len(json.dumps(request["messages"])) // 4) as server:
        env = at(server)
        agent("I am writing a Go project called phoenix, remember that name", **env)
        log = only_log(home)
        agent("-c", log.stem, f"phoenix uses Go 1.26 and has two tools, read_file and write_file. {BACKGROUND}", **env)
        before = log.read_bytes()
        third = agent("-c", log.stem, "give the project a short slogan", **env, CONTEXT_WINDOW="700")
        fourth = agent("-c", log.stem, "remind me: what is my project called, and its language?", **env)
    assert (third.code, third.out, fourth.code) == (0, "OK\n", 0)
    assert "compacting: near the window" in third.err
    assert "compacted: " in third.err
    told = shape(log)
    assert told[:3] == ["meta", "compaction", "system"]
    assert told[3].startswith("user: ")
    assert "user: give the project a short slogan" in told
    archive = log.with_suffix(".archive") / "0001.jsonl"
    assert archive.read_bytes().startswith(before)
    context = json.dumps(server.requests[-1]["messages"])
    assert [fact for fact in ("phoenix", "1.26", "read_file", "write_file") if fact not in context] == []
    assert server.violations == []


def test_compact_by_hand(agent: Runner, home: Path) -> None:
    """`/compact` as the whole prompt compacts and sends no task; what to keep in mind goes to the summary."""
    with ScriptedServer([text("A." * 400), text("B." * 400), text("C."), text(SUMMARY)]) as server:
        for words in (["one"], ["-c", "last", "two"], ["-c", "last", "three"]):
            agent(*words, **at(server))
        done = agent("-c", "last", "/compact", "keep", "the letters", **at(server))
    assert (done.code, done.out) == (0, "")
    assert "compacted: " in done.err
    assert "keep the letters" in server.requests[-1]["messages"][-1]["content"]
    assert shape(only_log(home))[:3] == ["meta", "compaction", "system"]


def test_nothing_to_compact(agent: Runner, home: Path) -> None:
    with ScriptedServer([text("A")]) as server:
        agent("one", **at(server))
        log = only_log(home)
        before = log.read_bytes()
        done = agent("-c", "last", "/compact", **at(server))
    assert (done.code, "nothing to compact" in done.err) == (0, True)
    assert log.read_bytes() == before


def test_an_overflow_is_recovered(agent: Runner, home: Path) -> None:
    """The server says the context is too long: it is made smaller, and the same request goes through."""
    replies = [text("x " * 900), text("y " * 900), overflow(9000, 1000), text("no summary"), text("fine")]

    def script(request: dict[str, Any], index: int) -> Any:
        return replies[min(index, len(replies) - 1)]

    with ScriptedServer(script) as server:
        agent("one", **at(server))
        agent("--last", "two", **at(server))
        done = agent("--last", "three", **at(server))
    assert (done.code, done.out) == (0, "fine\n")
    assert "the server says it is too long" in done.err
    assert server.requests[-1]["messages"][-1]["content"] == "three"
    assert server.violations == []


# ---- endings ----


def started(server: ScriptedServer, tmp_path: Path, *argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "agent", *argv],
        cwd=tmp_path,
        env=environment(**at(server)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(process: subprocess.Popen[bytes]) -> Transcript:
    out, err = process.communicate(timeout=60)
    return Transcript(process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_keeps_what_was_streamed(home: Path, tmp_path: Path, number: int, code: int) -> None:
    gate = threading.Event()
    script = [raw([sse(chunk({"content": "Half an "})), gate]), text("whole")]
    with ScriptedServer(script) as server:
        process = started(server, tmp_path, "hi")
        assert process.stdout is not None
        seen = process.stdout.read(8)
        process.send_signal(number)
        done = ended(process)
        gate.set()
        log = only_log(home)
        last = entries(log)[-1]
        assert (seen, done.code) == (b"Half an ", code)
        assert (last["message"]["content"], last["interrupted"]) == ("Half an ", True)
        assert subprocess.run(
            [sys.executable, "-m", "agent", "-q", "-c", log.stem, "go on"], cwd=tmp_path,
            env=environment(**at(server)), capture_output=True, check=True, stdin=subprocess.DEVNULL,
        ).stdout == b"whole\n"  # fmt: skip
    assert server.violations == []


@pytest.mark.parametrize("stopped_by", [signal.SIGINT, signal.SIGTERM])
def test_what_a_command_had_printed_when_the_run_was_stopped_is_kept(
    home: Path, tmp_path: Path, agent: Runner, stopped_by: int
) -> None:
    """Its output stands in the session with a line that says so; the next turn shows it to the model."""
    os.mkfifo(tmp_path / "ready")
    command = "echo IMPORTANT-LINE; echo go > ready; sleep 60"
    asked = calls([("bash", {"command": command}), ("bash", {"command": "echo two"})])
    with ScriptedServer([asked, text("done")]) as server:
        process = started(server, tmp_path, "--allow", "bash", "go")
        with open(tmp_path / "ready") as ready:
            assert ready.read() == "go\n"
        process.send_signal(stopped_by)
        done = ended(process)
        later = agent("-c", only_log(home).stem, "and?", **at(server))
    results = [m["content"] for m in server.requests[-1]["messages"] if m["role"] == "tool"]
    assert (done.code, later.out) == ({signal.SIGINT: 130, signal.SIGTERM: 143}[stopped_by], "done\n")
    assert results == [
        "IMPORTANT-LINE\n[interrupted: the run was stopped, and the command and all it started with it. Output so far is "
        "above; what it did until then is done. Check before repeating it.]",
        INTERRUPTED,
    ]
    assert server.violations == []


def test_a_reader_that_leaves_does_not_lose_the_answer(home: Path, tmp_path: Path) -> None:
    long = "word " * 20_000
    with ScriptedServer([text(long, pieces=200)]) as server:
        process = started(server, tmp_path, "-q", "--window", "1000k", "hi")
        assert process.stdout is not None
        assert process.stdout.read(1) == b"w"
        process.stdout.close()
        assert process.stderr is not None
        with process.stderr:
            assert (process.stderr.read(), process.wait(60)) == (b"", 0)
    assert entries(only_log(home))[-1]["message"]["content"] == long


def test_a_reader_that_leaves_stops_nothing(home: Path, tmp_path: Path) -> None:
    """The tool calls that come after it has gone are made, and the last answer is saved."""
    gone = threading.Event()

    def script(request: dict[str, Any], index: int) -> Any:
        if index == 0:
            return calls([("bash", {"command": "true"})], "First.")
        assert gone.wait(30)
        file = {"path": "done", "content": "so"}
        return calls([("write_file", file)], "Next.") if index == 1 else text("Last.")

    with ScriptedServer(script) as server:
        process = started(server, tmp_path, "-q", "hi")
        assert process.stdout is not None
        assert process.stdout.read(6) == b"First."
        process.stdout.close()
        gone.set()
        assert process.stderr is not None
        with process.stderr:
            assert (process.stderr.read(), process.wait(60)) == (b"", 0)
    assert (tmp_path / "done").read_text() == "so"
    assert shape(only_log(home))[-1] == "assistant: Last."


def test_a_full_stdout_is_an_error_and_the_session_whole(home: Path, tmp_path: Path) -> None:
    with ScriptedServer([text("Hi")]) as server, open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "agent", "-q", "hi"], cwd=tmp_path,
            env=environment(**at(server)), stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    log = only_log(home)
    assert done.returncode == 1
    assert done.stderr.decode() == (
        "agent: Cannot write to standard output: No space left on device. "
        f"The answer is saved: agent sessions show {log.stem} --last-answer\n"
    )
    assert shape(log)[-1] == "assistant: Hi"


def test_a_stream_that_breaks_off_is_kept_and_temporary(agent: Runner, home: Path) -> None:
    with ScriptedServer([cut("Half")]) as server:
        done = agent("hi", **at(server))
    last = entries(only_log(home))[-1]
    assert (done.code, done.out) == (75, "Half\n")
    assert (last["message"]["content"], last["interrupted"]) == ("Half", True)


def test_the_wall_clock(agent: Runner, home: Path) -> None:
    with ScriptedServer([hang()]) as server:
        done = agent("--timeout", "0.5", "hi", **at(server))
    assert done.code == 124
    assert shape(only_log(home)) == ["meta", "system", "user: hi"]


def test_the_step_limit_is_resumable(agent: Runner, home: Path) -> None:
    def script(request: dict[str, Any], index: int) -> Any:
        return (
            text("finished")
            if request["messages"][-1]["content"] == "go on"
            else calls([("bash", {"command": "true"})])
        )

    with ScriptedServer(script) as server:
        stopped = agent("--max-steps", "3", "work", **at(server))
        log = only_log(home)
        assert (stopped.code, len(server.requests)) == (6, 3)
        assert stopped.err.endswith(
            f'Stopped after 3 steps (--max-steps 3). Everything is saved. Continue: agent -c {log.stem} "go on"\n'
        )
        assert agent("-q", "-c", log.stem, "go on", **at(server)).out == "finished\n"
        unsaved = agent("--max-steps", "1", "--no-session", "work", **at(server))
        assert (unsaved.code, unsaved.err.splitlines()[-1]) == (6, "agent: Stopped after 1 step (--max-steps 1)")
    assert server.violations == []


def test_a_failed_turn_is_not_sent_again(agent: Runner, home: Path) -> None:
    with ScriptedServer([status(401, {"error": {"message": "bad key"}}), text("fine")]) as server:
        assert agent("poison", **at(server)).code == 3
        assert agent("--last", "good", **at(server)).out == "fine\n"
    assert [m["content"] for m in server.requests[1]["messages"][1:]] == ["good"]


# ---- killed between any two entries ----


def test_a_session_cut_after_any_entry_goes_on(agent: Runner, home: Path) -> None:
    """What kill -9 leaves: the log up to some entry. Each loads, and the strict server takes the next request."""
    script = [
        calls([("bash", {"command": "echo 1"}), ("bash", {"command": "echo 2"})]),
        calls([("read_file", {"path": "missing"})]),
        text("done"),
    ]
    with ScriptedServer(script) as server:
        agent("work", **at(server))
    log = only_log(home)
    lines = log.read_bytes().splitlines(keepends=True)
    assert len(lines) == 9
    with ScriptedServer([text("ok")], repeat_last=True) as server:
        for kept in range(1, len(lines) + 1):
            log.write_bytes(b"".join(lines[:kept]))
            assert agent("-q", "-c", log.stem, "go on", **at(server)).out == "ok\n", kept
            log.write_bytes(b"".join(lines[:kept]) + lines[-1][:20])
            assert agent("-q", "-c", log.stem, "go on", **at(server)).out == "ok\n", kept
    assert server.violations == []


# ---- other programs' files ----


@pytest.mark.parametrize("name", ["before-compaction", "after-compaction"])
def test_a_file_of_exercise_13_resumes(agent: Runner, home: Path, name: str) -> None:
    original = (DATA / "seed001" / f"{name}.jsonl").read_bytes()
    id = json.loads(original.splitlines()[0])["id"]
    store(home).mkdir(parents=True)
    (store(home) / f"{id}.jsonl").write_bytes(original)
    with ScriptedServer([text("「浴火重生」")]) as server:
        done = agent("-c", id, "我的项目叫什么名字？", **at(server))
    assert (done.code, done.out) == (0, "「浴火重生」\n")
    assert "phoenix" in json.dumps(server.requests[0])
    assert (store(home) / f"{id}.jsonl").read_bytes().startswith(original)
    assert server.violations == []


# ---- bad input ----

Prepare = Callable[[Path], Any]


@pytest.mark.parametrize(
    ("argv", "env", "code", "says"),
    [
        ([""], {}, 2, "The prompt is empty"),
        (["-c", "nosuch", "hi"], {}, 4, "no session matches 'nosuch'"),
        (["-c", "fix the bug"], {}, 4, "agent --last"),
        (["hi"], {"CONTEXT_WINDOW": "abc"}, 2, "CONTEXT_WINDOW is 'abc'"),
        (["hi"], {"CONTEXT_WINDOW": "0"}, 2, "CONTEXT_WINDOW is '0'"),
        (["--window", "-1", "hi"], {}, 2, "is '-1'"),
        (["hi"], {"OPENAI_BASE_URL": "http://127.0.0.1:9"}, 75, "127.0.0.1"),
        (["--add-dir", "/proc/none", "hi"], {}, 2, "there is no such directory"),
        (["--session-dir", "", "hi"], {}, 2, "--session-dir is empty"),
        (["/compact"], {}, 2, "agent -c ID /compact"),
        (["--tools", "nosuch", "hi"], {}, 2, "There is no tool 'nosuch'"),
        (["--allow", "bash(", "hi"], {}, 2, "is not a rule"),
        (["-f", "missing", "hi"], {}, 2, "Cannot attach missing"),
        (["-C", "missing", "hi"], {}, 2, "Cannot run in missing"),
        (["--output-format", "xml", "hi"], {}, 2, "--output-format is 'xml'"),
        (["sessions", "are", "broken"], {}, 2, "agent -- sessions are broken"),
        (["--json", "sessions", "list"], {}, 2, "agent sessions list --json"),
        (["--session-dir", "/proc/none", "hi"], {}, 1, "/proc/none"),
    ],
)
def test_bad_input(agent: Runner, home: Path, argv: list[str], env: dict[str, str], code: int, says: str) -> None:
    """One clear line on stderr, nothing on stdout, the right code, no request, no new session."""
    with ScriptedServer([text("never")]) as server:
        done = agent(*argv, **{**at(server), "AGENT_RETRY_SECONDS": "0.1", **env})
    assert (done.code, says in done.err) == (code, True), done
    assert [line for line in done.err.splitlines() if line.startswith("agent: ")] == [done.err.splitlines()[-1]]
    assert server.requests == []


@pytest.mark.parametrize(
    ("reply", "code", "says"),
    [
        (status(401, {"error": {"message": "Incorrect API key provided"}}), 3, "key"),
        (raw("<html><body>Login</body></html>", "text/html"), 1, "web page"),
        (status(400, {"error": {"message": "temperature: 3 is above 2"}}), 1, "is above 2"),
        (status(404, {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}}), 3, "model"),
    ],
    ids=["401", "HTML", "400", "404"],
)
def test_what_the_server_refuses(agent: Runner, home: Path, reply: Any, code: int, says: str) -> None:
    with ScriptedServer([reply]) as server:
        done = agent("hi", **at(server))
    assert (done.code, done.out, says in done.err.splitlines()[-1]) == (code, "", True), done
    assert shape(only_log(home))[-2:] == ["user: hi", "failed"]


def test_no_model_at_all(agent: Runner, tmp_path: Path) -> None:
    """Without the extra and without a key: exit 3, and three ways on."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['xllamacpp'] = None\n")
    done = agent("hi", PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
    assert done.code == 3
    assert "pip install xllamacpp" in done.err
    assert "export OPENAI_API_KEY=" in done.err
    assert "export OPENAI_BASE_URL=" in done.err


# ---- what a compaction leaves behind ----


def long_talk(agent: Runner, env: dict[str, str], *flags: str) -> None:
    """Three turns of which the third compacts: the first two are long."""
    agent("one", *flags, **env)
    agent("--last", "two", *flags, **env)
    agent("--last", "three", "--window", "2k", *flags, **env)


@pytest.mark.parametrize(("flags", "offered"), [((), True), (("--tools", "bash"), False), (("--no-tools",), False)])
def test_recall_is_offered_once_something_is_archived(
    agent: Runner, home: Path, flags: tuple[str, ...], offered: bool
) -> None:
    """Not before, and not against the user's choice; the summary says how to find the originals either way."""
    with ScriptedServer(
        [text("word " * 700), text("word " * 700), text(SUMMARY), text("ok")], repeat_last=True
    ) as server:
        long_talk(agent, at(server), *flags)
    names = [[tool["function"]["name"] for tool in request.get("tools", [])] for request in server.requests]
    assert ["recall" in found for found in names] == [False] * (len(names) - 1) + [offered]
    summary = server.requests[-1]["messages"][1]["content"]
    assert ('recall("words")' in summary) == offered
    assert (".archive" in summary) == (not offered)
    assert server.violations == []


def test_a_pin_is_told_at_once_and_never_dropped(agent: Runner, home: Path) -> None:
    with ScriptedServer(
        [text("word " * 700), text("word " * 700), text("no use"), text("ok")], repeat_last=True
    ) as server:
        env = at(server)
        agent("one", "--pin", "never touch legacy.c", **env)
        agent("--last", "two", **env)
        agent("--last", "three", "--window", "2k", **env)
    first, last = server.requests[0]["messages"][-1]["content"], json.dumps(server.requests[-1]["messages"])
    assert first == "one\n\nKeep to this for the whole session: never touch legacy.c"
    assert "never touch legacy.c" in last


def test_an_overflow_in_the_middle_of_an_answer(agent: Runner, home: Path) -> None:
    """What was shown is kept and marked; the context is made smaller for the next turn."""
    fault = {"error": {"message": "prompt is too long: 9000 tokens > 2000 maximum", "type": "invalid_request_error"}}
    replies = [text("word " * 700), text("word " * 700), raw([sse(chunk({"content": "Half "})), sse(fault)])]

    def script(request: dict[str, Any], index: int) -> Any:
        if index < 3:
            return replies[index]
        return text("fine") if request["messages"][-1]["content"] == "go on" else text(SUMMARY)

    with ScriptedServer(script) as server:
        agent("one", **at(server))
        agent("--last", "two", **at(server))
        broken = agent("--last", "three", **at(server))
        assert (broken.code, broken.out) == (6, "Half \n")
        assert "compacted: " in broken.err
        assert agent("-q", "--last", "go on", **at(server)).out == "fine\n"
    assert server.violations == []
    assert max(len(body) for body in server.bodies[3:]) < len(server.bodies[2])  # no summary of more than was refused


# ---- what a failure leaves behind ----


@pytest.mark.parametrize(
    "wrong", [["-n", "one"], ["-m", "openai/x"]], ids=["a name that is taken", "a model without a key"]
)
def test_a_fork_that_cannot_go_on_leaves_no_copy(agent: Runner, home: Path, wrong: list[str]) -> None:
    """And a new name is given only when nothing else can be wrong."""
    with ScriptedServer([text("hello")]) as server:
        agent("-n", "one", "hi", **at(server))
        log = only_log(home).read_bytes()
        for argv in (["--fork", *wrong], ["-n", "two", "-m", "openai/x"]):
            done = agent("-c", "one", *argv, "go on", OPENAI_API_KEY="", OPENAI_BASE_URL="")
            assert done.code in (3, 4), done
    assert only_log(home).read_bytes() == log


def test_a_run_leaves_nothing_in_the_temporary_directory(agent: Runner, home: Path, tmp_path: Path) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    with ScriptedServer([calls([("bash", {"command": "echo hi > $TMPDIR/x; cat $TMPDIR/x"})]), text("done")]) as server:
        assert agent("go", **at(server, TMPDIR=str(place))).code == 0
    assert server.requests[1]["messages"][-1]["content"].startswith("hi\n")
    assert list(place.iterdir()) == []


def test_what_a_fork_was_shown_it_can_still_read(agent: Runner, home: Path) -> None:
    """A long output that was cut stands in a side file; its copy has it too, under the name the model was told."""
    replies = [calls([("bash", {"command": "seq 1 60000"})]), text("done"), None, text("read")]

    def answers(request: dict[str, Any], index: int) -> Any:
        if index != 2:
            return replies[index]
        told = re.search(r"is in (\S+): read_file", request["messages"][3]["content"])
        assert told
        return calls([("read_file", {"path": told[1], "offset": 59_999})])

    with ScriptedServer(answers) as server:
        first = agent("go", **at(server))
        assert first.code == 0
        log = only_log(home)
        assert agent("-c", log.stem, "--fork", "again", **at(server)).out == "read\n"
    assert server.requests[3]["messages"][-1]["content"].startswith("[lines 59999-60000 of 60000]\n59999\n60000")


@pytest.mark.parametrize("flags", [("-o", "/dev/full"), ("--schema", '{"type": "string"}')])
def test_nothing_is_said_to_be_saved_where_nothing_is(agent: Runner, home: Path, flags: tuple[str, str]) -> None:
    with ScriptedServer([text("1"), text("2")]) as server:
        kept, gone = agent(*flags, "hi", **at(server)), agent(*flags, "--no-session", "hi", **at(server))
    assert (kept.code, gone.code) == (1, 1)
    assert "The answer is saved: agent sessions show" in kept.err and "saved" not in gone.err


def test_a_written_answer_keeps_the_mode_of_the_file(agent: Runner, home: Path, tmp_path: Path) -> None:
    target = tmp_path / "answer"
    target.touch(0o600)
    target.chmod(0o640)
    with ScriptedServer([text("hi")]) as server:
        assert agent("-o", str(target), "hi", **at(server)).code == 0
    assert (target.read_text(), oct(target.stat().st_mode & 0o777)) == ("hi\n", "0o640")


def test_standard_input_that_does_not_wait_is_read_whole(agent: Runner, home: Path) -> None:
    """A pipe that some other program has set non-blocking: what comes later is waited for."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def feed() -> None:
        os.write(writing, b"first part, ")
        while fcntl.ioctl(reading, termios.FIONREAD, bytes(4)) != bytes(4):
            select.select([], [], [], 0.001)
        os.write(writing, b"second part")
        os.close(writing)

    feeder = threading.Thread(target=feed)
    feeder.start()
    with ScriptedServer([text("ok")]) as server:
        assert agent("-", stdin=reading, **at(server)).code == 0
    feeder.join()
    os.close(reading)
    assert server.requests[0]["messages"][-1]["content"] == "first part, second part"


def test_what_a_compaction_took_is_part_of_the_total(agent: Runner, home: Path) -> None:
    """The result counts the summary call, too."""
    with ScriptedServer([text("A " * 300), text("B " * 300, usage=(800, 300)), text("no", usage=(900, 50))]) as server:
        agent("one", **at(server))
        done = agent("--last", "--json", "two", **at(server, CONTEXT_WINDOW="1000"))
    assert ["tools" in request for request in server.requests] == [True, True, True]
    assert server.requests[2]["tool_choice"] == "none"
    result = json.loads(done.out.splitlines()[-1])
    assert (result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (1700, 350)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["list"], "Did you mean: agent sessions list? A prompt: agent -- list"),
        (["help", "me", "please"], "A prompt: agent -- help me please"),
        (["doctor", "my", "code"], "To send this as a prompt: agent -- doctor my code"),
        (["--modle", "x", "please", "run", "it"], "There is no option --modle"),
        (["--session-dir", "/d", "sessions", "list"], "The command: agent sessions list --session-dir /d"),
        (["-o", "nowhere/x", "hi"], "there is no directory"),
        (["--compact-at", "75", "hi"], "is 75 % meant?"),
        (["models?"], "A prompt: agent -- models?"),
        (["--pin", " ", "hi"], "--pin is empty"),
        (["sessions", "prune"], "See agent sessions prune --help"),
        (["--schema", "nofile", "hi"], "Cannot read the schema nofile: No such file or directory"),
    ],
)
def test_what_was_meant(agent: Runner, argv: list[str], says: str) -> None:
    """Exit 2, nothing sent, and the line to type."""
    with ScriptedServer([]) as server:
        done = agent(*argv, **at(server))
    assert (done.code, done.out, says in done.err, server.requests) == (2, "", True, []), done


def test_an_interrupted_run_says_how_to_go_on(agent: Runner, home: Path) -> None:
    with ScriptedServer([hang(sse(chunk({"content": "so far"})))]) as server:
        done = agent("-q", "--timeout", "0.5", "hi", **at(server))
    told = f'agent: Time is up (--timeout); everything received so far is saved. Continue: agent -c {only_log(home).stem} "go on"'
    assert (done.code, done.err.splitlines()[-1]) == (124, told)


def test_a_session_whose_model_is_gone_says_so(agent: Runner, home: Path) -> None:
    """The model stands in the session: the way on is to name another."""
    with ScriptedServer([text("hello")]) as server:
        agent("hi", **at(server))
        done = agent("--last", "again", OPENAI_API_KEY="", OPENAI_BASE_URL="")
    assert (done.code, f"Session {only_log(home).stem} was begun with scripted" in done.err) == (3, True)


def test_a_working_directory_that_is_gone(agent: Runner, home: Path, tmp_path: Path) -> None:
    line = f"mkdir gone && cd gone && rmdir ../gone && exec {sys.executable} -m agent sessions list"
    done = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    told = "agent: The working directory has been removed. Change to another one, or give -C DIR\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sessions", "compact", "x", "--d"], ["--dry-run"]),
        (["models", "--"], ["--json", "--profile"]),
        (["sessions", "import", "--from", ""], []),
        (["--summary-mo"], ["--summary-model"]),
    ],
)
def test_completion_knows_the_options_of_each_command(agent: Runner, words: list[str], offered: list[str]) -> None:
    done = agent("completion", "words", "--", *words)
    assert [line.split("\t")[0] for line in done.out.splitlines()] == offered


@pytest.mark.parametrize("stopped_by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_finished_turn_stays_finished(home: Path, tmp_path: Path, stopped_by: int) -> None:
    """What stops the compaction after the answer does not make a failure of it: a script would do the work again."""
    asked = threading.Event()

    def script(request: dict[str, Any], index: int) -> Any:
        if request.get("tool_choice") != "none":
            return text("A " * 400, usage=(3900, 400)) if index else text("B " * 400)
        asked.set()
        return hang()

    with ScriptedServer(script) as server:
        env = environment(**at(server, CONTEXT_WINDOW="4800"))
        argv = [sys.executable, "-m", "agent"]
        assert subprocess.run([*argv, "one"], cwd=tmp_path, env=env, capture_output=True, check=False).returncode == 0
        line = [*argv, "-o", "out", "--last", "two"]
        run = subprocess.Popen(line, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert asked.wait(20)
        run.send_signal(stopped_by)
        out, err = run.communicate(timeout=20)
    assert (tmp_path / "out").read_text() == out.decode() == "A " * 400 + "\n"
    if stopped_by != signal.SIGKILL:
        assert (run.returncode, "the compaction after the answer was interrupted" in err.decode()) == (0, True)
    assert shape(only_log(home))[-1].startswith("assistant: A A")


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001"
    "e221bc330000000049454e44ae426082"
)


def test_an_image_that_another_model_saw_is_told_to_one_that_sees_none(
    agent: Runner, home: Path, tmp_path: Path
) -> None:
    """It stands in the history and cannot be left out; one in the prompt itself is the user's to leave out."""
    (tmp_path / "work" / "a.png").write_bytes(PIXEL)

    def blind(request: dict[str, Any], index: int) -> Any:
        if any(isinstance(message["content"], list) for message in request["messages"]):
            return status(400, {"error": {"message": "This model does not support image input."}})
        return text("fine")

    with ScriptedServer([text("a dot")]) as server:
        agent("-f", "a.png", "what is it?", **at(server))
    with ScriptedServer(blind) as server:
        on = agent("--last", "go on", "-m", "other", **at(server))
        again = agent("--last", "-f", "a.png", "and this?", "-m", "other", **at(server))
    assert (on.code, on.out) == (0, "fine\n")
    assert "from now on: images of earlier prompts are replaced by a note" in on.err
    assert server.requests[1]["messages"][1]["content"].endswith("[an image that this model cannot be shown]")
    assert (again.code, "Leave it out" in again.err) == (1, True)
    assert agent("sessions", "replay", only_log(home).stem, "--check").code == 0
    wordings = (
        "At most 0 image(s) may be provided in one request.",
        "This model does not support images. See https://x/information",
    )
    for at_, wording in enumerate(wordings):

        def refusing(request: dict[str, Any], index: int, wording: str = wording) -> Any:
            images = any(isinstance(message["content"], list) for message in request["messages"])
            return status(400, {"error": {"message": wording}}) if images else text("fine")

        with ScriptedServer(refusing) as server:
            assert agent("--last", "--fork", "go on", "-m", f"other-{at_}", **at(server)).code == 0


def test_a_server_that_wants_a_key_when_none_was_sent(agent: Runner, home: Path) -> None:
    with ScriptedServer([status(401, {"error": {"message": "missing key"}})]) as server:
        done = agent("hi", **at(server, OPENAI_API_KEY=""))
    assert (done.code, "No key was sent: set OPENAI_API_KEY" in done.err) == (3, True)


def test_a_session_that_goes_on_elsewhere_says_where_its_tools_work(agent: Runner, home: Path, tmp_path: Path) -> None:
    with ScriptedServer([text("one"), text("two")]) as server:
        agent("hi", **at(server))
        done = agent("-c", only_log(home).stem, "go on", cwd=tmp_path, **at(server))
    assert f"info: the session began in {tmp_path}/work; its tools now work in {tmp_path}\n" in done.err


def test_a_prompt_is_utf_8_whatever_the_locale(agent: Runner, home: Path) -> None:
    with ScriptedServer([text("八〇八〇")]) as server:
        done = agent("-q", "端口是 8080", **at(server, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"))
    assert (done.code, done.out) == (0, "八〇八〇\n")
    assert server.requests[0]["messages"][-1]["content"] == "端口是 8080"


def test_a_key_that_is_set_and_not_used_is_said(agent: Runner, home: Path, model_file: str) -> None:
    """The toy answers because no model is named; another server answers because its address is set."""
    toy = agent("--no-session", "hi", GROQ_API_KEY="x", OPENAI_API_KEY="")
    assert (toy.code, "warning: GROQ_API_KEY is set, but no model is named: -m groq/NAME" in toy.err) == (0, True)
    with ScriptedServer([text("one")]) as server:
        done = agent("-m", "groq/llama", "hi", **at(server, GROQ_API_KEY="x"))
    told = f"info: groq/llama is sent to OPENAI_BASE_URL ({server.url}); unset that to use groq directly"
    assert (done.code, told in done.err) == (0, True)


def test_an_answer_that_broke_off_says_how_to_go_on(agent: Runner, home: Path) -> None:
    with ScriptedServer([cut("so far")]) as server:
        done = agent("-q", "hi", **at(server))
    told = f'What had come is saved. Continue: agent -c {only_log(home).stem} "go on". '
    assert (done.code, done.out, told in done.err) == (75, "so far\n", True)


def test_sessions_alone_takes_the_options_of_its_list(agent: Runner, home: Path) -> None:
    with ScriptedServer([text("one")]) as server:
        agent("hi", **at(server))
    assert json.loads(agent("sessions", "--json").out)["id"] == only_log(home).stem
    with ScriptedServer([text("one")]) as server:
        assert agent("--no-session", "hi", **at(server, AGENT_SESSION_DIR="/dev/null")).code == 0
    there = agent("sessions", "--session-dir", "/etc/passwd")
    assert (there.code, "/etc/passwd is not a directory" in there.err) == (3, True)
