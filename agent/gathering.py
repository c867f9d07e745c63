"""`agent sessions import` and `agent sessions stats`: what comes in from elsewhere, and what it all came to.

Like `agent.verbs`: find the store, call one data function, print. One file that cannot be read is exit 4; among several
it is passed over with a notice, and exit 4 only says that none of them gave a session.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.errors import SessionError, UsageError
from agent.printing import note, out, out_json
from agent.verbs import Json, Store, store_of

if TYPE_CHECKING:
    from agent.imports import Outcome

SHOWN_FROM = 4 << 20
"""Bytes of a file whose import shows progress."""


def outcome_line(outcome: Outcome, window: int | None, dry_run: bool) -> str:
    """One line for one conversation: its new id, whence, how long, and how full it makes the window."""
    share = f", {100 * outcome.tokens // window} % of {window:,}" if window else ""
    id = "would import" if dry_run else outcome.id
    size = f"{outcome.messages:,} message{'s' * (outcome.messages != 1)}, about {outcome.tokens:,} tokens{share}"
    return f"{id}  {outcome.tool}  {size}  {outcome.title or os.path.basename(outcome.path)}"


# ---- effects ---------------------------------------------------------------------------------------------------------


def import_sessions(
    files: Annotated[list[str], typer.Argument(metavar="FILE...")],
    tool: Annotated[
        str, typer.Option("--from", metavar="TOOL", help="auto, codex, claude, pi, llm, aider, gemini or copilot")
    ] = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would come in")] = False,
    force: Annotated[bool, typer.Option("--force", help="also what was imported before or lacks its start")] = False,
    json: Json = False,
    session_dir: Store = None,
) -> None:
    """Sessions of other tools: what they would send on resume becomes a session here."""
    from agent.config import load_settings
    from agent.importers.sniff import READERS
    from agent.imports import Importer, counted

    if tool != "auto" and tool not in READERS:
        raise UsageError(f"there is no tool {tool!r}", f"Use one of: auto, {', '.join(READERS)}")
    window = load_settings({}, os.environ, os.getcwd()).context_window
    importer = Importer(store_of(session_dir), tool=tool, dry_run=dry_run, force=force)
    taken, refused = 0, ""
    for path in files:
        for outcome in importer.take(path, meter(path)):
            if json:
                out_json(outcome.as_json(dry_run))
            if outcome.refused:
                where = f"{path}, {outcome.source_id}" if outcome.tool == "llm" and outcome.source_id else path
                refused = f"{where}: {outcome.refused}. {outcome.hint}"
                if len(files) > 1 or taken or json:
                    note(f"not imported: {refused}")
                continue
            taken += 1
            if not json:
                out(outcome_line(outcome, window, dry_run) + "\n")
                left_out = [f"left out: {counted(outcome.dropped)}"] if outcome.dropped else []
                for notice in (*outcome.notices, *left_out):
                    note(f"{outcome.title or os.path.basename(path)}: {notice}")
    if not taken:
        raise SessionError(f"nothing was imported: {refused}" if len(files) == 1 else "nothing was imported")


def meter(path: str) -> Any:
    """Shows how far a long file is, on a terminal: a function of (bytes done, bytes in all)."""
    shown = -1

    def show(done: int, of: int) -> None:
        nonlocal shown
        percent = 100 * done // of if of else 100
        if of < SHOWN_FROM or percent == shown or not sys.stderr.isatty():
            return
        shown = percent
        end = "\r\x1b[K" if done >= of else ""
        sys.stderr.write(f"\r{os.path.basename(path)[:40]}: {percent} %{end}")
        sys.stderr.flush()

    return show
