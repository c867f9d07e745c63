"""What a run looks like to people. (`agent.jsonlines` is what it looks like to programs.)

stdout carries the answer and nothing else; everything for people goes to stderr. A renderer never decides anything and
never touches a session: if stdout breaks, the run goes on and saves. Control characters never reach a terminal raw, whoever
wrote them; a pipe or a file gets the answer as it was written.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

from agent.errors import AgentError
from agent.events import (
    Answered,
    Budget,
    Compacted,
    Compacting,
    Event,
    NotCompacted,
    Notice,
    SessionOpened,
    Streamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    Waiting,
)
from agent.lines import (
    archive_path,
    budget_line,
    compacted_line,
    compacting_line,
    excerpt,
    last_line,
    not_compacted_line,
    one_line,
    tool_line,
    visible,
    waiting_line,
    within,
)

if TYPE_CHECKING:
    from agent.patience import Patience

_PLAIN, _YELLOW, _RED, _DIM = "", "33", "31", "2"


# ---- the streams ----


class Output:
    """A file descriptor that is written at once and never raises.

    `closed` is True once the reader has gone (a pipe into `head`); `problem` holds any other error, such as a full
    disk: the run finishes saving and then exits 1.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.closed = False
        self.problem: OSError | None = None

    def write(self, data: bytes) -> None:
        while data and not self.closed and self.problem is None:
            try:
                data = data[os.write(self.fd, data) :]
            except BlockingIOError:
                self._wait()
            except BrokenPipeError:
                self.closed = True
            except OSError as problem:
                self.problem = problem

    def _wait(self) -> None:
        import select

        select.select([], [self.fd], [])

    def columns(self) -> int:
        """How wide the terminal is, 80 where nobody says."""
        try:
            return os.get_terminal_size(self.fd).columns or 80
        except OSError:
            return 80

    def is_terminal(self) -> bool:
        try:
            return os.isatty(self.fd)
        except OSError:
            return False


NEVER_QUIET = ("silent_stdin", "cut", "filtered", "empty_answer", "silent_truncation", "context_full", "prompt_cut")
"""Notices of what was left out of the question or of the answer: that is never a detail."""


class Text:
    """The answer on stdout as it streams; on stderr one line per thing that happened.

    `quiet` leaves errors, and what makes an answer less than was asked for (`NEVER_QUIET`); `verbose` adds what tools were
    asked and gave; `colour` colours stderr; `patient`: on a terminal a line tells how long a model has been waited for.
    """

    def __init__(
        self,
        out: Output,
        err: Output,
        *,
        quiet: bool,
        verbose: bool,
        colour: bool,
        resume: str = "agent",
        patient: bool = True,
    ) -> None:
        self.out, self.err = out, err
        self.quiet, self.verbose, self.colour = quiet, verbose, colour
        self.resume, self.patient = resume, patient
        self.to_terminal = out.is_terminal()
        self.err_terminal = err.is_terminal()
        self.mid_line = False
        self.waiting = False
        """The line that stands is to be overwritten: it says when the next try is."""
        self.path = self.model = self.awaited = ""
        self._patience: Patience | None = None

    def emit(self, event: Event) -> None:
        if type(event) is Streamed:  # said for every fragment
            kind, text = event.delta
            if kind == "text":
                self._answer(text)
            elif self._patience is not None:
                self._patience.what = within(f"{self.model} is thinking", self.err.columns() - 12)
            return
        handler = self._HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def finish(self, turn: TurnFinished | None, error: AgentError | None, code: int) -> None:
        """The last lines: the way on, or what went wrong."""
        self.awaits("")
        self._end_answer()
        if turn is not None and turn.steps and error is None:
            way_on = f" · continue: {self.resume} -c {turn.id}" if self.path else ""
            self.line(f"{last_line(turn)}{way_on}", _DIM)
        if error is not None:
            self.fail(error)

    def fail(self, error: AgentError) -> None:
        """One error line; shown with -q too."""
        self._end_answer()
        self._raw(f"agent: {error}", _RED)

    def line(self, text: str, colour: str = _PLAIN) -> None:
        if not self.quiet:
            self._end_answer()
            self._raw(text, colour)

    def _raw(self, text: str, colour: str) -> None:
        self._clear()
        text = visible(text)
        painted = f"\x1b[{colour}m{text}\x1b[0m" if self.colour and colour else text
        self.err.write(f"{painted}\n".encode())
        self.awaits(self.awaited)

    def awaits(self, what: str, after: float = 0.0) -> None:
        """What is waited for from now on, "" for nothing: said on a terminal when nothing else was shown for a while, `after`
        seconds more than usual."""
        if not after:
            self._clear()
        self.awaited = what
        if what and self.patient and self.colour and self.err_terminal and not self.quiet:
            from agent.patience import Patience

            self._patience = Patience(self.err.write, within(what, self.err.columns() - 12), after)

    def _clear(self) -> None:
        """Take away a line that does not stay."""
        if self._patience is not None:
            self._patience.end()
            self._patience = None
        if self.waiting:
            self.err.write(b"\r\x1b[K")
            self.waiting = False

    def _answer(self, text: str) -> None:
        if text:
            if self.awaited or self.waiting:
                self.awaits("")
            self.out.write((visible(text) if self.to_terminal else text).encode("utf-8", "replace"))
            self.mid_line = text[-1] != "\n"

    def _end_answer(self) -> None:
        if self.mid_line:
            self.out.write(b"\n")
            self.mid_line = False

    def _opened(self, event: SessionOpened) -> None:
        self.path = event.path
        count = f"{event.messages} message{'s' * (event.messages != 1)}"
        origin = f"fork of {event.parent}" if event.forked else "resumed"
        told = f"{event.id} ({origin}, {count})" if event.resumed else f"{event.id} (new)"
        self.line(f"session: {told if event.path else 'not kept'}", _DIM)

    def _budget(self, event: Budget) -> None:
        self.line(budget_line(event), _DIM)
        self.model = event.model
        if event.estimated:
            self._await_model()

    def _answered(self, event: Answered) -> None:
        self.awaits("")
        self._end_answer()

    def _tool_started(self, event: ToolStarted) -> None:
        self.awaits("")
        self.line(f"tool: {event.name} {one_line(event.summary)}")

    def _tool_finished(self, event: ToolFinished) -> None:
        told = tool_line(event)
        if event.denied and self.quiet:
            self._raw(f"agent: {told.removeprefix('tool: ')}", _YELLOW)
        self.line(told, _PLAIN if event.ok else _YELLOW)
        if self.verbose:
            for line in excerpt(event.text):
                self.line(f"  {line}", _DIM)
        self._await_model()

    def _await_model(self) -> None:
        self.awaits(f"waiting for {self.model}" if self.model else "")

    def _compacting(self, event: Compacting) -> None:
        self.line(compacting_line(event), _YELLOW)
        self.awaits("waiting for a summary")

    def _compacted(self, event: Compacted) -> None:
        archive = archive_path(self.path, event.archive) if self.path else "not kept (--no-session)"
        self.line(compacted_line(event._replace(archive=archive)), _YELLOW)
        self._await_model()

    def _not_compacted(self, event: NotCompacted) -> None:
        self.line(not_compacted_line(event), _YELLOW)
        self._await_model()

    def _waiting(self, event: Waiting) -> None:
        text = waiting_line(event)
        if self.colour and self.err_terminal and not self.quiet:
            self._clear()
            self._end_answer()
            self.err.write(f"\r\x1b[K{within(text, self.err.columns())}".encode())
            self.waiting = True
            self.awaits(f"waiting for {self.model}", event.seconds)
        else:
            self.line(text, _YELLOW)

    def _notice(self, event: Notice) -> None:
        if event.code in NEVER_QUIET and self.quiet:
            self._raw(f"agent: {event.text}", _YELLOW)
        self.line(f"{event.level}: {event.text}", _YELLOW if event.level == "warning" else _DIM)

    _HANDLERS: ClassVar[dict[type, Any]] = {
        SessionOpened: _opened,
        Budget: _budget,
        Answered: _answered,
        ToolStarted: _tool_started,
        ToolFinished: _tool_finished,
        Compacting: _compacting,
        Compacted: _compacted,
        NotCompacted: _not_compacted,
        Waiting: _waiting,
        Notice: _notice,
    }
