"""Whole processes, as a person or a script starts them: until the first request, the first words, the end; by size.

The floors are the smallest scripts that do the same on the wire with the same libraries and leave as we do, without
unwinding the interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.log import META, Unsynced, entry, write_log
from bench.measuring import Row, figure, in_turns
from bench.scripted import PAUSE, Server

LOOP = """
client = httpx.Client(verify=False, trust_env=False)
with client.stream("POST", sys.argv[1] + "/chat/completions", content=body) as answer:
    rest = b""
    for block in answer.iter_raw():
        *lines, rest = (rest + block).split(b"\\n")
        for line in lines:
            if line.startswith(b"data: {"):
                choice = orjson.loads(line[6:])["choices"][0]
                text = choice["delta"].get("content")
                if text:
                    os.write(1, text.encode())
os._exit(0)
"""
ONE = 'body = orjson.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]})'
TURN = f"import os, sys\nimport typer, httpx, orjson\n{ONE}{LOOP}"
RESUME = f"""import os, sys
import httpx, orjson
with open(sys.argv[2], "rb") as file:
    entries = [orjson.loads(line) for line in file]
messages = [entry["message"] for entry in entries if entry["type"] == "message"]
messages.append({{"role": "user", "content": "hi"}})
body = orjson.dumps({{"model": "m", "stream": True, "messages": messages}}){LOOP}"""
ROOMY = ("--window", "100000000", "--compact-at", "off")
"""What is measured is reading and sending, not making smaller."""
BARE = "python -c pass"
SCRIPT = "minimal typer+httpx+orjson script"
PARSER = "minimal httpx script that parses and sends"


class Sample(NamedTuple):
    """One run. Milliseconds: `wall` whole; `request` start to the request's first byte; `output` to the first byte on
    stdout; `shown` the slower of the first two chunks, from the server's write to the reader's read; `leaving` last
    byte on stdout to the end of the process; `closing` the same from the last byte the server sent. `cpu` milliseconds,
    `memory` MB."""

    wall: float
    cpu: float
    memory: float
    request: float = 0.0
    output: float = 0.0
    shown: float = 0.0
    leaving: float = 0.0
    closing: float = 0.0


def agent_command() -> list[str]:
    """The installed command beside this interpreter, else the module."""
    beside = os.path.join(os.path.dirname(sys.executable), "agent")
    return [beside] if os.path.exists(beside) else [sys.executable, "-m", "agent"]


def once(command: list[str], environ: dict[str, str], cwd: str, server: Server | None = None) -> Sample:
    """Run a program to its end, reading what it writes as it comes."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, env=environ, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    reads, fd = [], process.stdout.fileno()
    while os.read(fd, 1 << 16):
        reads.append(time.perf_counter())
    found = ended(process, command, start)
    end = time.perf_counter()
    process.stdout.close()
    if server is None:
        return found
    times = {
        "request": server.came - start,
        "output": reads[0] - start,
        "shown": max(read - sent for sent, read in zip(server.sent, reads, strict=False)),
        "leaving": end - reads[-1],
        "closing": end - server.done,
    }
    return found._replace(**{name: 1000 * value for name, value in times.items()})


def ended(process: subprocess.Popen[bytes], command: list[str], start: float) -> Sample:
    """Wait for the end: what the process took and used."""
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    memory = used.ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20)
    return Sample(wall=1000 * wall, cpu=1000 * (used.ru_utime + used.ru_stime), memory=memory)


class Place(NamedTuple):
    """A home of its own for the programs, and the server they talk to."""

    home: str
    environ: dict[str, str]
    server: Server
    store: str

    def script(self, name: str, text: str) -> str:
        path = os.path.join(self.home, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def run(self, command: list[str], asks: bool = True) -> Callable[[], Sample]:
        return lambda: once(command, self.environ, self.home, self.server if asks else None)


@contextmanager
def place(chunks: int = 2) -> Iterator[Place]:
    server = Server(chunks)
    with TemporaryDirectory(prefix="bench-") as home:
        store = os.path.join(home, "store")
        environ = {"PATH": os.environ["PATH"], "HOME": home, "OPENAI_BASE_URL": server.url, "MODEL": "m"}
        environ["AGENT_SESSION_DIR"] = store
        try:
            yield Place(home, environ, server, store)
        finally:
            server.close()


def column(samples: list[Sample], name: str) -> list[float]:
    return [getattr(sample, name) for sample in samples]


def start(rounds: int) -> tuple[list[Row], list[float]]:
    """One new turn, `-V` and `--help`; and the times of a bare interpreter, which say how even the machine was."""
    agent = agent_command()
    with place() as here:
        floor = [sys.executable, here.script("turn.py", TURN), here.server.url]
        found = in_turns(
            rounds,
            {
                "bare": here.run([sys.executable, "-c", "pass"], asks=False),
                "floor": here.run(floor),
                "turn": here.run([*agent, "hi"]),
                "-V": here.run([*agent, "-V"], asks=False),
                "--help": here.run([*agent, "--help"], asks=False),
            },
        )
        others = here.server.others / (rounds + 1)

    def row(what: str, unit: str, name: str, target: float | None) -> Row:
        ours, floor = (figure(column(found[who], name)) for who in ("turn", "floor"))
        return Row("one new turn", what, unit, ours, floor, SCRIPT, target)

    def limited(what: str, name: str, most: float) -> Row:
        return Row("one new turn", what, "ms", figure(column(found["turn"], name)), target=most)

    def alone(option: str) -> Row:
        ours, bare = (figure(column(found[who], "wall")) for who in (option, "bare"))
        return Row("one new turn", f"agent {option}, whole", "ms", ours, bare, BARE, 6)

    asked = figure([others])
    rows = [
        row("start to first request", "ms", "request", 1.25),
        row(f"start to first byte of output, the server's {1000 * PAUSE:.0f} ms included", "ms", "output", None),
        limited("a chunk, from server to stdout", "shown", 1),
        limited("last byte shown to process end", "leaving", 5),
        row("last byte received to process end", "ms", "closing", None),
        row("whole turn", "ms", "wall", None),
        row("CPU", "ms", "cpu", None),
        row("peak memory", "MB", "memory", 1.5),
        Row("one new turn", "questions to the server beside the request, per run", "", asked),
        alone("-V"),
        alone("--help"),
    ]
    return rows, column(found["bare"], "wall")


def used(command: list[str], environ: dict[str, str], cwd: str) -> Sample:
    """Run a program with a file as its stdout, for what it uses: a reader would be woken by each write, and how often
    it then takes the processor from the writer is chance."""
    start = time.perf_counter()
    with open(os.path.join(cwd, "shown"), "wb") as shown:
        process = subprocess.Popen(
            command, env=environ, cwd=cwd, stdin=subprocess.DEVNULL, stdout=shown, stderr=subprocess.DEVNULL
        )
        return ended(process, command, start)


def stream(rounds: int, chunks: int) -> list[Row]:
    """A long answer: CPU per chunk, start not counted, and whether memory stays flat."""
    agent = agent_command()
    samples: dict[int, dict[str, list[Sample]]] = {}
    for count in (2, chunks):
        with place(count) as here:
            floor = [sys.executable, here.script("turn.py", TURN), here.server.url]
            command = [*agent, *ROOMY, "hi"]
            about = (here.environ, here.home)
            samples[count] = in_turns(
                rounds, {"floor": partial(used, floor, *about), "ours": partial(used, command, *about)}
            )

    def per_chunk(who: str) -> list[float]:
        pairs = zip(column(samples[chunks][who], "cpu"), column(samples[2][who], "cpu"), strict=True)
        return [1000 * (long - short) / chunks for long, short in pairs]

    grown = [a - b for a, b in zip(*(column(samples[n]["ours"], "memory") for n in (chunks, 2)), strict=True)]
    name = f"{chunks:,} chunks"
    ours, bare = figure(per_chunk("ours")), figure(per_chunk("floor"))
    return [
        Row(
            name,
            "CPU per chunk, read, shown and kept",
            "µs",
            ours,
            bare,
            "minimal httpx loop that parses and writes",
            1.5,
        ),
        Row(name, "peak memory above that of a short answer", "MB", figure(grown), target=4),
    ]


def resume(rounds: int, sizes: tuple[int, ...]) -> list[Row]:
    """`-c ID PROMPT`, by number of messages of about 1 KB, and after many compactions."""
    rows = []
    for size in sizes:
        with place() as here:
            path = write_log(here.store, "long", size)
            command = [*agent_command(), *ROOMY, "-c", "long", "hi"]
            script = here.script("resume.py", RESUME)
            floor = [sys.executable, script, here.server.url, path]
            found = in_turns(rounds, {"floor": here.run(floor), "ours": here.run(command)})
        ours, bare = (figure(column(found[who], "request")) for who in ("ours", "floor"))
        target = 1.5 if size >= 10_000 else None
        rows.append(Row("resume", f"{size:,} messages, start to request", "ms", ours, bare, PARSER, target))
        ours, bare = (figure(column(found[who], "memory")) for who in ("ours", "floor"))
        rows.append(Row("resume", f"{size:,} messages, peak memory", "MB", ours, bare, PARSER))
    return rows


def lives(rounds: int, compactions: int) -> list[Row]:
    """The same session after one compaction and after many."""
    from agent.session import Session

    with place() as here:
        for id, count in (("young", 1), ("old", compactions)):
            with Session.create(here.store, META, id=id, disk=Unsynced()) as session:
                for _ in range(count):
                    for n in range(4):
                        session.append({k: v for k, v in entry(n).items() if k != "n"})
                    record = {"type": "compaction", "n": session.new_n(), "at": "", "strategy": "window_plus_summary"}
                    session.rewrite([record, *session.entries[-4:]])
        command = [*agent_command(), *ROOMY, "hi", "-c"]
        found = in_turns(rounds, {id: here.run([*command, id]) for id in ("young", "old")})
    ours, floor = (figure(column(found[who], "request")) for who in ("old", "young"))
    return [Row("resume", f"after {compactions:,} compactions, start to request", "ms", ours, floor, "after 1", 1.1)]
