"""Streaming: CPU time per chunk of a long answer, ours against the bare httpx loop, in one run.

    python bench/stream.py [--chunks 20000] [--runs 3]

One process serves the same bytes to both. What counts is the ratio; the floor does the least that shows text: httpx,
one split, one parse.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

import httpx
import orjson

from agent.client import ChatClient
from agent.messages import Request
from agent.providers import Target

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def answer(chunks: int) -> bytes:
    """A whole response of so many chunks, each in an HTTP chunk of its own."""
    piece = {"id": "c", "object": "chat.completion.chunk", "model": "m", "created": 1}
    events = [{**piece, "choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}] * chunks
    events.append({**piece, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    written = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events] + [b"data: [DONE]\n\n"]
    return HEAD + b"".join(b"%x\r\n%b\r\n" % (len(w), w) for w in written) + b"0\r\n\r\n"


def serve(listening: socket.socket, response: bytes) -> int:
    """Answer every connection in a child process; its pid."""
    child = os.fork()
    if child == 0:
        while True:
            with listening.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(response)
                while connection.recv(65536):  # a close with unread bytes would cut the answer
                    pass
    return child


def floor(url: str) -> int:
    shown, rest = 0, b""
    client = httpx.Client(verify=False, trust_env=False)
    with client, client.stream("POST", url + "/chat/completions", content=b"{}") as response:
        for piece in response.iter_raw():
            *events, rest = (rest + piece).split(b"\n\n")
            for event in events:
                if event[6:] == b"[DONE]":
                    return shown
                shown += len(orjson.loads(event[6:])["choices"][0]["delta"].get("content", ""))
    return shown


def ours(url: str) -> int:
    shown: list[str] = []
    client = ChatClient(Target("", url, "m"), environ={})
    client.complete(Request([{"role": "user", "content": "x"}]), lambda delta: shown.append(delta.text))
    client.close()
    return sum(map(len, shown))


def microseconds(run: Callable[[str], int], url: str, chunks: int) -> float:
    began = time.process_time()
    if run(url) != 5 * chunks:
        raise SystemExit(f"{run.__name__} lost text")
    return (time.process_time() - began) / chunks * 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chunks", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    listening = socket.create_server(("127.0.0.1", 0))
    child = serve(listening, answer(options.chunks))
    try:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        rounds = [[microseconds(run, url, options.chunks) for run in (floor, ours)] for _ in range(options.runs)]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    bare, whole = (min(column) for column in zip(*rounds, strict=True))
    sys.stdout.write(f"floor {bare:.1f} us, agent {whole:.1f} us a chunk: ratio {whole / bare:.2f}\n")


if __name__ == "__main__":
    main()
