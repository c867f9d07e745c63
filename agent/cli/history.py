"""`agent sessions undo` and `replay`: what was, shown again, proved, and taken back.

Like `agent.cli.verbs`: find the store, call one data function, print.
"""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from agent.cli.verbs import Id, Json, Store, Wait, find, read
from agent.views.printing import note, out, out_json, paged, transcript


def undo(
    id: Id,
    back: Annotated[bool, typer.Option("--redo", help="take back the last undo")] = False,
    files: Annotated[bool, typer.Option("--files", help="put back the files that the last turn changed")] = False,
    force: Annotated[bool, typer.Option("--force", help="with --files: also those changed since")] = False,
    json: Json = False,
    wait: Wait = 0.0,
    session_dir: Store = None,
) -> None:
    """Take back the newest compaction: the originals, plus what came after. Can itself be taken back."""
    from agent.log import archive
    from agent.session import Session

    store, found = find(session_dir, id)
    with Session.open(store, found, wait=wait) as session:
        for notice in session.notices:
            note(notice)
        if files:
            done = _restore(session, force)
            if json:
                out_json({"id": found, "files": [step._asdict() for step in done]})
            for step in done if not json else []:
                out(f"{step.action:8} {step.path}{'  (' + step.why + ')' if step.why else ''}\n")
            if not done:
                note("the last turn changed no files")
            return
        outcome = archive.redo(session) if back else archive.undo(session)
    if json:
        out_json({"id": found, **outcome})
    else:
        counts = outcome["messages"]
        word, other = ("undo reversed", "to undo again") if back else ("compaction undone", "to redo it")
        way = f"agent sessions undo {found}{'' if back else ' --redo'}"
        note(f"{word}: {counts['before']} -> {counts['after']} messages; {other}: {way}")
    for problem in outcome["problems"] if not json else []:
        note(
            f"warning: {problem}: what was restored may not be what was said; see agent sessions replay {found} --check"
        )


def _restore(session: Any, force: bool) -> list[Any]:
    """Put back the files that the tools of the last turn changed."""
    from agent.config import load_settings
    from agent.log.logfile import beside
    from agent.tools import backup

    turn: list[Any] = []
    for entry in session.originals():
        if entry["message"]["role"] == "user" and not entry.get("summary"):
            turn.clear()
        if isinstance(entry.get("tool"), dict):
            turn.append(entry["tool"])
    here = session.meta.get("cwd") or os.getcwd()
    more = load_settings({}, os.environ, os.getcwd()).add_dir
    roots = [here, *(os.path.join(here, folder) for folder in more)]
    folder = beside(session.path, "files")
    return backup.undo(backup.plan(turn, folder, roots, force), folder, roots)


def replay(
    id: Id,
    request: Annotated[int | None, typer.Option("--request", metavar="K", min=1, help="at request K")] = None,
    check: Annotated[bool, typer.Option("--check", help="recompute every digest; exit 1 on a difference")] = False,
    json: Json = False,
    session_dir: Store = None,
) -> None:
    """What the model saw at request K of the session's life, or would see now; --check proves it."""
    from agent.log import archive

    session = read(session_dir, id)
    if check:
        _check(session, request, json)
        return
    if request:
        seen = archive.at_request(session, request)
        messages = seen.messages
        if seen.differs:
            proof = f"agent sessions replay {session.id} --check"
            note(f"request {request} cannot be reproduced exactly: its digest differs from what was sent; see: {proof}")
    else:
        messages = archive.seen_now(session)
    if json:
        out_json({"messages": messages})
    else:
        paged(transcript({"type": "message", "n": i, "message": m} for i, m in enumerate(messages, 1)))


def _check(session: Any, request: int | None, json: bool) -> None:
    from agent.log import archive

    result = archive.check(session) if request is None else archive.check_request(session, request)
    try:
        if json:
            out_json({"id": session.id, "ok": not result.problems, **result._asdict()})
            return
        for problem in result.problems:
            out(problem + "\n")
        word = "differ" if result.problems else "agree"
        requests, files = "s" * (result.requests != 1), "s" * (result.files != 1)
        out(f"{result.requests} request{requests} and {result.files} archived file{files} checked: they {word}\n")
    finally:
        if result.problems:  # also where the reader has gone
            raise typer.Exit(1)
