"""What a turn takes of the machine: it loads nothing that it does not use, and a slow terminal does not make it grow.
(`python -m bench` measures the time.)"""

from __future__ import annotations

import os
import pty
import select
import socket
import subprocess
import sys
import threading

from server import ScriptedServer, text

UNUSED = """
typer rich pydantic tiktoken sqlite3 asyncio subprocess ctypes tomllib
agent.cli.dispatch agent.cli.commands agent.cli.verbs agent.compaction agent.anchors agent.compaction.summary agent.compaction.record agent.recall
agent.log.archive agent.views.export agent.jsonlines agent.cli.structured agent.wire.faults agent.wire.overflow agent.wire.retry agent.wire.adapt
agent.tools.sandbox agent.tools.process agent.wire.doctor
""".split()


def test_a_turn_loads_only_what_it_uses() -> None:
    """In a fresh process, with a whole turn behind it: no other command, no compaction, no tool's machinery,
    and no question to the server beyond one."""
    code = (
        "import sys; from agent.cli import main; code = main(['-q', 'hi']); "
        f"sys.stderr.write(str([name for name in {UNUSED!r} if name in sys.modules])); sys.exit(code)"
    )
    with ScriptedServer([text("Hello", usage=(500, 2, 0))]) as server:
        environ = {**os.environ, "OPENAI_BASE_URL": server.url, "MODEL": "m"}
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, stdin=subprocess.DEVNULL)
        asked = len(server.asked)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"Hello\n", b"[]")
    assert asked <= 1


WORDS = 512 * "slow and steady "
"""Of one chunk: 8 KB, without a line end."""
CHUNKS = 3000


class Firehose:
    """A server that sends its answer as fast as it is taken, and notes how much had been taken when it first had to
    wait: `throttled` is set then."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/v1"
        self.throttled = threading.Event()
        self.taken = 0
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        asked = b""
        while not asked.startswith(b"POST"):
            connection, _ = self.listener.accept()
            asked = connection.recv(1 << 16)
            if not asked.startswith(b"POST"):
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                connection.close()
        while not asked.rstrip().endswith(b"}"):
            asked += connection.recv(1 << 16)
        event = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % WORDS.encode()
        last = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for piece in [*[event] * CHUNKS, last]:
            left = piece
            while left:
                if not select.select([], [connection], [], 0.3)[1]:
                    self.throttled.set()
                sent = connection.send(left) if select.select([], [connection], [])[1] else 0
                left = left[sent:]
                self.taken += sent if not self.throttled.is_set() else 0
        self.throttled.set()
        connection.close()
        self.listener.close()


def shown_on_a_terminal(*, patient: bool) -> tuple[int, int, int]:
    """One long answer on a real terminal, read at once or, `patient`, only when the server had to wait: characters
    shown, bytes the server was rid of before it had to wait, peak memory of the process in KB."""
    server = Firehose()
    master, slave = pty.openpty()
    environ = {**os.environ, "OPENAI_BASE_URL": server.url, "MODEL": "m", "CONTEXT_WINDOW": "90000000"}
    process = subprocess.Popen(
        [sys.executable, "-m", "agent", "-q", "hi"],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=subprocess.DEVNULL,
    )
    os.close(slave)
    if patient:
        server.throttled.wait()
    shown = 0
    try:
        while piece := os.read(master, 1 << 16):
            shown += len(piece)
    except OSError:  # the other end of a terminal has gone
        pass
    os.close(master)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    server.thread.join()
    assert process.returncode == 0
    return shown, server.taken, used.ru_maxrss


def test_a_slow_terminal_slows_the_server_and_does_not_grow_memory(home: object) -> None:
    whole = len(WORDS) * CHUNKS
    shown, _, memory = shown_on_a_terminal(patient=False)
    slow_shown, taken, slow_memory = shown_on_a_terminal(patient=True)
    assert shown == slow_shown == whole + 2  # and the line end that a terminal is given
    assert taken < whole / 2
    assert slow_memory < memory + whole / 2048  # KB: half of the answer
