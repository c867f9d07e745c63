"""One run: from what was asked to an exit code.

The order is the promise. Settings and the model come first, so that a wrong name or a missing key leaves no trace; then
the session, under its lock; then the turn, whose first act is to put the prompt on disk. Whatever ends the run, the
screen's `finish` is called last, and the session is closed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from agent.cli import asked, outfile
from agent.cli.asked import COMPACT, Ask, check, free_name, is_compact_command, read_prompt, read_system, with_block
from agent.cli.asking import asker
from agent.cli.equipment import Equipment, equip, system_message, unnamed
from agent.cli.opening import introduce
from agent.config import Settings, load_settings
from agent.errors import (
    AgentError,
    ConfigError,
    DeniedError,
    Exit,
    SessionBusy,
    StorageError,
    TemporaryError,
    UsageError,
)
from agent.events import Emit, Notice, TurnFinished
from agent.log import library
from agent.log.entries import pin_line
from agent.loop import Turn
from agent.messages import Message
from agent.render import Output, Text
from agent.session import Session
from agent.signals import as_error, stop_after, stopping
from agent.values import parse_seconds

if TYPE_CHECKING:
    from agent.cli.structured import Shape
    from agent.jsonlines import JsonLines


def run(ask: Ask, environ: Mapping[str, str]) -> int:
    """Do what was asked and show it; the exit code. Never raises an AgentError."""
    out, err = Output(1), Output(2)
    screen = make_screen(ask, environ, out, err)
    live = RunState()
    error: AgentError | None = None
    with stopping():
        try:
            _take(ask, environ, screen, live)
        except AgentError as problem:
            error = problem
        except KeyboardInterrupt as stop:
            error = as_error(stop, f"{screen.resume} -c {live.session.id}" if live.session and live.saved else "")
        finally:
            live.close()
    turn = live.finished or (live.turn.summary() if live.turn else None)
    if error and turn and turn.steps and live.saved:
        go_on = f'{screen.resume} -c {turn.id} "go on"'
        if isinstance(error, TemporaryError):
            error.hint = f"What had come is saved. Continue: {go_on}. {error.hint}"
        elif error.kind in ("max_steps", "cut_answers"):
            error.hint = ". ".join(filter(None, (error.hint, f"Everything is saved. Continue: {go_on}")))
    error = error or _afterthought(ask, turn, live, out)
    code = error.exit_code if error else Exit.DONE
    screen.finish(turn, error, code)
    return int(code)


class RunState:
    """What a run holds open, so that its end can close it wherever it failed."""

    session: Session | None = None
    turn: Turn | None = None
    finished: TurnFinished | None = None
    settings: Settings = Settings()
    unwritten: OSError | None = None
    """Why the file of -o could not be written."""

    @property
    def saved(self) -> bool:
        """Whether there is a session on disk."""
        return bool(self.session and self.session.path)

    def close(self) -> None:
        if self.session is not None:
            self.session.close()
        if sandbox := sys.modules.get("agent.tools.sandbox"):  # loaded by the first command
            sandbox.discard()


def make_screen(ask: Ask, environ: Mapping[str, str], out: Output, err: Output) -> Text | JsonLines:
    if ask.format != "text":
        from agent.jsonlines import JsonLines

        return JsonLines(out, err, partial=ask.include_partial_messages, once=ask.format == "json", resume="agent")
    word = ask.flags.get("color") or environ.get("AGENT_COLOR") or "auto"
    colour = wants_colour(word, environ, err.is_terminal())
    return Text(out, err, quiet=ask.quiet, verbose=ask.verbose, colour=colour, resume="agent", patient=not ask.debug)


def wants_colour(word: str, environ: Mapping[str, str], terminal: bool) -> bool:
    """`--color`, then NO_COLOR, FORCE_COLOR and TERM=dumb (https://no-color.org), then whether it is a terminal."""
    if word in ("always", "never"):
        return word == "always"
    if environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    return bool(environ.get("FORCE_COLOR") or environ.get("CLICOLOR_FORCE")) or terminal


def _take(ask: Ask, environ: Mapping[str, str], screen: Text | JsonLines, live: RunState) -> None:
    """Everything that may fail freely."""
    if ask.cd:
        _change_directory(ask.cd)
    cwd = os.getcwd()
    flags = _settle(ask, environ, cwd, screen, live)
    store = _store(ask, environ, cwd, live.settings)
    again = asked.namesake(ask, store)
    ask = ask._replace(continue_id=again) if again else ask
    id = library.resolve(store, ask.resumes, cwd) if ask.resumes is not None else None
    wait = _wait(ask)
    message = read_prompt(ask, screen.emit)
    shape = check(ask, message, id)
    screen.resume = way_on(store, cwd, ask, live.settings)
    if id:
        live.session = asked.go_on(store, id, str(ask.name)) if again else _open(ask, store, id, wait, screen.emit)
        live.settings = load_settings(flags, environ, cwd, live.session.meta)
    gear = _equipped(ask, environ, cwd, store, screen, live)
    if live.session is None:
        live.session = _begin(ask, store, cwd, live.settings, gear, screen.emit)
    else:
        live.session = _resumed(ask, store, live.session, screen.emit)
    introduce(live.session, live.settings, gear, ask, screen.emit)
    gear.attach(live.session, screen.emit)
    for text in ask.pin:
        live.session.append({"type": "pin", "text": text})
        message = with_block(message, pin_line(text))
    live.turn = gear.turn(live.session, screen.emit, shape.response_format() if shape else None)
    if is_compact_command(message):
        outcome = gear.compact(instructions=str(message["content"])[len(COMPACT) :].strip())
        raise_unless_compacted(outcome, live.session.id)
    else:
        _answer(ask, live, live.turn, message, shape)


def _settle(ask: Ask, environ: Mapping[str, str], cwd: str, screen: Text | JsonLines, live: RunState) -> dict[str, Any]:
    """The run's settings, its colour and its time limit; the flags that they were read from."""
    flags = dict(ask.flags)
    settings = live.settings = load_settings(flags, environ, cwd)
    if isinstance(screen, Text):
        screen.colour = wants_colour(settings.color, environ, screen.err_terminal)
    stop_after(settings.timeout)
    if ask.system_file:
        flags["system"] = read_system(ask.system_file)
    if ask.system_file or settings.tables:
        live.settings = load_settings(flags, environ, cwd, None, unnamed(settings, environ))
    return flags


def _store(ask: Ask, environ: Mapping[str, str], cwd: str, settings: Settings) -> str:
    """Where the sessions of this run are. Raises: UsageError, StorageError."""
    if ask.flags.get("session_dir") == "":
        raise UsageError("--session-dir is empty", "Give it a directory")
    store = library.find_store(ask.flags.get("session_dir"), environ, cwd, settings.session_dir)
    if not ask.no_session:
        library.check_store(store)
    return store


def _equipped(
    ask: Ask, environ: Mapping[str, str], cwd: str, store: str, screen: Text | JsonLines, live: RunState
) -> Equipment:
    """Model, tools and limits. Raises: ConfigError, which names the model that a session was begun with."""
    ask_user = asker(not ask.no_input and ask.format == "text", Output(2))
    try:
        return equip(
            live.settings, environ, cwd, store, screen.emit, quiet=ask.quiet, debug=_debugger(ask), ask=ask_user
        )
    except ConfigError as error:
        if live.session and live.settings.origin.get("model") == "session":
            begun = f"Session {live.session.id} was begun with {live.settings.model}"
            error.hint = f"{begun}: go on with it, or with another (-m). {error.hint}"
        raise


def _answer(ask: Ask, live: RunState, turn: Turn, message: Message, shape: Shape | None) -> None:
    """The answer, in the file of -o too, before anything else can go wrong; then room for the next turn.

    Raises: as `Turn.run`, and as `Shape.check`: such an answer is not put into the file.
    """
    live.finished = turn.run(message)
    try:
        if shape:
            shape.check(live.finished.answer, _way_to(live.finished, saved=live.saved))
        if ask.output:
            outfile.write(ask.output, live.finished.answer)
    except OSError as problem:
        live.unwritten = problem
    finally:
        live.finished = turn.compact_after()


def way_on(store: str, cwd: str, ask: Ask, settings: Settings) -> str:
    """How to name this store in the next command, wherever that is typed: one given by flag has to be given again, and
    a marked ./sessions is found only from its own directory."""
    marked = not settings.session_dir and store == os.path.join(cwd, "sessions")
    if not (marked or ask.flags.get("session_dir")):
        return "agent"
    import shlex

    return f"agent --session-dir {shlex.quote(store)}"


def raise_unless_compacted(outcome: Mapping[str, Any], id: str) -> None:
    """A compaction that was asked for and could not be had is an error; that there is nothing to compact is none.

    Raises: AgentError.
    """
    if outcome["outcome"] in ("no_summary", "failed"):
        if outcome.get("unsaved"):
            raise StorageError(str(outcome["text"]))
        hint = f"Without a model's summary: agent sessions compact {id} --strategy raw_fallback"
        raise AgentError("The session was not compacted", hint)


def _change_directory(path: str) -> None:
    try:
        os.chdir(os.path.expanduser(path))
    except OSError as problem:
        raise UsageError(f"Cannot run in {path}: {problem.strerror}", "Give -C a directory") from None


def compact_now(
    store: str,
    id: str,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    wait: float,
    quiet: bool,
    **wishes: Any,
) -> dict[str, Any]:
    """`agent sessions compact`: the same compaction as in a turn; its outcome as JSON-able values."""
    screen = Text(Output(1), Output(2), quiet=quiet, verbose=False, colour=False)
    with stopping(), Session.open(store, id, wait=wait) as session:
        cwd = os.getcwd()
        settings = load_settings(flags, environ, cwd, session.meta)
        screen.colour = wants_colour(settings.color, environ, screen.err_terminal)
        gear = equip(settings, environ, cwd, store, screen.emit, quiet=quiet, debug=None, ask=None)
        screen.path = session.path
        gear.attach(session, screen.emit)
        try:
            outcome = gear.compact(**wishes)
        finally:
            screen.awaits("")
        if not quiet:
            raise_unless_compacted(outcome, id)
        return outcome


# ---- the session ----


def _resumed(ask: Ask, store: str, session: Session, emit: Emit) -> Session:
    """The session to go on with: the one that was opened or a copy of it, under its new name where it gets one."""
    before = None if ask.fork else session.meta.get("name")
    new = ask.name is not None and ask.name != before
    with library.naming(store) if new else nullcontext():
        name = free_name(store, str(ask.name)) if new else ""
        if ask.fork:
            from agent.log.archive import fork

            session = Session.open(store, fork(store, session.id))
        if new:
            session.rename(name)
    if new and before:
        emit(Notice("info", "renamed", f"the session was called {before}; now it is {name}"))
    return session


def _open(ask: Ask, store: str, id: str, wait: float, emit: Emit) -> Session:
    """Open a session, or read it where a copy of it is gone on with; a wait for another process is announced.

    Raises: as `Session.open`.
    """
    if ask.fork:
        return Session.read(store, id)
    try:
        return Session.open(store, id)
    except SessionBusy as busy:
        if not wait:
            raise
        emit(Notice("info", "waiting", f"{busy.text}: waiting for up to {wait:g} s"))
        return Session.open(store, id, wait=wait)


def _wait(ask: Ask) -> float:
    """Seconds to wait for a busy session; 0: not at all."""
    if ask.wait is None or ask.wait == "0":
        return 0.0
    try:
        return parse_seconds(ask.wait)
    except ValueError as problem:
        raise UsageError(f"--wait is {ask.wait!r}, but it takes {problem}, or 0") from None


def _begin(ask: Ask, store: str, cwd: str, settings: Settings, gear: Equipment, emit: Emit) -> Session:
    """A new session: its meta line freezes the model and the tools, its first message the system prompt."""
    meta: dict[str, Any] = {"cwd": cwd, "model": gear.spec}
    if settings.tools is not None:
        meta["tools"] = list(settings.tools)
    if ask.name:
        meta["name"] = ask.name
    with library.naming(store) if ask.name and not ask.no_session else nullcontext():
        if ask.name:
            free_name(store, ask.name)  # once more: another run may have taken it since
        session = Session.ephemeral(meta) if ask.no_session else Session.create(store, meta)
    session.append({"type": "message", "message": system_message(settings, gear, cwd, emit)})
    return session


# ---- the end ----


def _afterthought(ask: Ask, turn: TurnFinished | None, live: RunState, out: Output) -> AgentError | None:
    """What can still go wrong once the answer is saved: the file of -o, a full stdout, a denial under --strict."""
    if turn is None or not turn.steps:
        return None
    if live.unwritten:
        return StorageError(f"Cannot write {ask.output}: {live.unwritten.strerror}", _way_to(turn, saved=live.saved))
    if out.problem is not None:
        why = f"Cannot write to standard output: {out.problem.strerror}"
        return StorageError(why, _way_to(turn, saved=live.saved))
    if turn.denials and live.settings.strict:
        denied, first = (
            f"{len(turn.denials)} tool call{'s were' if len(turn.denials) > 1 else ' was'} denied",
            turn.denials[0],
        )
        return DeniedError(f"{denied} (--strict), first {first['tool_name']}: {first['reason']}")
    return None


def _way_to(turn: TurnFinished, *, saved: bool) -> str:
    """Where the answer is, if it is anywhere."""
    return f"The answer is saved: agent sessions show {turn.id} --last-answer" if saved else ""


def _debugger(ask: Ask) -> Callable[[str], None] | None:
    if not ask.debug:
        return None
    err = Output(2)
    from agent.lines import visible

    return lambda line: err.write(f"{visible(line)}\n".encode())
