"""Start-up: how long until the first request byte reaches the server, and until the process has gone.

    python bench/startup.py [--runs 15] [--json]

Every round runs each program once, one after the other, against one server on loopback, so that a busy machine slows
them all. What is printed are medians and, what counts, their ratios in the same run. Floors: a bare interpreter; the
smallest script that imports typer, httpx and orjson and sends the same request.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple

FLOOR = """
import os, sys
import typer, httpx, orjson
body = orjson.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]})
client = httpx.Client(verify=False, trust_env=False)
with client.stream("POST", sys.argv[1] + "/chat/completions", content=body) as answer:
    for block in answer.iter_raw():
        for line in block.split(b"\\n"):
            if line.startswith(b"data: {"):
                choice = orjson.loads(line[6:])["choices"]
                os.write(1, choice[0]["delta"].get("content", "").encode())
os._exit(0)
"""

ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":1}}\n\n'
    b"data: [DONE]\n\n"
)


class Sample(NamedTuple):
    """Milliseconds from the start of the process."""

    request: float
    output: float
    end: float


class Server:
    """Answers every request at once and notes when its first byte came."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        self.came = 0.0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection:
                data = connection.recv(65536)
                self.came = time.perf_counter()
                head, _, body = data.partition(b"\r\n\r\n")
                length = next(
                    (int(h.split(b":")[1]) for h in head.lower().split(b"\r\n") if h.startswith(b"content-length")), 0
                )
                while len(body) < length:
                    body += connection.recv(65536)
                connection.sendall(ANSWER)


def once(command: list[str], environ: dict[str, str], cwd: str, server: Server | None) -> Sample:
    started = time.perf_counter()
    with subprocess.Popen(
        command, env=environ, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        output = time.perf_counter()
        process.stdout.read()
        process.wait()
    end = time.perf_counter()
    came = server.came if server else end
    return Sample(1000 * (came - started), 1000 * (output - started), 1000 * (end - started))


def measure(runs: int) -> dict[str, Sample]:
    """Medians by program, after one warm-up round."""
    server = Server()
    with tempfile.TemporaryDirectory() as home:
        environ = {"PATH": os.environ["PATH"], "HOME": home, "OPENAI_BASE_URL": server.url, "MODEL": "m"}
        script = os.path.join(home, "floor.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(FLOOR)
        agent = [os.path.join(os.path.dirname(sys.executable), "agent")]
        programs: dict[str, tuple[list[str], Server | None]] = {
            "python -c pass": ([sys.executable, "-c", "pass"], None),
            "floor: typer + httpx + orjson": ([sys.executable, script, server.url], server),
            "agent PROMPT": ([*agent, "hi"], server),
            "agent -V": ([*agent, "-V"], None),
            "agent --help": ([*agent, "--help"], None),
        }
        samples: dict[str, list[Sample]] = {name: [] for name in programs}
        for _ in range(runs + 1):
            for name, (command, asked) in programs.items():
                samples[name].append(once(command, environ, home, asked))
    return {name: Sample(*map(statistics.median, zip(*found[1:], strict=True))) for name, found in samples.items()}


def report(found: dict[str, Sample]) -> str:
    floor, bare = found["floor: typer + httpx + orjson"], found["python -c pass"]
    rows = ["| program | to request, ms | to output, ms | to end, ms | ratio |", "|---|--:|--:|--:|---|"]
    for name, sample in found.items():
        alone = name.startswith(("python", "agent -"))
        ratio = f"{sample.end / bare.end:.2f} x bare" if alone else f"{sample.request / floor.request:.2f} x floor"
        request, output = ("–", "–") if alone else (f"{sample.request:.0f}", f"{sample.output:.0f}")
        rows.append(f"| {name} | {request} | {output} | {sample.end:.0f} | {ratio} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.runs)
    if options.json:
        about = {"python": platform.python_version(), "machine": platform.machine(), "runs": options.runs}
        sys.stdout.write(json.dumps({**about, "ms": {n: s._asdict() for n, s in found.items()}}, indent=1) + "\n")
    else:
        sys.stdout.write(report(found) + "\n")


if __name__ == "__main__":
    main()
