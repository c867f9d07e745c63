"""A line that says what is waited for: it comes, counts, and leaves nothing behind."""

from __future__ import annotations

import os
import pty
import queue
import re
import signal
import threading
import tty

import pytest

from agent import patience
from agent.events import Answered, Budget, Compacted, Compacting, Streamed, ToolFinished, ToolStarted, TurnFinished
from agent.messages import Delta, Usage
from agent.patience import Patience
from agent.render import Output, Text


def test_it_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST", 0.0)
    written: queue.Queue[bytes] = queue.Queue()
    line = Patience(written.put, "waiting for m")
    assert written.get() == "\r\x1b[Kwaiting for m … 0 s".encode()
    line.end()
    line.end()
    assert list(written.queue) == [b"\r\x1b[K"]


def test_what_comes_soon_needs_none() -> None:
    written: list[bytes] = []
    Patience(written.append, "waiting for m").end()
    assert written == []


def test_signals_are_for_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the counting thread got would not wake a read, and would not wait where signals are held."""
    monkeypatch.setattr(patience, "FIRST", 0.0)
    masks: queue.Queue[set[int]] = queue.Queue()
    line = Patience(lambda data: masks.put(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "waiting for m")
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM} <= masks.get()
    line.end()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


class Terminal:
    """A screen whose stderr is a pty and whose stdout is a pipe."""

    def __init__(self, **kind: bool) -> None:
        self.master, self.slave = pty.openpty()
        tty.setraw(self.slave)
        self.answers = os.pipe()
        kind = {"quiet": False, "verbose": False, "colour": True} | kind
        self.screen = Text(Output(self.answers[1]), Output(self.slave), resume="agent", **kind)
        self.shown = b""

    def until(self, text: str, since: int = 0) -> int:
        """Read until the terminal has shown it, after its first `since` bytes; how many it has shown then."""
        while text.encode() not in self.shown[since:]:
            self.shown += os.read(self.master, 4096)
        return len(self.shown)

    def lines(self) -> list[str]:
        """What stands on the terminal at last, without colours."""
        os.close(self.slave)
        try:
            while data := os.read(self.master, 4096):
                self.shown += data
        except OSError:  # that is how a pty ends
            pass
        told = re.sub(r"\x1b\[[0-9]*m", "", self.shown.decode())
        return [line.split("\r\x1b[K")[-1] for line in told.split("\n")]


def test_a_run_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands while a model or its summary is waited for, not while a tool runs, which may ask something."""
    monkeypatch.setattr(patience, "FIRST", 0.0)
    monkeypatch.setattr(patience, "STEP", 0.01)
    terminal = Terminal()
    emit = terminal.screen.emit
    emit(Budget(120, 8192, "table", True, "m"))
    terminal.until("waiting for m … 0 s")
    emit(Streamed(Delta("reasoning", "hm")))
    terminal.until("m is thinking … 0 s")
    emit(Streamed(Delta("text", "Let me look.")))
    emit(Answered({"role": "assistant", "content": "Let me look."}, 3, None, "tool_calls", True, "m"))
    emit(ToolStarted("c1", "bash", "ls"))
    started = terminal.until("tool: bash ls")
    emit(ToolFinished("c1", "bash", True, 0.5, "exit status 0"))
    terminal.until("tool: bash done")
    assert b"waiting" not in terminal.shown[started:].partition(b"tool: bash done")[0]
    emit(Compacting("threshold", 7, 1105, 8192))
    compacting = terminal.until("waiting for a summary … 0 s")
    emit(Compacted({"strategy": "pruned", "tokens": {"before": 9, "after_estimate": 4}, "ms": 10}, 7, 7, "0001"))
    terminal.until("waiting for m … 0 s", compacting)
    terminal.screen.finish(TurnFinished("x", 1, Usage(9, 1), Usage(9, 1), "stop", 1.0, "Hi"), None, 0)
    assert terminal.lines() == [
        "window: m → 8,192 tokens (table); context about 120/8,192 tokens, 1 %, estimated",
        "tool: bash ls",
        "tool: bash done in 0.5 s",
        "compacting: near the window; 7 messages, 1,105 tokens of 8,192 ...",
        "compacted: old tool results replaced by stubs · 7 → 7 messages · 9 → about 4 tokens · 0.0 s · originals: "
        "not kept (--no-session)",
        "1 step · last input 9 tokens, 1 out · finish_reason=stop",
        "",
    ]


@pytest.mark.parametrize(
    ("kind", "lines"), [({}, 1), ({"quiet": True}, 0), ({"colour": False}, 0), ({"patient": False}, 0)]
)
def test_where_there_is_one(kind: dict[str, bool], lines: int) -> None:
    before = threading.active_count()
    terminal = Terminal(**kind)
    terminal.screen.emit(Budget(120, 8192, "table", True, "m"))
    assert threading.active_count() == before + lines
    terminal.screen.finish(None, None, 0)
    assert threading.active_count() == before
