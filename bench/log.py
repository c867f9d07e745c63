"""What the log costs, as ratios to the least that could be done: `python bench/log.py [--json] [--quick]`.

    load       `Session.open` of a large log against parsing its lines with orjson and nothing else; peak memory
    append     `Session.append` against a bare write and fsync of the same bytes
    rewrite    `Session.rewrite` against a bare write, fsync, rename and directory fsync of the same bytes
    life       opening after 1 and after 1,000 compactions
    list       100,000 sessions: all rows, and the newest 20
    kill       200 processes killed with -9 while they append: entries that were told and are not there

Each figure is a median; the two sides of a ratio take turns, so that what else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from agent.log import library
from agent.log.disk import Disk
from agent.session import Session

META = {"cwd": "/work", "model": "m"}


class Unsynced(Disk):
    """For making test data fast."""

    def fsync(self, fd: int) -> None:
        pass

    def fsync_dir(self, path: str) -> None:
        pass


def entry(n: int, size: int = 900) -> dict[str, object]:
    role = "user" if n % 2 else "assistant"
    words = f"message {n}: " + "lorem ipsum dolor sit amet " * (size // 27)
    return {"type": "message", "n": n, "at": "2026-01-01T00:00:00.000Z", "message": {"role": role, "content": words}}


def write_log(store: str, id: str, messages: int, size: int = 900) -> str:
    """A session file made directly."""
    os.makedirs(store, exist_ok=True)
    path = os.path.join(store, f"{id}.jsonl")
    meta = {"type": "meta", "version": 1, "id": id, "counts": {"n": 0, "requests": 0, "generation": 0}, **META}
    with open(path, "wb") as file:
        file.write(orjson.dumps(meta) + b"\n")
        for n in range(1, messages + 1):
            file.write(orjson.dumps(entry(n, size)) + b"\n")
    return path


def milliseconds(action: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    kept = action()
    taken = (time.perf_counter() - start) * 1000
    del kept
    return taken


def side_by_side(rounds: int, *actions: Callable[[], object]) -> list[float]:
    """The median milliseconds of each action, taken in turns."""
    times = [[milliseconds(action) for action in actions] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def parse_lines(path: str) -> list[object]:
    """The floor of loading: every line through orjson."""
    with open(path, "rb") as file:
        return [orjson.loads(line) for line in file]


def open_and_close(store: str, id: str) -> Session:
    session = Session.open(store, id)
    session.close()
    return session


def peak_memory(code: str, *args: str) -> float:
    """Megabytes of resident memory that a process running `code` needs at most, less what an idle one needs."""
    prefix = "import sys, itertools, orjson; from agent.log import library; from agent.session import Session; "
    peak = "print(next(l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')))"

    def run(body: str) -> float:
        out = subprocess.run([sys.executable, "-c", prefix + body + peak, *args], capture_output=True, check=True)
        return int(out.stdout) / 1024

    return run(code) - run("")


def bench_load(root: str, megabytes: int) -> dict[str, float]:
    path = write_log(root, "large", megabytes * 1000)
    size = os.path.getsize(path) / 1e6
    floor, ours, read = side_by_side(
        5, lambda: parse_lines(path), lambda: open_and_close(root, "large"), lambda: Path(path).read_bytes()
    )
    parsed = "e = [orjson.loads(l) for l in open(sys.argv[1], 'rb')]; "
    opened = "s = Session.open(sys.argv[1], 'large'); "
    return {
        "megabytes": round(size, 1),
        "floor ms": floor,
        "ours ms": ours,
        "read ms": read,
        "ratio": ours / floor,
        "memory of the floor / file": peak_memory(parsed, path) / size,
        "memory / file": peak_memory(opened, root) / size,
    }


def bench_append(root: str, rounds: int) -> dict[str, float]:
    session = Session.create(root, META)
    session.append(entry(1))
    line = orjson.dumps(entry(2)) + b"\n"
    bare = os.open(os.path.join(root, "bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(bare, line)
    os.fsync(bare)
    count = itertools.count(2)

    def floor() -> None:
        os.write(bare, line)
        os.fsync(bare)

    floor_ms, ours_ms = side_by_side(rounds, floor, lambda: session.append(entry(next(count))))
    session.close()
    os.close(bare)
    return {"floor ms": floor_ms, "ours ms": ours_ms, "ratio": ours_ms / floor_ms}


def bench_rewrite(root: str, messages: int, rounds: int) -> dict[str, float]:
    id = f"rewrite{messages}"
    path = write_log(root, id, messages)
    session = Session.open(root, id)
    data = Path(path).read_bytes()
    target = os.path.join(root, "bare-rewrite")

    def floor() -> None:
        fd = os.open(target + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(fd, data)
        os.fsync(fd)
        os.close(fd)
        os.replace(target + ".tmp", target)
        folder = os.open(root, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    floor_ms, ours_ms = side_by_side(rounds, floor, lambda: session.rewrite(session.entries))
    session.close()
    return {"floor ms": floor_ms, "ours ms": ours_ms, "ratio": ours_ms / floor_ms}


def bench_life(root: str, compactions: int, rounds: int) -> dict[str, float]:
    for id, count in (("young", 1), ("old", compactions)):
        with Session.create(root, META, id=id, disk=Unsynced()) as session:
            for _ in range(count):
                for _ in range(4):
                    session.append({k: v for k, v in entry(1).items() if k != "n"})
                record = {"type": "compaction", "n": session.new_n(), "at": "", "strategy": "window_plus_summary"}
                session.rewrite([record, *session.entries[-4:]])
    young, old = side_by_side(rounds, lambda: open_and_close(root, "young"), lambda: open_and_close(root, "old"))
    with Session.open(root, "young") as a, Session.open(root, "old") as b:
        first, second = side_by_side(rounds, lambda: a.rewrite(a.entries), lambda: b.rewrite(b.entries))
    return {
        "open after 1 ms": young,
        f"open after {compactions} ms": old,
        "ratio": old / young,
        "rewrite after 1 ms": first,
        f"rewrite after {compactions} ms": second,
    }


def bare_walk(store: str) -> int:
    """The floor of a list: stat every file, sort, read its first kilobytes."""
    with os.scandir(store) as each:
        found = sorted(((item.stat().st_mtime_ns, item.path) for item in each), reverse=True)
    read = 0
    for _, path in found:
        fd = os.open(path, os.O_RDONLY)
        read += len(os.pread(fd, library.PEEK, 0))
        os.close(fd)
    return read


def bench_list(root: str, sessions: int) -> dict[str, float]:
    store = os.path.join(root, "many")
    for number in range(sessions):
        write_log(store, f"20260101-000000-{number:08x}", 2, 200)

    def newest() -> list[object]:
        return list(itertools.islice(library.summaries(store, None), 20))

    every, twenty = side_by_side(1, lambda: sum(1 for _ in library.summaries(store, None)), newest)
    floor = milliseconds(lambda: bare_walk(store))
    walked = "sum(1 for _ in library.summaries(sys.argv[1], None)); "
    return {
        "sessions": sessions,
        "floor ms": floor,
        "all ms": every,
        "ratio": every / floor,
        "us per session": every * 1000 / sessions,
        "newest 20 ms": twenty,
        "memory MB": peak_memory(walked, store),
    }


KILLED = """
import sys
from agent.session import Session
with Session.open(sys.argv[1], "victim") as session:
    while True:
        call = {"id": "x", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        for message in ({"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                        {"role": "tool", "tool_call_id": "x", "content": "y" * 3000}):
            print(session.append({"type": "message", "message": message})["n"], flush=True)
        if session.entries[-1]["n"] % 9 == 0:
            session.rewrite(session.entries[-3:])
            print("rewritten", flush=True)
"""


def bench_kill(root: str, runs: int) -> dict[str, float]:
    """Kill a process at a random moment of appending and rewriting; whatever it said was safe must be there."""
    chance, lost, told, repaired = random.Random(1), 0, 0, 0
    Session.create(root, META, id="victim").close()
    for _ in range(runs):
        process = subprocess.Popen([sys.executable, "-c", KILLED, root], stdout=subprocess.PIPE)
        assert process.stdout is not None
        head = process.stdout.readline()
        time.sleep(chance.random() * 0.02)
        process.kill()
        said = [int(line) for line in (head + process.communicate()[0]).split() if line.isdigit()]
        with Session.open(root, "victim") as session:
            repaired += bool(session.notices)
            kept = {e["n"] for e in session.originals()}
        told += len(said)
        lost += sum(n not in kept for n in said)
    return {"runs": runs, "entries told": told, "torn tails repaired": repaired, "lost": lost}


def table(results: dict[str, dict[str, float]]) -> str:
    rows = ["| what | figure | value |", "|---|---|--:|"]
    for name, figures in results.items():
        rows += [f"| {name} | {key} | {value:,.2f} |".replace(".00 |", " |") for key, value in figures.items()]
    return "\n".join(rows)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    options.add_argument("--json", action="store_true", help="JSON instead of a table")
    options.add_argument("--quick", action="store_true", help="a tenth of the size")
    chosen = options.parse_args()
    scale = 10 if chosen.quick else 1
    root = tempfile.mkdtemp(prefix="bench-log-")
    try:
        results = {
            "load": bench_load(root, 100 // scale),
            "append": bench_append(root, 1000 // scale),
            "rewrite of 10 messages": bench_rewrite(root, 10, 200 // scale),
            "rewrite of 1,000 messages": bench_rewrite(root, 1000, 100 // scale),
            "life": bench_life(root, 1000 // scale, 100 // scale),
            "list": bench_list(root, 100_000 // scale),
            "kill": bench_kill(root, 200 // scale),
        }
    finally:
        shutil.rmtree(root)
    sys.stdout.write((json.dumps(results, indent=1) if chosen.json else table(results)) + "\n")


if __name__ == "__main__":
    main()
