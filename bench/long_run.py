"""One prompt and many tool steps on a real llama.cpp server with a small window: whether it ends, and what it took.

    python bench/long_run.py [--steps 60] [--kilobytes 4] [--window 8192]

The model that is built in cannot hold such a task by itself, so a forwarder before the server holds it to its steps:
to each request for a step it adds how a note is read, which the toy then imitates, and after the last step it has the
server's grammar allow only words. All else is real: tokenizer, window, refusals, usage, prompt cache,
the parser of calls, the agent's process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agent import local
from agent.session import Session
from bench import llama

COMMAND = "sh next.sh"
NEXT = """n=$(cat at 2>/dev/null || echo 0); n=$((n + 1)); echo $n > at
echo "Note $n: the code of room $n is $((n * 7919 % 9000 + 1000))."
i=0; while [ $i -lt LINES ]; do i=$((i + 1)); echo "Line $i of note $n tells of rivers, bridges and old roads in county $((n * i % 97))."; done
"""
LINE = 78
"""Bytes of a line of a note, about."""
SHOWN = 200
"""Tokens that `shown` takes at most: it stands elsewhere in the next request."""
WORDS = 'root ::= [A-Za-z ]+ "."'


def shown(times: int) -> list[dict[str, Any]]:
    """How it is done: the messages that come last in every request for a step, so that all before them is cached."""
    told: list[dict[str, Any]] = [{"role": "user", "content": f"Read the notes with `{COMMAND}`."}]
    for at in range(times):
        function = {"name": "bash", "arguments": json.dumps({"command": COMMAND})}
        call = {"id": f"shown{at}", "type": "function", "function": function}
        told.append({"role": "assistant", "content": None, "tool_calls": [call]})
        told.append({"role": "tool", "tool_call_id": call["id"], "content": f"Note {at}: short."})
    return told


class Outcome(NamedTuple):
    """`code` is the exit code, `steps` the notes that were read; of the requests, how many were `answered`, and the
    bodies of those `refused`; the `compactions` by strategy; tokens as the server reported them, `largest` of one prompt;
    `cold` counts requests that the cache did not serve although nothing was compacted since the one before; `said` on
    stderr."""

    code: int
    steps: int
    answered: int
    refused: list[str]
    compactions: dict[str, int]
    prompt_tokens: int
    cached_tokens: int
    largest: int
    cold: int
    said: str


class Forwarder(ThreadingHTTPServer):
    """Passes everything on to `behind`, with each request for a step made one that can only be answered by it."""

    daemon_threads = True

    def __init__(self, behind: str, steps: int) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.behind, self.left = behind, steps
        self.answered = 0
        self.refused: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def held(self, body: bytes) -> bytes:
        """A request as the server gets it; one for a summary is left as it is."""
        request = orjson.loads(body)
        if request.get("tool_choice") == "none":
            return body
        if self.left <= 0:
            return orjson.dumps({k: v for k, v in request.items() if k != "tools"} | {"grammar": WORDS})
        return orjson.dumps(request | {"messages": request["messages"] + shown(3), "temperature": 0})


class _Passing(BaseHTTPRequestHandler):
    server: Forwarder

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr."""

    def do_GET(self) -> None:
        self._pass(None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._pass(self.server.held(body) if "chat/completions" in self.path else body)

    def _pass(self, body: bytes | None) -> None:
        asked = urllib.request.Request(self.server.behind + self.path, body, {"Content-Type": "application/json"})
        try:
            answer = urllib.request.urlopen(asked)
        except urllib.error.HTTPError as error:
            answer = error
        told = b""
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers["Content-Type"])
        self.end_headers()
        while piece := answer.read1(1 << 16):
            told += piece
            self.wfile.write(piece)
        if body is not None and answer.status == 200:
            self.server.answered += 1
            self.server.left -= b'"finish_reason":"tool_calls"' in told
        elif body is not None:
            self.server.refused.append(told.decode())


def run(model: str, steps: int, kilobytes: float, window: int) -> Outcome:
    """One turn of the program in a directory of its own, with the file of the model that is built in."""
    server = llama.serve(model, window, llama.TEMPLATE)
    forwarder = Forwarder(server.listening_address, steps)
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        work = Path(home, "work")
        work.mkdir()
        (work / "next.sh").write_text(NEXT.replace("LINES", str(round(kilobytes * 1000 / LINE))))
        environ = {**os.environ, "HOME": home, "OPENAI_BASE_URL": forwarder.url, "MODEL": "local"}
        environ |= {"AGENT_SESSION_DIR": os.path.join(home, "store"), "NO_COLOR": "1"}
        prompt = f"Read every note with `{COMMAND}`, one after the other, and then say what they are about."
        done = subprocess.run(
            [sys.executable, "-m", "agent", prompt, "--tools", "bash", "--yolo", "--max-tokens", "64"],
            cwd=work,
            env=environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        (log,) = Path(home, "store").glob("*.jsonl")
        session = Session.read(str(log.parent), log.stem)
        read = int((work / "at").read_text())
        found = _outcome(session, forwarder, done.returncode, read, done.stderr.decode())
    forwarder.shutdown()
    forwarder.server_close()
    return found


def _outcome(session: Session, forwarder: Forwarder, code: int, steps: int, said: str) -> Outcome:
    strategies: dict[int, str] = {}
    usages: dict[int, dict[str, int]] = {}
    for _, _, entries in session.generations():
        strategies |= {e["n"]: e["strategy"] for e in entries if e["type"] == "compaction"}
        usages |= {e["n"]: e["usage"] for e in entries if e["type"] == "message" and "usage" in e}
    prompts = [usage["prompt_tokens"] for usage in usages.values()]
    return Outcome(
        code,
        steps,
        forwarder.answered,
        forwarder.refused,
        dict(Counter(strategies.values())),
        sum(prompts),
        sum(usage.get("cached_tokens") or 0 for usage in usages.values()),
        max(prompts),
        _cold(session),
        said,
    )


def _cold(session: Session) -> int:
    """The last request is not looked at: it is made without tools, so that its beginning is another."""
    cold = 0
    generations = list(session.generations())
    for place, (_, meta, entries) in enumerate(generations, 1):
        answers = [e for e in entries if e["type"] == "message" and "usage" in e]
        usages = [e["usage"] for e in answers if e["request"]["k"] > meta["counts"]["requests"]]
        usages = usages[:-1] if place == len(generations) else usages
        cold += sum((two.get("cached_tokens") or 0) < one["prompt_tokens"] - SHOWN for one, two in pairwise(usages))
    return cold


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--kilobytes", type=float, default=4)
    parser.add_argument("--window", type=int, default=8192)
    options = parser.parse_args()
    model = local.builtin_path(os.environ, lambda line: None, progress=False)
    found = run(model, options.steps, options.kilobytes, options.window)
    sys.stdout.write("\n".join(f"{name}: {value}" for name, value in found._asdict().items()) + "\n")
    return found.code


if __name__ == "__main__":
    sys.exit(main())
