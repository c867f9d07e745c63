"""`agent sessions import` and `agent sessions stats`: what comes in from elsewhere, and what it all came to.

Like `agent.cli.verbs`: find the store, call one data function, print. One file that cannot be read is exit 4; among
several it is passed over with a notice, and exit 4 only says that none of them gave a session.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli.verbs import Json, Store, read, store_of
from agent.errors import SessionError, UsageError
from agent.views.printing import Progress, drawn, note, out, out_json

if TYPE_CHECKING:
    from agent.importers import Outcome
    from agent.session import Session
    from agent.views.chart import Lines
    from agent.views.stats import Life, Totals

SHOWN_FROM = 4 << 20
"""Bytes of a file whose import shows progress."""

TITLE = 60
"""Columns of a title in a list."""


def outcome_line(outcome: Outcome, window: int | None, dry_run: bool) -> str:
    """One line for one conversation: its new id, whence, how long, and how full it makes the window."""
    share = f", {100 * outcome.tokens // window} % of {window:,}" if window else ""
    id = "would import" if dry_run else outcome.id
    size = f"{outcome.messages:,} message{'s' * (outcome.messages != 1)}, about {outcome.tokens:,} tokens{share}"
    return f"{id}  {outcome.tool}  {size}  {label(outcome)}"


def label(outcome: Outcome) -> str:
    """What people know a conversation by: its title, else its file; on one line."""
    from agent.views.chart import fit

    return fit(" ".join((outcome.title or os.path.basename(outcome.path)).split()), TITLE)


def money(cost: float | None) -> str:
    return "" if cost is None else f" · ${cost:.4f}" if cost < 1 else f" · ${cost:,.2f}"


def counts(totals: Totals) -> str:
    """Tokens and cost of some requests in words."""
    share = f" ({100 * totals.cached // totals.prompt} % cached)" if totals.cached else ""
    requests = f"{totals.requests:,} request{'s' * (totals.requests != 1)}"
    return f"{requests} · {totals.prompt:,} tokens in{share} · {totals.completion:,} out{money(totals.cost)}"


def life_json(session: Session, figures: Life, lines: Lines) -> dict[str, Any]:
    """What the picture shows, for machines."""
    steps = [
        {
            "step": number, "n": s.n, "at": s.at, "model": s.model, "prompt_tokens": s.prompt,
            "completion_tokens": s.completion, "cached_tokens": s.cached, "reported": s.reported, "cost_usd": s.cost,
        }
        for number, s in enumerate(figures.steps, 1)
    ]  # fmt: skip
    folds = [
        {
            "n": f.n, "at": f.at, "after_step": f.after, "kind": f.kind, "tokens_before": f.before,
            "tokens_after": f.left, "reason": f.reason, "strategy": f.strategy, "archive": f.archive,
        }
        for f in figures.folds
    ]  # fmt: skip
    about = {"id": session.id, "window": lines.window, "window_source": lines.source, "trigger": lines.trigger}
    return about | {"steps": steps, "compactions": folds, "totals": figures.totals.as_json()}


def life_text(title: str, figures: Life, lines: Lines, width: int, colour: bool) -> list[str]:
    """The picture with its heading, its legend and one line for each compaction."""
    from agent.lines import visible
    from agent.views.chart import draw, fit, mark

    def line(text: str) -> str:
        return fit(visible(text), width)

    window = f"window {lines.window:,} ({lines.source})" if lines.window else "window not known"
    trigger = f"trigger {lines.trigger:,}" if lines.trigger else "no trigger"
    told = [line(title), line(counts(figures.totals)), line(f"{window}, {trigger}")]
    if not figures.steps:
        return [*told, "no answers yet"]
    guessed = sum(not step.reported for step in figures.steps)
    told += ["", *draw(figures.steps, figures.folds, lines, width, colour=colour)]
    told += ["", line("tokens of each step's prompt: █ new ░ cached ▼ compacted ▲ undone")]
    if guessed:
        told.append(line(f"{guessed} of {len(figures.steps)} sizes were not reported and are estimated"))
    for fold in figures.folds:
        sizes = "" if fold.before is None else f": {fold.before:,} → about {fold.left or 0:,} tokens"
        why = f" ({fold.reason}, {fold.strategy})" if fold.strategy else ""
        told.append(line(f"{mark(fold)} {fold.kind} after step {fold.after}{sizes}{why}"))
    return told


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
    from agent.importers import Importer
    from agent.importers.sniff import READERS

    if tool != "auto" and tool not in READERS:
        raise UsageError(f"there is no tool {tool!r}", f"Use one of: auto, {', '.join(READERS)}")
    window = load_settings({}, os.environ, os.getcwd()).context_window
    importer = Importer(store_of(session_dir), tool=tool, dry_run=dry_run, force=force)
    taken, refused = 0, list[str]()
    for path in files:
        progress = Meter(path)
        for outcome in importer.take(path, progress):
            progress.clear()
            if json:
                out_json(outcome.as_json(dry_run))
            if outcome.refused:
                where = f"{path}, {outcome.source_id}" if outcome.tool == "llm" and outcome.source_id else path
                refused.append(f"{where}: {outcome.refused}. {outcome.hint}")
                continue
            taken += 1
            if not json:
                tell(outcome, window, dry_run)
    if not taken and len(refused) == 1:
        raise SessionError(f"nothing was imported: {refused[0]}")
    for sentence in refused:
        note(f"not imported: {sentence}")
    if not taken:
        raise SessionError("nothing was imported")


def tell(outcome: Outcome, window: int | None, dry_run: bool) -> None:
    """What came in, on stdout; what became of the rest, on stderr."""
    from agent.importers import counted

    out(outcome_line(outcome, window, dry_run) + "\n")
    notices = list(outcome.notices)
    if outcome.earlier:
        notices.append(f"compacted by {outcome.tool}: {outcome.earlier:,} earlier messages are in its archive")
    if outcome.dropped:
        notices.append(f"left out: {counted(outcome.dropped)}")
    for notice in notices:
        note(f"{label(outcome)}: {notice}")


class Meter(Progress):
    """How far a long file is, in percent."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._name, self._percent = os.path.basename(path)[:40], -1

    def __call__(self, done: int, of: int) -> None:
        """`done` of `of` bytes."""
        percent = 100 * done // of if of else 100
        if of >= SHOWN_FROM and percent > self._percent and sys.stderr.isatty():
            self._percent = percent
            self._write(f"{self._name}: {percent} %")


def stats(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="one session; without it, sums over all")] = None,
    json: Json = False,
    session_dir: Store = None,
) -> None:
    """The context's size step by step, drawn; without ID, tokens, cost and compactions of all sessions."""
    if id:
        _one(id, json, session_dir)
    else:
        _all(json, session_dir)


def _one(id: str, json: bool, session_dir: str | None) -> None:
    from shutil import get_terminal_size

    from agent.cli.run import wants_colour
    from agent.config import load_settings
    from agent.views.scales import lines_for, price_of
    from agent.views.stats import life_of

    session = read(session_dir, id)
    settings = load_settings({}, os.environ, os.getcwd(), session.meta)
    figures = life_of(session, price_of(settings.model, settings, os.environ))
    lines = lines_for(settings.model, settings, os.environ)
    if json:
        out_json(life_json(session, figures, lines))
        return
    colour = wants_colour(settings.color, os.environ, sys.stdout.isatty())
    model = figures.steps[-1].model if figures.steps else settings.model
    title = " · ".join(filter(None, (session.id, session.meta.get("name"), model)))
    for line in life_text(title, figures, lines, get_terminal_size((100, 24)).columns, colour):
        drawn(line + "\n")


def _all(json: bool, session_dir: str | None) -> None:
    from agent.config import load_settings
    from agent.log.library import listing
    from agent.views.scales import price_of
    from agent.views.stats import Totals, lives

    store = store_of(session_dir)
    settings = load_settings({}, os.environ, os.getcwd())
    prices = lru_cache(maxsize=256)(lambda spec: price_of(spec, settings, os.environ))
    whole, days, unread = Totals(), dict[str, Totals](), list[str]()
    total, progress = len(listing(store)), Progress()
    for done, (id, figures) in enumerate(lives(store, lambda meta: prices(meta.get("model")))):
        progress(done, total)
        if figures is None:
            unread.append(id)
            continue
        whole.plus(figures.totals)
        for day, sums in figures.days.items():
            days.setdefault(day, Totals()).plus(sums)
    progress.clear()
    if json:
        told = {day: {k: v for k, v in sums.as_json().items() if k != "sessions"} for day, sums in sorted(days.items())}
        out_json({**whole.as_json(), "days": told, "unreadable": unread})
        return
    sessions = f"{whole.sessions:,} session{'s' * (whole.sessions != 1)}"
    out(f"{sessions} · {counts(whole)} · {whole.compactions} compaction{'s' * (whole.compactions != 1)}\n")
    for day, sums in sorted(days.items(), reverse=True):
        folds = f" · {sums.compactions} compaction{'s' * (sums.compactions != 1)}" if sums.compactions else ""
        out(f"{day}  {counts(sums)}{folds}\n")
    for id in unread:
        note(f"session {id} cannot be read: agent doctor {id}")
