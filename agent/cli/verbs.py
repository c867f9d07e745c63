"""`agent sessions ...`: the verbs that list, read, search, copy and remove sessions.

Each verb is: find the store, call one data function, print. Data goes to stdout, with --json as one JSON value (or one
object a line where there may be many); everything else goes to stderr. Text that was stored is shown with its control
characters visible on a terminal. Nothing here decides what a session is, and nothing here imports httpx or tiktoken.
"""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from agent.errors import SessionNotFound, UsageError
from agent.views.printing import (
    Progress,
    agreed,
    last_answer,
    note,
    out,
    out_json,
    paged,
    row_out,
    transcript,
)

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 118},
)

Id = Annotated[str, typer.Argument(metavar="ID", help="id, unique prefix, name, or last")]
Json = Annotated[bool, typer.Option("--json", help="machine-readable")]
Store = Annotated[str | None, typer.Option("--session-dir", metavar="DIR", help="where sessions are kept")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only say what would go")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="do not ask")]
Wait = Annotated[float, typer.Option("--wait", metavar="SEC", min=0, help="seconds to wait for a busy session")]


# ---- effects ---------------------------------------------------------------------------------------------------------


def store_of(given: str | None) -> str:
    """The store the settings name."""
    from agent.config import load_settings
    from agent.log.library import check_store, find_store

    settings = load_settings({"session_dir": given}, os.environ, os.getcwd())
    return check_store(find_store(given, os.environ, os.getcwd(), settings.session_dir))


def find(given: str | None, wanted: str) -> tuple[str, str]:
    """(store, id) for what was typed."""
    from agent.log.library import resolve

    store = store_of(given)
    return store, resolve(store, wanted, os.getcwd())


def read(given: str | None, wanted: str) -> Any:
    """The session, to look at; what is wrong with it goes to stderr."""
    from agent.session import Session

    session = Session.read(*find(given, wanted))
    for notice in session.notices:
        note(notice)
    return session


@app.callback()
def sessions(context: typer.Context) -> None:
    """List, read, search and repair sessions."""
    if context.invoked_subcommand is None:
        list_sessions()


@app.command("list")
def list_sessions(
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="at most this many; 0 means all")] = 0,
    everywhere: Annotated[bool, typer.Option("--all", help="also those of other directories")] = False,
    where: Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="those of this directory")] = None,
    json: Json = False,
    session_dir: Store = None,
) -> None:
    """Sessions, newest first: id, age, messages, tokens, model, first words."""
    import time

    from agent.log.library import listing, summaries

    store, progress = store_of(session_dir), Progress()
    clock, total, shown, elsewhere = time.time(), len(listing(store)), 0, 0
    for done, row in enumerate(summaries(store, None if everywhere else where or os.getcwd())):
        progress(done, total)
        if row is None:
            elsewhere += 1
            continue
        progress.clear()
        if json:
            out_json(row._asdict())
        else:
            row_out(row, clock, first=not shown)
        shown += 1
        if shown == limit:
            break
    progress.clear()
    if not shown and not json:
        where = f"in {store}" if os.path.isdir(store) else f"in {store}, which is not there"
        note("no sessions of this directory" if elsewhere else f"no sessions {where}")
    if elsewhere and not json:
        note(f"{elsewhere} of other directories: agent sessions list --all")


@app.command()
def show(
    id: Id,
    json: Json = False,
    last_answer_only: Annotated[bool, typer.Option("--last-answer", help="only the last answer's text")] = False,
    session_dir: Store = None,
) -> None:
    """The whole conversation, compactions included; paged on a terminal."""
    from agent.views.export import as_json
    from agent.views.story import story

    session = read(session_dir, id)
    if last_answer_only:
        text = last_answer(session.entries) or last_answer(session.originals())
        if json:
            out_json({"id": session.id, "answer": text})
        elif text:
            out(text + "\n")
        else:
            raise SessionNotFound(f"session {session.id} has no answer yet")
    elif json:
        for piece in as_json(session):
            out(piece)
    else:
        paged(transcript(story(session)))


@app.command()
def last(json: Json = False, session_dir: Store = None) -> None:
    """The id of the session of this directory last written to."""
    store, id = find(session_dir, "last")
    if json:
        from agent.log.logfile import log_path

        out_json({"id": id, "path": log_path(store, id)})
    else:
        out(id + "\n")


@app.command()
def search(
    words: Annotated[list[str], typer.Argument(metavar="WORDS...")], json: Json = False, session_dir: Store = None
) -> None:
    """Find words in everything that was said, archives included: id, n, and the surroundings."""
    from agent.log.search import search as hits

    query = " ".join(words)
    if not query.strip():
        raise UsageError("there is nothing to search for")
    found, progress = 0, Progress()
    for hit in hits(store_of(session_dir), query, progress):
        found += 1
        progress.clear()
        if json:
            out_json(hit._asdict())
        else:
            out(f"{hit.id}  {hit.n:>5}  {hit.role:9}  {hit.text}\n")
    progress.clear()
    if not found:
        note(f"no message holds {query!r}")
        raise typer.Exit(1)


@app.command()
def name(
    id: Id,
    new: Annotated[str, typer.Argument(metavar="NAME")],
    json: Json = False,
    wait: Wait = 0.0,
    session_dir: Store = None,
) -> None:
    """Name a session; the name can stand after -c."""
    from agent.log.library import check_name, rename

    store, found = find(session_dir, id)
    rename(store, found, check_name(new), wait=wait)
    if json:
        out_json({"id": found, "name": new})
    else:
        note(f"session {found} is now {new}")


@app.command()
def fork(
    id: Id,
    at: Annotated[int | None, typer.Option("--at", metavar="N", help="up to this entry")] = None,
    json: Json = False,
    session_dir: Store = None,
) -> None:
    """Copy a session, whole or up to entry N; prints the new id."""
    from agent.log.archive import fork as copy

    store, found = find(session_dir, id)
    new = copy(store, found, at=at)
    if json:
        out_json({"id": new, "parent": found, "at": at})
    else:
        out(new + "\n")


@app.command()
def export(
    id: Id,
    form: Annotated[str, typer.Option("--format", metavar="FORM", help="jsonl, json, md or html")] = "md",
    json: Json = False,
    session_dir: Store = None,
) -> None:
    """The session as jsonl, json, md or html, to stdout."""
    from agent.views.export import export as write
    from agent.views.export import only_archived

    session, lines = read(session_dir, id), None
    if form == "html" and not json:
        from agent.config import load_settings
        from agent.views.scales import lines_for

        settings = load_settings({}, os.environ, os.getcwd(), session.meta)
        lines = lines_for(settings.model, settings, os.environ)
    for piece in write(session, "json" if json else form, lines):
        out(piece)
    if form == "jsonl" and not json and (more := only_archived(session)):
        messages = f"{more} more message{'s stand' if more > 1 else ' stands'} only in the archive"
        note(f"{messages}; for all of them: agent sessions export {session.id} --format json")


@app.command()
def rm(
    ids: Annotated[list[str], typer.Argument(metavar="ID...")],
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    wait: Wait = 0.0,
    session_dir: Store = None,
) -> None:
    """Remove sessions with their archives and side files. Asks on a terminal."""
    from agent.log.library import remove

    found = dict.fromkeys(find(session_dir, id) for id in ids)
    names = ", ".join(id for _, id in found)
    if not dry_run and not agreed(f"Remove {names} for good?", yes):
        note("nothing was removed")
        raise typer.Exit(1)
    for store, id in found:
        if not dry_run:
            remove(store, id, wait=wait)
        if json:
            out_json({"id": id, "removed": not dry_run})
        elif dry_run:
            out(f"{id}  would be removed\n")
        else:
            note(f"removed {id}")


@app.command()
def prune(
    older_than: Annotated[str, typer.Option("--older-than", metavar="SPAN", help="30d, 12h, 2w")],
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    session_dir: Store = None,
) -> None:
    """Remove sessions not written to for a while. Asks on a terminal."""
    from agent.log.library import parse_span
    from agent.log.library import prune as walk

    store, span = store_of(session_dir), parse_span(older_than)
    due = [id for id, _ in walk(store, span, dry_run=True)]
    question = (
        f"Remove {len(due)} sessions of all directories for good ({', '.join(due[:10])}{' ...' * (len(due) > 10)})?"
    )
    if due and not dry_run and not agreed(question, yes):
        note("nothing was removed")
        raise typer.Exit(1)
    for id, what in walk(store, span, dry_run=dry_run):
        if json:
            out_json({"id": id, "outcome": what})
        else:
            out(f"{id}  {what}\n")
    if not due:
        note(f"no session is older than {older_than}")


@app.command()
def path(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="a session; without one, the store")] = None,
    json: Json = False,
    session_dir: Store = None,
) -> None:
    """Where a session's file is, or where sessions are kept."""
    from agent.log.logfile import log_path

    where = log_path(*find(session_dir, id)) if id else store_of(session_dir)
    if json:
        out_json({"path": where})
    else:
        out(where + "\n")
