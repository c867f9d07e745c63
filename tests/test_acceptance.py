"""Black-box acceptance: what a careful user of a terminal, a script and CI would check, on the real command."""

import errno
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Runner, environment
from server import ScriptedServer, calls, chunk, cut, hang, raw, sse, status, text
from test_run import at, ended, entries, only_log, shape, started, store

COMMAND = [sys.executable, "-m", "agent"]


def on_a_terminal(
    server: ScriptedServer,
    cwd: Path,
    *argv: str,
    keys: bytes = b"",
    once: tuple[str, Callable[[subprocess.Popen[bytes]], object]] | None = None,
    **env: str,
) -> tuple[int, str]:
    """Run with stdin, stdout and stderr on one pty; (exit code, all that was shown). `once` a text was shown
    something is done."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *argv], cwd=cwd, env=environment(**at(server, TERM="xterm", **env)),
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    shown = b""
    while True:
        ready = select.select([master], [], [], 60)[0]
        assert ready, shown
        try:
            data = os.read(master, 65536)
        except OSError:  # the last writer has gone
            break
        if not data:
            break
        shown += data
        if keys and shown.rstrip().endswith(b"[N]o:"):
            os.write(master, keys)
            keys = b""
        if once and once[0].encode() in shown:
            once[1](process)
            once = None
    os.close(master)
    return process.wait(), shown.decode().replace("\r\n", "\n")


# ---- what is said of the window ----


def test_who_only_looks_is_told_the_window_that_runs_use(agent: Runner, home: Path) -> None:
    """A server of no known kind that states its window when a run asks: the same figure in models, stats and the chart."""
    routes = {"GET /v1/models": {"data": [{"id": "scripted", "max_model_len": 4000}]}}
    with ScriptedServer([text("one")] * 8, routes=routes) as server:
        env = at(server)
        for number in range(8):
            done = agent(*([] if not number else ["--last"]), "hi", **env)
        models, stats = (
            agent("models", "--json", **env),
            agent("sessions", "stats", only_log(home).stem, "--json", **env),
        )
    assert "window: scripted → 4,000 tokens (server)" in done.err
    now, told = json.loads(models.out)["now"], json.loads(stats.out)
    assert (now["window"], now["window_source"]) == (4000, "server")
    assert (told["window"], told["window_source"], told["trigger"]) == (4000, "server", 3000)


# ---- standard input ----


def test_an_idle_pipe_never_hangs_a_run_with_a_prompt(home: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with ScriptedServer([text("Hi")]) as server:
        done = subprocess.run(
            [*COMMAND, "hi"],
            cwd=tmp_path,
            env=environment(**at(server)),
            stdin=reader,
            capture_output=True,
            check=False,
        )
    os.close(writer)
    os.close(reader)
    assert (done.returncode, done.stdout) == (0, b"Hi\n")
    assert b"standard input stayed silent and was not read" in done.stderr
    assert server.requests[0]["messages"][-1]["content"] == "hi"


@pytest.mark.parametrize(
    ("argv", "stdin", "sent"),
    [
        (["-"], b"x\n", "x\n"),
        ([], b"the prompt", "the prompt"),
        (["p"], b"x\n", "p\n\n<stdin>\nx\n</stdin>"),
        (["p"], b"", "p"),
        (["--no-stdin", "p"], b"x\n", "p"),
        (["--", "-5", "plus", "3"], b"", "-5 plus 3"),
        (["sessions are broken"], b"", "sessions are broken"),
        (["run", "sessions", "are", "broken"], b"", "sessions are broken"),
        (["--", "sessions", "are", "broken"], b"", "sessions are broken"),
        (["p"], b"\xef\xbb\xbfa\r\nb\x00\xff", "p\n\n<stdin>\na\r\nb\ufffd\ufffd\n</stdin>"),
        (["-p", "hello"], b"", "hello"),
    ],
)
def test_what_is_sent(agent: Runner, argv: list[str], stdin: bytes, sent: str) -> None:
    with ScriptedServer([text("ok")]) as server:
        assert agent(*argv, stdin=stdin, **at(server)).code == 0
    assert server.requests[0]["messages"][-1]["content"] == sent


def test_options_stand_before_and_after_the_prompt(agent: Runner, tmp_path: Path) -> None:
    (tmp_path / "work" / "a").write_text("A")
    (tmp_path / "work" / "b").write_text("B")
    with ScriptedServer([text("ok")], repeat_last=True) as server:
        agent("-f", "a", "-f", "b", "p", **at(server))
        agent("p", "-f", "a", "--file=b", **at(server))
    told = [request["messages"][-1]["content"] for request in server.requests]
    assert told == ['p\n\n<file path="a">\nA\n</file>\n\n<file path="b">\nB\n</file>'] * 2


def test_five_megabytes_on_stdin(agent: Runner, home: Path) -> None:
    """More than any window: the turn still ends, with what fits."""
    with ScriptedServer([text("ok")], repeat_last=True, window=40_000) as server:
        done = agent("-q", "count", "--window", "32k", stdin=b"line of text\n" * 400_000, **at(server))
    assert (done.code, done.out) == (0, "ok\n"), done
    assert server.violations == []


def test_alone_it_explains_itself(home: Path, tmp_path: Path) -> None:
    with ScriptedServer([]) as server:
        code, shown = on_a_terminal(server, tmp_path)
    assert code == 2
    assert "agent: a one-shot command-line agent whose memory can be trusted." in shown
    assert len(shown.splitlines()) <= 14


# ---- sessions ----


def test_an_ambiguous_prefix_lists_the_matches(agent: Runner, home: Path) -> None:
    store(home).mkdir(parents=True)
    for tail in ("0123aaaa", "0123bbbb"):
        (store(home) / f"20260101-000000-{tail}.jsonl").write_text(
            json.dumps({"type": "meta", "id": f"20260101-000000-{tail}"}) + "\n"
        )
    with ScriptedServer([]) as server:
        done = agent("-c", "0123", "hi", **at(server))
    assert (done.code, done.out, server.requests) == (4, "", [])
    assert "20260101-000000-0123aaaa" in done.err
    assert "20260101-000000-0123bbbb" in done.err


def test_the_second_process_is_told_who_is_first(home: Path, tmp_path: Path) -> None:
    gate = threading.Event()
    script = [
        text("one"),
        raw([sse(chunk({"content": "slow "})), gate, sse(chunk({"content": "two"}, "stop"))]),
        text("three"),
    ]
    with ScriptedServer(script) as server:
        ended(started(server, tmp_path, "-q", "first"))
        first = started(server, tmp_path, "-q", "--last", "second")
        assert first.stdout is not None
        assert first.stdout.read(5) == b"slow "
        second = ended(started(server, tmp_path, "--last", "third"))
        assert (second.code, second.out) == (7, "")
        assert str(first.pid) in second.err
        waiting = started(server, tmp_path, "--wait", "30", "--last", "third")
        told = b""
        assert waiting.stderr is not None
        while b"waiting for up to 30 s" not in told:
            told += waiting.stderr.read(1)
        gate.set()
        assert ended(first).code == 0
        assert ended(waiting).out == "three\n"
    assert [line for line in shape(only_log(home)) if line.startswith("user")] == [
        "user: first", "user: second", "user: third"
    ]  # fmt: skip
    assert server.violations == []


def test_files_are_private_whatever_the_umask(home: Path, tmp_path: Path) -> None:
    with ScriptedServer([calls([("write_file", {"path": "x", "content": "1"})]), text("ok")]) as server:
        line = f'umask 000; exec "{sys.executable}" -m agent -q hi'
        subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=environment(**at(server)), stdin=subprocess.DEVNULL, check=True
        )
    inside = {path: path.stat().st_mode & 0o777 for path in store(home).rglob("*")}
    assert {mode for path, mode in inside.items() if path.is_file()} == {0o600}
    assert {mode for path, mode in inside.items() if path.is_dir()} <= {0o700}
    assert store(home).stat().st_mode & 0o777 == 0o700


def test_a_printed_way_on_works_after_every_kind_of_failure(agent: Runner, home: Path) -> None:
    failures = [status(401, {"error": {"message": "bad key"}}), status(400, {"error": {"message": "bad"}}), cut("Half")]
    for failure in failures:
        with ScriptedServer([failure, text("fine")]) as server:
            agent("one", **at(server))
            assert agent("-q", "--last", "two", **at(server)).out == "fine\n"
            assert server.violations == []


def test_a_fork_leaves_the_original_alone(agent: Runner, home: Path) -> None:
    with ScriptedServer([text("one"), text("two")]) as server:
        agent("first", **at(server))
        log = only_log(home)
        before = log.read_bytes()
        done = agent("-c", log.stem, "--fork", "second", **at(server))
    assert (done.code, log.read_bytes()) == (0, before)
    [copy] = set(store(home).glob("*.jsonl")) - {log}
    assert shape(copy)[-2:] == ["user: second", "assistant: two"]
    assert entries(copy)[0]["parent"]["id"] == log.stem


@pytest.mark.parametrize("when", ["read-only", "no home"])
def test_nowhere_to_write(agent: Runner, home: Path, tmp_path: Path, when: str) -> None:
    """A clear sentence, no traceback, and the right code."""
    env = {"HOME": ""} if when == "no home" else {"XDG_STATE_HOME": "/proc/self/nowhere"}
    with ScriptedServer([text("never")]) as server:
        done = agent("hi", **at(server), **env)
    assert (done.code, done.out, server.requests) == (3 if when == "no home" else 1, "", [])
    assert "Traceback" not in done.err


# ---- output ----


def test_a_terminal_is_told_how_long_a_model_has_been_waited_for(home: Path, tmp_path: Path) -> None:
    seen = threading.Event()

    def late(request: dict[str, Any], index: int) -> Any:
        assert seen.wait(60)
        return text("Hi there")

    with ScriptedServer(late) as server:
        code, shown = on_a_terminal(server, tmp_path, "hi", once=("scripted … 4 s", lambda process: seen.set()))
    assert code == 0
    assert re.search(
        r"scripted … 3 s\r\x1b\[Kwaiting for scripted … 4 s(?:\r\x1b\[Kwaiting for scripted … \d s)*\r\x1b\[KHi there\n",
        shown,
    )


def test_a_run_that_is_waited_for_stops_at_once(home: Path, tmp_path: Path) -> None:
    """Ctrl-C while the line counts: it leaves nothing behind."""
    with ScriptedServer([hang()]) as server:
        stop = ("scripted … 3 s", lambda process: process.send_signal(signal.SIGINT))
        code, shown = on_a_terminal(server, tmp_path, "hi", once=stop)
    assert code == 130
    assert re.search(r"scripted … 3 s\r\x1b\[K\x1b\[31magent: Interrupted", shown)


def test_colour_only_where_it_belongs(home: Path, tmp_path: Path, agent: Runner) -> None:
    """On a terminal stderr is coloured; NO_COLOR, TERM=dumb and a pipe get no ESC byte."""
    with ScriptedServer([text("Hi")], repeat_last=True) as server:
        assert "\x1b[" in on_a_terminal(server, tmp_path, "hi")[1]
        assert "\x1b" not in on_a_terminal(server, tmp_path, "hi", NO_COLOR="1")[1]
        piped = agent("hi", **at(server, TERM="dumb"))
        assert "\x1b" not in piped.out + piped.err


def test_an_escape_from_the_model_never_reaches_the_terminal(home: Path, tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J"
    with ScriptedServer([calls([("bash", {"command": f"printf '{evil}'"})], f"look {evil}"), text(evil)]) as server:
        code, shown = on_a_terminal(server, tmp_path, "hi", NO_COLOR="1")
    assert code == 0
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "^[]0;owned^G" in shown


def test_every_line_of_json_parses_whatever_the_tools_say(agent: Runner) -> None:
    noisy = "echo to stdout; echo to stderr >&2; printf '\\xff\\xfe'"
    with ScriptedServer([calls([("bash", {"command": noisy})]), text("done")]) as server:
        done = agent("--json", "hi", **at(server))
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert (lines[0]["subtype"], lines[-1]["type"], lines[-1]["result"]) == ("init", "result", "done")
    assert done.err == ""


def test_the_first_line_of_json_and_no_more(home: Path, tmp_path: Path) -> None:
    with ScriptedServer([text("Hi there")]) as server:
        line = f'"{sys.executable}" -m agent --json hi | head -n 1'
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line], cwd=tmp_path, env=environment(**at(server)),
            stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr, json.loads(done.stdout)["subtype"]) == (0, b"", "init")
    assert shape(only_log(home))[-1] == "assistant: Hi there"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_json_ends_with_a_result_on_a_signal_too(home: Path, tmp_path: Path, number: int, code: int) -> None:
    gate = threading.Event()
    with ScriptedServer([raw([sse(chunk({"content": "Half "})), gate])]) as server:
        process = started(server, tmp_path, "--json", "--include-partial-messages", "hi")
        assert process.stdout is not None
        read = b""
        while b"stream_event" not in read:
            read += process.stdout.readline()
        process.send_signal(number)
        done = ended(process)
        gate.set()
    last = json.loads(done.out.splitlines()[-1])
    assert (done.code, last["type"], last["subtype"], last["exit_code"]) == (code, "result", "interrupted", code)


def test_the_answer_in_a_file(agent: Runner, tmp_path: Path) -> None:
    target = tmp_path / "work" / "answer.txt"
    with ScriptedServer([calls([("bash", {"command": "true"})], "Thinking."), text("42")]) as server:
        assert agent("-q", "-o", "answer.txt", "hi", **at(server)).code == 0
    assert target.read_text() == "42\n"
    assert [path.name for path in target.parent.iterdir()] == ["answer.txt"]


@pytest.mark.parametrize(
    "encoding", [{"LANG": "C", "LC_ALL": "C"}, {"PYTHONIOENCODING": "cp1252"}, {"PYTHONUTF8": "0"}]
)
def test_the_answer_is_utf8_whatever_the_locale(home: Path, tmp_path: Path, encoding: dict[str, str]) -> None:
    with ScriptedServer([text("修复 🙂")]) as server:
        done = subprocess.run(
            [*COMMAND, "hi"], cwd=tmp_path, env=environment(**at(server), **encoding), stdin=subprocess.DEVNULL,
            capture_output=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "修复 🙂\n".encode())


# ---- failures ----


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (status(401, {"error": {"message": "no"}}), 3),
        (status(403, {"error": {"message": "no"}}), 3),
        (status(429, {"error": {"message": "Rate limit reached"}}, {"Retry-After": "3600"}), 75),
        (status(400, {"error": {"message": "temperature is out of range"}}), 1),
        (raw("not json at all", "application/json"), 1),
    ],
    ids=["401", "403", "429 for an hour", "400", "bad JSON"],
)
def test_failures_and_their_codes(agent: Runner, reply: Any, code: int) -> None:
    with ScriptedServer([reply], repeat_last=True) as server:
        done = agent("hi", **at(server))
    assert (done.code, done.out) == (code, ""), done
    assert done.err.splitlines()[-1].startswith("agent: ")


def test_a_server_that_says_nothing(agent: Runner) -> None:
    with ScriptedServer([hang()]) as server:
        done = agent("hi", "--timeout", "20", **at(server, AGENT_FIRST_BYTE_TIMEOUT="0.3", AGENT_STALL_TIMEOUT="0.3"))
    assert done.code in (75, 124), done


def test_no_key_ever_shows(agent: Runner, home: Path) -> None:
    key = "sk-test-0123456789abcdef"
    for reply in (status(401, {"error": {"message": f"Incorrect API key provided: {key}"}}), text("Hi")):
        with ScriptedServer([reply]) as server:
            done = agent("--debug", "hi", **at(server, OPENAI_API_KEY=key))
        assert key not in done.out + done.err
    assert all(key.encode() not in path.read_bytes() for path in home.rglob("*") if path.is_file())


# ---- tools ----


def test_a_write_outside_is_blocked_and_told(agent: Runner, home: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    script = [
        calls([("write_file", {"path": str(outside), "content": "x"}), ("bash", {"command": f"echo x > {outside}"})]),
        text("It was not allowed."),
    ]
    with ScriptedServer(script) as server:
        done = agent("--json", "write outside", **at(server))
    assert done.code == 0
    assert not outside.exists()
    results = [m["content"] for m in server.requests[1]["messages"] if m["role"] == "tool"]
    assert len(results) == 2
    assert all("exit status 0" not in text for text in results), results


def test_strict_makes_a_denial_an_exit_code(agent: Runner) -> None:
    script = [calls([("bash", {"command": "git push"})]), text("I could not.")]
    for flags, code in (([], 0), (["--strict"], 5)):
        with ScriptedServer(script) as server:
            done = agent("--deny", "bash(git push *)", *flags, "push", **at(server))
        assert (done.code, done.out) == (code, "I could not.\n")
        assert "denied" in done.err


@pytest.mark.parametrize(
    ("keys", "told"), [(b"y\n", "exit status 0"), (b"n\n", "The user said no"), (b"\x04", "The user said no")]
)
def test_bash_asks_on_a_terminal_where_nothing_confines(home: Path, tmp_path: Path, keys: bytes, told: str) -> None:
    with ScriptedServer([calls([("bash", {"command": "echo 1"})]), text("ok")]) as server:
        code, shown = on_a_terminal(server, tmp_path, "--sandbox", "off", "hi", keys=keys)
    assert code == 0, shown
    assert "bash wants to run:\n  echo 1" in shown
    [result] = [m["content"] for m in server.requests[1]["messages"] if m["role"] == "tool"]
    assert told in result


def test_without_a_terminal_a_question_is_a_denial(agent: Runner) -> None:
    script = [calls([("bash", {"command": "echo 1"})]), text("I could not.")]
    with ScriptedServer(script) as server:
        denied = agent("--sandbox", "off", "hi", **at(server))
    with ScriptedServer(script) as server:
        allowed = agent("--sandbox", "off", "--yolo", "hi", **at(server))
    assert "denied" in denied.err
    assert "bash done" in allowed.err


# ---- speed of the edges ----


def test_the_run_ends_when_the_answer_does(home: Path, tmp_path: Path) -> None:
    """A server that keeps the connection open after [DONE] does not keep the run."""
    gate = threading.Event()
    body = [sse(chunk({"content": "Hi"})), sse(chunk({}, "stop")), sse("[DONE]"), gate]
    with ScriptedServer([raw(body)]) as server:
        begun = time.monotonic()
        done = ended(started(server, tmp_path, "-q", "hi"))
        took = time.monotonic() - begun
        gate.set()
    assert (done.code, done.out) == (0, "Hi\n")
    assert took < 30


def test_a_name_is_an_address_and_belongs_to_one(agent: Runner, home: Path) -> None:
    with ScriptedServer([text("one"), text("two"), text("three")]) as server:
        assert agent("-n", "work", "first", **at(server)).code == 0
        assert agent("-q", "-c", "work", "second", **at(server)).out == "two\n"
        taken = agent("-n", "work", "third", **at(server))
        assert (taken.code, "agent -c work" in taken.err) == (4, True)
        assert agent("-c", "", "third", **at(server)).code == 4
    assert len(server.requests) == 2


def test_a_name_belongs_to_one_of_two_that_start_at_once(home: Path, tmp_path: Path) -> None:
    """Both have seen that it is free before either has made its session; the second is told as a later one would be."""
    both = threading.Barrier(2)

    def listed() -> dict[str, Any]:
        both.wait(30)
        return {"object": "list", "data": [{"id": "scripted"}]}

    with ScriptedServer([text("one")], routes={"GET /v1/models": listed}) as server:
        runs = [started(server, tmp_path, "-q", "-n", "work", word) for word in ("first", "second")]
        first, second = sorted(map(ended, runs), key=lambda done: done.code)
    assert (first.code, first.out, first.err) == (0, "one\n", "")
    id = only_log(home).stem
    told = f"agent: The name 'work' belongs to session {id}. Continue it: agent -c work\n"
    assert (second.code, second.out, second.err) == (4, "", told)
    assert sorted(os.listdir(store(home))) == [f"{id}.jsonl", f"{id}.lock"]


def test_a_name_whose_session_has_no_answer_yet_goes_on(agent: Runner, home: Path, tmp_path: Path) -> None:
    """After an outage, or half an answer, the same command is simply given again; a session of which a turn has ended is
    never taken up by -n."""
    command = ["-n", "retry", "-s", "Be brief.", "the question"]
    with ScriptedServer([status(503, "")], repeat_last=True) as server:
        env = at(server, AGENT_RETRY_SECONDS="0.1")
        assert [agent("-q", *command, **env).code for _ in range(2)] == [75, 75]
    with ScriptedServer([cut("half"), text("the whole")]) as server:
        done = agent(*command, **at(server))
        whole = agent("-q", *command, **at(server))
        assert agent("-q", "--fork", "-n", "retry", "hi", **at(server)).code == 2
        assert agent("-q", "--no-session", "-n", "retry", "hi", **at(server)).code == 2
        full = agent("-q", *command, **at(server))
    id = only_log(home).stem
    assert (done.code, done.err.splitlines()[0]) == (75, f"session: {id} (resumed, 1 message)")
    assert "warning: the system prompt" not in done.err
    assert (whole.code, whole.out) == (0, "the whole\n")
    asked = [[m["content"] for m in request["messages"]] for request in server.requests]
    assert asked == [["Be brief.", "the question"], ["Be brief.", "the question", "half", "the question"]]
    assert (full.code, full.err) == (
        4,
        f"agent: The name 'retry' belongs to session {id}. Continue it: agent -c retry\n",
    )
    assert shape(only_log(home)) == [
        "meta", "system", "user: the question", "failed", "user: the question", "failed", "user: the question",
        "assistant: half", "user: the question", "assistant: the whole",
    ]  # fmt: skip


def test_a_prompt_that_is_given_again_since_nothing_came_of_it_is_sent_once(home: Path, tmp_path: Path) -> None:
    """Stopped before the first byte, twice; an interrupted prompt that another follows is sent beside it."""
    command = ["-n", "slow", "--timeout", "1", "the question"]
    with ScriptedServer([hang(), hang(), text("ok"), hang(), text("fine")]) as server:
        codes = [ended(started(server, tmp_path, "-q", *command)).code for _ in range(3)]
        codes += [
            ended(started(server, tmp_path, "-q", "-c", "slow", "--timeout", "1", prompt)).code
            for prompt in ("and?", "go on")
        ]
    asked = [[m["content"] for m in request["messages"] if m["role"] == "user"] for request in server.requests]
    assert codes == [124, 124, 0, 124, 0]
    assert asked[2] == ["the question"] and asked[4] == ["the question", "and?", "go on"]


def test_a_name_whose_first_answer_is_still_awaited_is_taken(home: Path, tmp_path: Path) -> None:
    gate = threading.Event()
    with ScriptedServer([raw([gate, sse(chunk({"content": "one"}, "stop"))])]) as server:
        first = started(server, tmp_path, "-q", "-n", "work", "first")
        while not server.requests:
            assert first.poll() is None
        second = ended(started(server, tmp_path, "-q", "--wait", "9", "-n", "work", "second"))
        gate.set()
        assert ended(first).out == "one\n"
    told = f"agent: The name 'work' belongs to session {only_log(home).stem}. Continue it: agent -c work\n"
    assert (second.code, second.err) == (4, told)


PERSON = '{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}'


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        ('{"age": 7}', 0, "finish_reason=stop"),
        ('{"age": "seven"}', 1, "The answer does not match --schema: the answer.age must be integer"),
        ("He is seven.", 1, "The answer is not JSON (--schema)"),
    ],
)
def test_an_answer_of_a_given_shape(agent: Runner, home: Path, answer: str, code: int, says: str) -> None:
    """The server is asked for the shape; the answer is checked here, and saved whatever it is."""
    with ScriptedServer([text(answer)]) as server:
        done = agent("--schema", PERSON, "how old", **at(server))
    assert (done.code, done.out) == (code, f"{answer}\n")
    assert says in done.err.splitlines()[-1]
    assert server.requests[0]["response_format"]["json_schema"]["schema"] == json.loads(PERSON)
    assert shape(only_log(home))[-1] == f"assistant: {answer}"


@pytest.mark.parametrize("schema", ["missing.json", "{", '{"type": "nothing"}', '{"$ref": "URL/x.json"}'])
def test_a_schema_that_is_none(agent: Runner, schema: str) -> None:
    """Nor is one whose parts would have to be fetched; nothing is."""
    with ScriptedServer([]) as server:
        done = agent("--schema", schema.replace("URL", server.url), "hi", **at(server))
    assert (done.code, done.out, server.requests, server.asked) == (2, "", [], [])


def test_a_call_cut_off_by_the_token_limit_never_runs(agent: Runner, home: Path, tmp_path: Path) -> None:
    """Half a file is not written; the model is told to write smaller parts, and does."""
    target = tmp_path / "work" / "a.txt"
    half = '{"path": "a.txt", "content": "half of th'
    script = [
        calls([("write_file", half)], finish="length"),
        calls([("write_file", half)], finish="stop"),
        calls([("write_file", {"path": "a.txt", "content": "whole"})]),
        text("done"),
    ]
    with ScriptedServer(script) as server:
        done = agent("-q", "write", **at(server))
    assert (done.code, done.out, target.read_text()) == (0, "done\n", "whole")
    first, second = [m["content"] for m in server.requests[2]["messages"] if m["role"] == "tool"]
    assert first.startswith("Not run: the answer was cut off")
    assert second.startswith("The arguments end in the middle")
    assert server.violations == []


def test_a_model_that_is_always_cut_off_ends_the_run(agent: Runner, home: Path) -> None:
    with ScriptedServer([calls([("bash", '{"command": "ec')], finish="length")], repeat_last=True) as server:
        done = agent("hi", **at(server))
    assert (done.code, len(server.requests)) == (6, 3)
    assert "--max-tokens" in done.err


def test_a_server_with_one_model_needs_no_name(agent: Runner) -> None:
    one = {"GET /v1/models": {"object": "list", "data": [{"id": "only"}]}}
    two = {"GET /v1/models": {"object": "list", "data": [{"id": "first"}, {"id": "second"}]}}
    with ScriptedServer([text("Hi")], routes=one) as server:
        assert agent("-q", "hi", OPENAI_BASE_URL=server.url).out == "Hi\n"
        assert server.requests[0]["model"] == "only"
    with ScriptedServer([], routes=two) as server:
        done = agent("hi", OPENAI_BASE_URL=server.url)
    assert (done.code, done.out) == (3, "")
    assert "It has: first, second" in done.err


@pytest.mark.parametrize("words", [["sessoins", "list"], ["session", "show"], ["sesions", "rm"]])
def test_a_misspelt_command_is_not_sent_to_a_model(agent: Runner, words: list[str]) -> None:
    with ScriptedServer([]) as server:
        done = agent(*words, **at(server))
    assert (done.code, server.requests) == (2, [])
    assert f"Did you mean: agent sessions {words[1]}" in done.err


def test_a_misspelt_verb_is_one_sentence_with_the_way_on(agent: Runner) -> None:
    assert agent("sessions", "lst").err == (
        "agent: No such command 'lst'. Did you mean 'list', 'last'? See agent sessions --help. "
        "To send this as a prompt: agent -- sessions lst\n"
    )


def test_an_unknown_strategy_is_refused_before_anything_is_asked(agent: Runner, home: Path) -> None:
    with ScriptedServer([text("one")]) as server:
        agent("hi", **at(server))
        before = only_log(home).read_bytes()
        done = agent("sessions", "compact", "last", "--strategy", "bogus", **at(server))
        assert (done.code, done.err) == (
            2,
            "agent: --strategy is 'bogus', but it takes pruned, window_plus_summary or raw_fallback\n",
        )
        assert (len(server.requests), only_log(home).read_bytes()) == (1, before)


@pytest.mark.parametrize("words", [["hi"], ["sessions", "list"], ["--json", "hi"]])
def test_an_installation_without_its_packages_says_so(tmp_path: Path, words: list[str]) -> None:
    """A Python that sees none of the packages: no traceback, exit 3, and nothing written."""
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "nobody"), "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-S", "-m", "agent", *words], env=bare, capture_output=True, text=True)
    lacking = re.fullmatch(
        r"agent: This installation lacks the package (\w+)\. Install agent again, with the packages it needs, in the "
        r"environment this command runs in \(README, Try it\)\n",
        done.stderr,
    )
    assert lacking is not None, done
    assert (done.returncode, done.stdout, lacking[1] in ("orjson", "typer", "httpx")) == (3, "", True)
    assert not (tmp_path / "nobody").exists()


def test_json_ends_with_a_result_even_for_a_bad_option(agent: Runner) -> None:
    done = agent("--json", "--bogus", "hi")
    result = json.loads(done.out)
    assert (done.code, result["type"], result["exit_code"], result["error"]["code"]) == (2, "result", 2, "usage")


# ---- what a hostile tester found ----


@pytest.mark.parametrize(
    ("redirect", "code", "out", "err"),
    [
        ("2>&-", 0, "Hi\n", ""),
        ("<&- 2>&-", 0, "Hi\n", ""),
        (">&-", 1, "", "Cannot write to standard output: Bad file descriptor"),
        ("<&- >&- 2>&-", 1, "", ""),
    ],
)
def test_closed_descriptors_never_become_a_session(
    home: Path, tmp_path: Path, redirect: str, code: int, out: str, err: str
) -> None:
    """The log is whole whatever is closed; a closed stderr is no failure, a closed stdout is one, without a
    traceback."""
    with ScriptedServer([text("Hi")]) as server:
        done = subprocess.run(
            ["bash", "-c", f'"{sys.executable}" -m agent hi {redirect}'], cwd=tmp_path, env=environment(**at(server)),
            capture_output=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout.decode()) == (code, out), done.stderr
    assert err in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert shape(only_log(home)) == ["meta", "system", "user: hi", "assistant: Hi"]


@pytest.mark.parametrize("argv", [["--help"], ["-V"], ["models"], ["sessions", "list"], ["completion", "bash"]])
def test_a_full_stdout_is_told_by_every_command(home: Path, tmp_path: Path, argv: list[str]) -> None:
    (tmp_path / "x.jsonl").write_text("")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, *argv], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, check=False)
    if argv == ["sessions", "list"]:  # nothing to write
        assert done.returncode == 0
    else:
        assert (done.returncode, done.stderr.decode().splitlines()[-1]) == (
            1, "agent: Cannot write to standard output: No space left on device"
        )  # fmt: skip


@pytest.mark.parametrize("target", ["/nonexist/x", "."])
def test_a_file_that_cannot_be_written_costs_no_request(agent: Runner, target: str) -> None:
    with ScriptedServer([]) as server:
        done = agent("-o", target, "hi", **at(server))
    assert (done.code, server.requests) == (2, [])
    assert f"Cannot write the answer to {target}" in done.err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "-o log hi >> log",
            "Cannot write the answer to log: standard output goes to that file, which would be replaced",
        ),
        (
            "-o link hi >> log",
            "Cannot write the answer to link: standard output goes to that file, which would be replaced",
        ),
        ("-C .. -o work/log hi 2>> log", "Cannot write the answer to work/log: standard error goes to that file"),
        ("-o /proc/self/fd/3 hi 3>> log >> log", "Cannot write the answer to /proc/self/fd/3: standard output goes to"),
        ("-o /dev/stdout hi >> log", "-o /dev/stdout : the answer is on standard output anyway. Give -o a file, or"),
        (
            "-o /dev/fd/1 hi | cat",
            "-o /dev/fd/1 : the answer is on standard output anyway. Give -o a file, or leave it",
        ),
        ("-o /proc/self/fd/1 hi", "-o /proc/self/fd/1 : the answer is on standard output anyway. Give -o a file, or"),
        (
            "-o /dev/stderr hi 2>> log",
            "-o /dev/stderr : that is standard error, not a file. Give -o a file, or leave it",
        ),
    ],
)
def test_the_answer_never_replaces_what_a_stream_goes_to(home: Path, tmp_path: Path, line: str, says: str) -> None:
    """Nothing is sent, nothing kept, and the file that was appended to has its old lines."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "log").write_text("old\n")
    (work / "link").symlink_to("log")
    with ScriptedServer([]) as server:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f'"{sys.executable}" -m agent {line}'], cwd=work,
            env=environment(**at(server)), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
    kept = (work / "log").read_text()
    assert (done.returncode, done.stdout, kept[:4], server.requests) == (2, "", "old\n", [])
    assert says in done.stderr + kept
    assert not store(home).exists() and (work / "link").is_symlink()


def test_the_answer_goes_into_pipes_devices_and_through_links(home: Path, tmp_path: Path) -> None:
    """Also where standard output goes to the same device."""
    (tmp_path / "link").symlink_to("target")
    agent = f'"{sys.executable}" -m agent -q --no-session'
    line = f"{agent} -o /dev/null 1 > /dev/null && {agent} -o link 2 > other && {agent} -o >(tr a-z A-Z) 3 > more && wait $!"
    with ScriptedServer([text("one"), text("two"), text("three")]) as server:
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=environment(**at(server)), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "THREE\n", "")
    assert [(tmp_path / name).read_text() for name in ("target", "other", "more")] == ["two\n", "two\n", "three\n"]
    assert (tmp_path / "link").is_symlink()


def test_a_pipe_that_nobody_reads_is_not_waited_for(agent: Runner, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "work" / "pipe")
    with ScriptedServer([text("Hi")]) as server:
        done = agent("-q", "-o", "pipe", "hi", **at(server))
    assert (done.code, done.out) == (1, "Hi\n")
    assert "Cannot write pipe" in done.err


def test_the_clock_runs_while_files_are_read(agent: Runner, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "work" / "pipe")
    with ScriptedServer([]) as server:
        assert agent("--timeout", "0.5", "--system-file", "pipe", "hi", **at(server)).code == 124
        endless = agent("--system-file", "/dev/zero", "hi", **at(server))
    assert (endless.code, "larger than 1 MB" in endless.err) == (2, True)


def test_one_broken_call_does_not_stop_the_others(agent: Runner, tmp_path: Path) -> None:
    script = [calls([("bash", '{"command": "ls'), ("bash", {"command": "echo fine"})]), text("done")]
    with ScriptedServer(script) as server:
        assert agent("-q", "hi", **at(server)).code == 0
    first, second = [m["content"] for m in server.requests[1]["messages"] if m["role"] == "tool"]
    assert first.startswith("The arguments end in the middle")
    assert second == "fine\nexit status 0"
    assert server.violations == []


def test_no_password_in_what_people_paste(agent: Runner) -> None:
    url = "http://bob:hunter2pass@127.0.0.1:9/v1"
    shown = [agent("config", "show", *flag, OPENAI_BASE_URL=url, MODEL="m") for flag in ([], ["--json"])]
    assert ["hunter2pass" in done.out + done.err for done in shown] == [False, False]


@pytest.mark.parametrize("reason", ["content_filter", "blocked", "guardrail_intervened"])
@pytest.mark.parametrize(("said", "code"), [("", 1), ("Some of it", 0)])
def test_an_answer_that_a_filter_ended_is_told(agent: Runner, said: str, code: int, reason: str) -> None:
    with ScriptedServer([text(said, finish=reason)], repeat_last=True) as server:
        done = agent("hi", **at(server))
    assert (done.code, "filter ended the answer" in done.err) == (code, True), done


def test_options_before_a_command_get_the_right_order(agent: Runner) -> None:
    done = agent("--session-dir", "D", "sessions", "list", "--all")
    assert (done.code, "The command: agent sessions list --all --session-dir D" in done.err) == (2, True), done


def test_a_compaction_that_was_asked_for_and_not_had_is_an_error(agent: Runner, home: Path) -> None:
    """And the way on without a model works."""
    with ScriptedServer([text("word " * 300), text("word " * 300), text("no")], repeat_last=True) as server:
        agent("one", **at(server))
        agent("--last", "two", **at(server))
        log = only_log(home)
        asked = agent("-c", log.stem, "/compact", **at(server))
        assert (asked.code, f"agent sessions compact {log.stem} --strategy raw_fallback" in asked.err) == (1, True)
        assert agent("sessions", "compact", log.stem, "--strategy", "raw_fallback", **at(server)).code == 0
    assert shape(log)[1] == "compaction"


def test_the_way_on_from_a_marked_store_works_anywhere(agent: Runner, home: Path, tmp_path: Path) -> None:
    marked = tmp_path / "work" / "sessions"
    marked.mkdir()
    (marked / ".agent-sessions").write_text("")
    with ScriptedServer([text("one"), text("two")]) as server:
        done = agent("hi", **at(server))
        command = done.err.splitlines()[-1].partition("continue: agent ")[2].split()
        assert command[:2] == ["--session-dir", str(marked)]
        assert agent("-q", *command, "more", cwd=tmp_path, **at(server)).out == "two\n"


def test_a_pipe_that_is_left_out_is_told_under_q_too(home: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with ScriptedServer([text("Hi")]) as server:
        done = subprocess.run(
            [*COMMAND, "-q", "hi"], cwd=tmp_path, env=environment(**at(server)), stdin=reader, capture_output=True,
            check=False,
        )  # fmt: skip
    os.close(writer)
    os.close(reader)
    assert (done.stdout, b"standard input stayed silent" in done.stderr) == (b"Hi\n", True)


def test_one_word_after_an_option_is_a_prompt(agent: Runner, home: Path) -> None:
    """A verb, or what is nearly a command; a command's own name only where a session is continued."""
    with ScriptedServer([text("ok")], repeat_last=True) as server:
        for line in (
            "-n work list", "--last continue", "-c work show", "-m scripted modles", "-q version", "-c work help",
            "--last config",
        ):  # fmt: skip
            assert agent(*line.split(), **at(server)).out == "ok\n", line
        for line in (
            "list -q",
            "continue --last",
            "modles -m scripted",
            "-q models",
            "-m scripted doctor",
            "--json help",
        ):
            assert agent(*line.split(), **at(server)).code == 2, line
    sent = [request["messages"][-1]["content"] for request in server.requests]
    assert sent == ["list", "continue", "show", "modles", "version", "help", "config"]


@pytest.mark.parametrize("word", ["sesions", "session", "modles", "docter"])
def test_a_single_misspelt_command_is_not_sent_to_a_model(agent: Runner, word: str) -> None:
    with ScriptedServer([]) as server:
        assert agent(word, **at(server)).code == 2
    assert server.requests == []


# ---- the rest of the acceptance list ----


def test_a_torn_last_line_is_set_aside_with_a_notice(agent: Runner, home: Path) -> None:
    """What kill -9 in the middle of a write leaves."""
    with ScriptedServer([text("one"), text("two")]) as server:
        agent("first", **at(server))
        log = only_log(home)
        with log.open("ab") as file:
            file.write(b'{"type":"message","n":4,"message":{"role":"us')
        done = agent("-c", log.stem, "second", **at(server))
    assert (done.code, done.out) == (0, "two\n")
    assert "warning: " in done.err
    assert [path.read_bytes()[:20] for path in log.with_suffix(".archive").glob("torn-*")] == [b'{"type":"message","n']
    assert server.violations == []


def test_a_small_window_turn_after_turn(agent: Runner, home: Path) -> None:
    """CONTEXT_WINDOW=950 again and again: it compacts, answers, reports, and nothing is sent that does not fit."""
    with ScriptedServer(
        [text("A long answer about nothing. " * 20)], repeat_last=True, window=950,
        tokens=lambda request: len(json.dumps([request["messages"], request.get("tools")])) // 4,
    ) as server:  # fmt: skip
        outcomes = [agent("-q", *(["--last"] if turn else []), f"question {turn}", **at(server, CONTEXT_WINDOW="950"))
                    for turn in range(6)]  # fmt: skip
    assert [done.code for done in outcomes] == [0] * 6
    assert server.violations == []
    log = only_log(home)
    assert agent("sessions", "replay", log.stem, "--check").code == 0
    assert shape(log)[1] == "compaction"


def test_doctor_says_when_another_agent_comes_first(agent: Runner, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "agent").write_text("#!/bin/sh\necho another\n")
    (other / "agent").chmod(0o755)
    done = agent("doctor", "--offline", PATH=f"{other}{os.pathsep}{os.environ['PATH']}")
    assert f"`agent` is {other / 'agent'}, not this program" in done.out
    assert "oneshot-agent" in done.out


def test_doctor_says_that_a_server_does_not_answer(agent: Runner) -> None:
    """And does not guess at its models and window, nor send the reader to the doctor."""
    with ScriptedServer([]) as server:
        url = server.url
    done = agent("doctor", OPENAI_BASE_URL=url, MODEL="scripted")
    refused = f"[Errno {errno.ECONNREFUSED}] Connection refused"
    assert (done.code, done.out.splitlines()[-3:]) == (1, [
        f"ok       configuration: scripted at {url} (from OPENAI_BASE_URL), no key",
        f"failed   answer: the server does not answer: {url}: {refused}",
        "         → Start it, or correct its address (OPENAI_BASE_URL, or base_url in config.toml)",
    ])  # fmt: skip


def test_a_local_server_needs_no_key_and_is_not_said_to_be_there(agent: Runner) -> None:
    rows = [line for line in agent("models", VLLM_API_KEY="x").out.splitlines() if "127.0.0.1" in line]
    assert rows == [
        "ollama       no key needed                http://127.0.0.1:11434/v1",
        "lmstudio     no key needed                http://127.0.0.1:1234/v1",
        "llamacpp     no key needed                http://127.0.0.1:8080/v1  default",
        "vllm         no key needed                http://127.0.0.1:8000/v1",
    ]
    told = {
        row["name"]: row["ready"] for row in json.loads(agent("models", "--json", GROQ_API_KEY="x").out)["providers"]
    }
    assert (told["groq"], told["ollama"], told["openai"]) == (True, None, False)


def test_a_server_that_fails_every_time_is_temporary(agent: Runner) -> None:
    """500 and a dropped socket, after retries: 75, and stdout empty."""
    with ScriptedServer([status(500, {"error": {"message": "internal"}}, {"x-should-retry": "false"})]) as server:
        assert (done := agent("hi", **at(server))).code == 75, done
        assert done.out == ""
    assert (done := agent("hi", OPENAI_BASE_URL="http://127.0.0.1:9/v1", MODEL="m")).code == 75, done
    assert done.out == ""


def test_suspended_and_resumed(home: Path, tmp_path: Path) -> None:
    """Ctrl-Z and fg in the middle of an answer lose nothing."""
    gate = threading.Event()
    with ScriptedServer(
        [raw([sse(chunk({"content": "Half "})), gate, sse(chunk({"content": "whole"}, "stop"))])]
    ) as server:
        process = started(server, tmp_path, "-q", "hi")
        assert process.stdout is not None
        assert process.stdout.read(5) == b"Half "
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        gate.set()
        process.send_signal(signal.SIGCONT)
        done = ended(process)
    assert (done.code, done.out) == (0, "whole\n")
    assert shape(only_log(home))[-1] == "assistant: Half whole"


def test_what_is_not_text_and_what_is_probably_a_file_is_said(agent: Runner, tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are told of; so is a file name that became part of the prompt."""
    (tmp_path / "latin1.txt").write_bytes("caf\u00e9 na\u00efve".encode("latin-1"))
    (tmp_path / "more.txt").write_text("more")
    with ScriptedServer([text("ok")], repeat_last=True) as server:
        done = agent("-f", "latin1.txt", "more.txt", "what?", cwd=tmp_path, **at(server))
        piped = agent("what?", stdin=b"caf\xe9", **at(server))
    assert "warning: latin1.txt is not all UTF-8: 2 bytes or so cannot be shown to the model" in done.err.splitlines()
    assert (
        "warning: 'more.txt' is a file here, but part of the prompt: each file needs its own -f"
        in done.err.splitlines()
    )
    assert (
        "warning: standard input is not all UTF-8: 1 byte or so cannot be shown to the model" in piped.err.splitlines()
    )


def test_a_session_whose_first_prompt_was_cut_is_listed_with_its_words(agent: Runner) -> None:
    prompt = "look at this list " + " ".join(map(str, range(60_000)))
    with ScriptedServer([text("a list")], repeat_last=True) as server:
        agent("-q", stdin=prompt.encode(), **at(server, CONTEXT_WINDOW="8000"))
    assert "look at this list" in agent("sessions", "list", "--all").out


def test_searching_for_several_words_needs_no_quotes(agent: Runner) -> None:
    with ScriptedServer([text("the heron is grey")]) as server:
        agent("-q", "which bird?", **at(server))
    assert "the heron is grey" in agent("sessions", "search", "heron", "is").out
