"""`agent doctor`: what is configured and whether it works; and what is wrong with one session.

The questions to a server are `agent.wire.doctor`'s, the repair of a session is `agent.log.mend`'s. Here they are put
together with what only the whole program knows: its version, its settings, its store, its sandbox, its built-in model.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping

from agent.cli.options import version_line
from agent.config import Settings, config_path, load_settings
from agent.errors import AgentError, SessionCorrupt
from agent.wire.doctor import Check, first_on_path
from agent.wire.providers import Target


def examine(environ: Mapping[str, str], model: str | None, *, offline: bool) -> Iterator[Check]:
    """Check after check, as they are found; later ones may take seconds. Raises nothing but KeyboardInterrupt."""
    yield Check(
        "version", "ok", f"{version_line()}, Python {platform.python_version()}, {platform.platform(terse=True)}"
    )
    yield first_on_path(environ)
    try:
        settings = load_settings({"model": model}, environ, os.getcwd())
    except AgentError as error:
        yield Check("settings", "failed", error.text, error.hint)
        return
    yield from _settings(settings, environ)
    yield _store(settings, environ)
    yield _sandbox()
    yield from _server(settings, environ, offline)


def _settings(settings: Settings, environ: Mapping[str, str]) -> Iterator[Check]:
    path = config_path(environ)
    there = path if os.path.exists(path) else f"{path} (not there: defaults hold)"
    changed = [f"{name} from {origin}" for name, origin in settings.origin.items() if origin != "default"]
    yield Check("settings", "ok", f"{there}; {', '.join(changed) or 'nothing else set'}")


def _store(settings: Settings, environ: Mapping[str, str]) -> Check:
    from agent.log.library import check_store, find_store, listing

    try:
        store = check_store(find_store(None, environ, os.getcwd(), settings.session_dir))
        count = len(listing(store))
    except AgentError as error:
        return Check("sessions", "failed", error.text, error.hint)
    parent = store
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    if not os.access(parent, os.W_OK | os.X_OK):
        return Check("sessions", "failed", f"{store} cannot be written", "Name another place: --session-dir DIR")
    return Check("sessions", "ok", f"{count} in {store}")


def _sandbox() -> Check:
    from agent.tools import sandbox

    by = sandbox.mechanism("workspace-write")
    if by == "none":
        return Check(
            "sandbox",
            "warning",
            "nothing confines tool processes here: bash asks first",
            "Install bubblewrap and let it make namespaces",
        )
    return Check("sandbox", "ok", f"tool processes are confined by {by}")


def _server(settings: Settings, environ: Mapping[str, str], offline: bool) -> Iterator[Check]:
    from agent.cli.equipment import find_target
    from agent.local import THREE_WAYS, installed
    from agent.wire import doctor
    from agent.wire.memory import Memory, default_path

    try:
        target = find_target(settings.model, settings, environ)
    except AgentError as error:
        yield Check("model", "failed", error.text, error.hint)
        return
    if isinstance(target, str):
        if not installed():
            yield Check(
                "model", "failed", "no key, no server, and no built-in model", THREE_WAYS.format(python=sys.executable)
            )
        else:
            yield Check("model", "ok", f"{target}, served here by llama.cpp: a toy, unless you named your own file")
        return
    if offline:
        yield doctor.configured(target)
        return
    if dead := _dead(target, settings.with_trust(environ)):
        yield from (doctor.configured(target), dead)
        return
    memory, stated = Memory(default_path(environ)), settings.stated_window
    yield from doctor.examine(target, settings.with_trust(environ), memory=memory, stated=stated)


def _dead(target: Target, environ: Mapping[str, str]) -> Check | None:
    """The one check of a server that nothing connects to; None for any other."""
    from agent.wire.probes import ASK_SECONDS
    from agent.wire.transport import Transport

    transport = Transport(target, environ)
    try:
        transport.ask("GET", f"{target.base_url}/models", ASK_SECONDS)
    except AgentError as error:
        if error.kind == "connection":
            advice = "Start it, or correct its address (OPENAI_BASE_URL, or base_url in config.toml)"
            said = error.text.removeprefix("The connection failed: ")
            hint = advice if "agent doctor" in error.hint else error.hint
            return Check("answer", "failed", f"the server does not answer: {said}", hint)
    finally:
        transport.close()
    return None


def examine_session(store: str, id: str, *, dry_run: bool) -> Iterator[Check]:
    """What is wrong with one session, and what was done about it.

    Raises: SessionNotFound, SessionBusy, StorageError.
    """
    from agent.log import mend
    from agent.session import Session

    found = mend.examine(store, id)
    for finding in found:
        saved = f"; {finding.rescued} records can be saved" if finding.rescued else ""
        yield Check(f"line {finding.line}", "warning", f"{finding.fault}{saved}")
    if not found:
        try:
            with Session.read(store, id) if dry_run else Session.open(store, id) as session:
                yield Check(id, "ok", "; ".join(session.notices) or "every line is whole")
        except SessionCorrupt as error:
            yield Check(id, "failed", error.text, error.hint)
            return
    elif dry_run:
        yield Check(id, "failed", f"bad lines: {len(found)}", f"To repair it: agent doctor {id}")
    else:
        done = mend.repair(store, id)
        kept = f"; bad lines are kept in {done.quarantine}" if done.quarantine else ""
        yield Check(id, "ok", f"repaired; the damaged file is kept as {done.archive}{kept}")
    yield from _archives(store, id)


def _archives(store: str, id: str) -> Iterator[Check]:
    """Whether every archived file of a session is there and as it was archived."""
    from agent.log.archive import check_chain
    from agent.log.logfile import beside
    from agent.session import Session

    session = Session.read(store, id)
    files, problems = check_chain(session)
    folder = beside(session.path, "archive")
    for problem in problems:
        yield Check("archive", "failed", problem.removeprefix("archive "), f"Put the file back from a backup: {folder}")
    if files and not problems:
        yield Check("archive", "ok", f"{len(files)} of {len(files)} files are as they were archived")
