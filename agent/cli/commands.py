"""The commands beside `run` and `sessions`: compact, models, config, doctor, completion.

Each is short: find out, print. Data goes to stdout, with --json as one value; notices go to stderr.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Annotated, Any

import typer

from agent.cli.options import COMMANDS, OPTIONS, RESERVED, VERBS
from agent.cli.verbs import Id, Json, Store, Wait, find
from agent.config import SETTINGS, Settings, config_path, find_project_file, load_settings
from agent.errors import ConfigError, UsageError
from agent.views.printing import note, out, out_json

Profile = Annotated[str | None, typer.Option("--profile", metavar="NAME", help="a [profiles.NAME] of config.toml")]
ModelFlag = Annotated[str | None, typer.Option("-m", "--model", metavar="MODEL", help="model, alias or provider/model")]


def compact(
    id: Id,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show it, and change nothing")] = False,
    instructions: Annotated[str, typer.Option("--instructions", metavar="TEXT", help="what to keep in mind")] = "",
    keep: Annotated[str | None, typer.Option("--keep", metavar="N", help="tokens that stay verbatim")] = None,
    strategy: Annotated[
        str | None, typer.Option("--strategy", metavar="S", help="pruned, window_plus_summary or raw_fallback")
    ] = None,
    model: ModelFlag = None,
    summary_model: Annotated[str | None, typer.Option("--summary-model", metavar="M", help="another model")] = None,
    window: Annotated[str | None, typer.Option("--window", metavar="N", help="context window in tokens")] = None,
    json: Json = False,
    wait: Wait = 0.0,
    session_dir: Store = None,
) -> None:
    """Compact a session now; --dry-run shows the summary and what would be folded."""
    from agent.cli.run import compact_now
    from agent.compaction.draft import STRATEGIES
    from agent.values import parse_tokens

    if strategy is not None and strategy not in STRATEGIES:
        raise UsageError(f"--strategy is {strategy!r}, but it takes {', '.join(STRATEGIES[:-1])} or {STRATEGIES[-1]}")
    try:
        kept = None if keep is None else parse_tokens(keep)
    except ValueError as problem:
        raise UsageError(f"--keep is {keep!r}, but it takes {problem}") from None
    store, found = find(session_dir, id)
    flags = {"model": model, "summary_model": summary_model, "context_window": window}
    wishes = {"instructions": instructions, "keep": kept, "strategy": strategy, "dry_run": dry_run}
    outcome = compact_now(store, found, flags, os.environ, wait=wait, quiet=json, **wishes)
    if json:
        out_json(outcome)
        if outcome["outcome"] in ("no_summary", "failed"):
            raise typer.Exit(1)
    elif dry_run:
        out(dry_run_text(outcome))


def dry_run_text(outcome: Mapping[str, Any]) -> str:
    """What a compaction would do, for people: the record in short, then the summary as the model would read it."""
    if "strategy" not in outcome:  # stderr has said why
        return ""
    tokens = outcome.get("tokens", {})
    first, last = (outcome.get("folded") or ["-", "-"])[:2]
    lines = [
        f"strategy  {outcome['strategy']}",
        f"folded    messages {first} to {last}",
        f"kept      {outcome.get('kept')} messages verbatim",
        f"tokens    {tokens.get('before')} -> about {tokens.get('after_estimate')}",
        f"checks    {', '.join(outcome.get('checks', {}).get('reasons', [])) or 'passed'}",
    ]
    text = outcome.get("summary")
    return "\n".join(lines) + "\n" + (f"\n{text}\n" if text else "")


def models(json: Json = False, profile: Profile = None) -> None:
    """The providers, the model that a run would use now, and where its window comes from."""
    settings = load_settings({"profile": profile}, os.environ, os.getcwd())
    told = describe_models(settings, os.environ)
    if json:
        out_json(told)
        return
    now = told["now"]
    if now["model"] is None:
        out(f"now          none: {now['error']}\n\n")
    else:
        window = (
            f"window {now['window']:,} ({now['window_source']})"
            if now["window"]
            else "its window is asked when it starts"
        )
        out(f"now          {now['model']}  {now['base_url']}  {window}\n\n")
    for row in told["providers"]:
        needs = f"needs {row['key_variable']}"
        state = "no key needed" if row["ready"] is None else "ready" if row["ready"] else needs
        out(f"{row['name']:12} {state:28} {row['base_url']}  {row['default']}".rstrip() + "\n")
    for name, target in settings.aliases.items():
        out(f"{name:12} alias of {target}\n")


def describe_models(settings: Settings, environ: Mapping[str, str]) -> dict[str, Any]:
    """What `agent models` shows: the model a run would use now, and every provider of the table.

    "ready" is whether its key is set; None where none is needed, as nobody has looked whether that server runs.
    """
    from agent import local
    from agent.cli.equipment import find_target
    from agent.wire import providers, windows
    from agent.wire.memory import Memory, default_path

    try:
        target = find_target(settings.model, settings, environ)
    except ConfigError as error:
        target = None
        now: dict[str, Any] = {"model": None, "error": str(error)}
    if isinstance(target, str):
        place = "built in" if local.installed() else "built in, not installed (agent doctor)"
        now = {"model": target, "base_url": place, "window": None, "window_source": "server"}
    elif target is not None:
        known = Memory(default_path(environ)).of(target.base_url, target.model)
        window = windows.window_for(target, stated=settings.stated_window, learned=known)
        now = {
            "model": target.model,
            "base_url": target.base_url,
            "window": window.tokens,
            "window_source": window.source,
        }
    rows = [
        {
            "name": provider.name,
            "base_url": provider.base_url,
            "key_variable": provider.keys[0] if provider.keys else "",
            "ready": None if provider.local else any(environ.get(key) for key in provider.keys),
            "default": provider.default,
        }
        for provider in providers.TABLE
    ]
    return {"now": now, "providers": rows, "aliases": dict(settings.aliases)}


def config_rows(settings: Settings) -> Iterable[dict[str, Any]]:
    """Every setting: its value, where it came from, and what would set it. A password in an address is not shown."""
    from agent.redact import redact

    for option in SETTINGS:
        value = getattr(settings, option.name)
        value = redact(value) if isinstance(value, str) else value
        yield {
            "name": option.name,
            "value": list(value) if isinstance(value, tuple) else value,
            "origin": settings.origin.get(option.name, "default"),
            "variables": list(option.variables),
        }


def config(
    what: Annotated[str, typer.Argument(metavar="show|path", help="show every setting, or where the file is")] = "show",
    json: Json = False,
    profile: Profile = None,
) -> None:
    """Every setting's value and where it came from."""
    if what not in ("show", "path"):
        raise UsageError(f"agent config takes show or path, not {what!r}")
    path = config_path(os.environ)
    if what == "path":
        out(f"{path}\n")
        return
    settings = load_settings({"profile": profile}, os.environ, os.getcwd())
    rows = list(config_rows(settings))
    if json:
        out_json({"path": path, "settings": rows, "aliases": dict(settings.aliases)})
        return
    for row in rows:
        value = ", ".join(row["value"]) if isinstance(row["value"], list) else row["value"]
        out(f"{row['name']:20} {'-' if value in (None, '') else value!s:24} {row['origin']}\n")
    project = find_project_file(os.getcwd())
    note(f"file: {path}{'' if os.path.exists(path) else ' (not there)'}" + (f"; project: {project}" if project else ""))


def doctor(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="check one session and repair it")] = None,
    model: ModelFlag = None,
    json: Json = False,
    offline: Annotated[bool, typer.Option("--offline", help="ask the server nothing")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="with ID: only say what is wrong")] = False,
    session_dir: Store = None,
) -> None:
    """What is configured, and whether it works; with ID, what is wrong with a session, which is then repaired."""
    from agent.cli.examine import examine, examine_session

    if id:
        store, found = find(session_dir, id)
        checks = examine_session(store, found, dry_run=dry_run)
    else:
        checks = examine(os.environ, model, offline=offline)
    failed = False
    for check in checks:
        failed = failed or check.state == "failed"
        if json:
            out_json(check.as_json())
        else:
            step = f"\n{'':9}→ {check.next}" if check.next else ""
            out(f"{check.state:8} {check.name}: {check.text}{step}\n")
    if failed:
        raise typer.Exit(1)


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="the shell")],
    words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Print the completion script of a shell."""
    from agent.cli import completion as complete

    if shell == "words":
        out(complete.lines(completions(words or [""])))
        return
    if shell not in complete.SCRIPTS:
        raise UsageError(f"There is no completion for {shell!r}", "There is: bash, zsh, fish")
    out(complete.SCRIPTS[shell])


def completions(words: list[str]) -> list[tuple[str, str]]:
    """What may be typed next; sessions and models are looked up only where they are asked for."""
    from agent.cli.completion import candidates, model_names
    from agent.log.library import find_store, summaries
    from agent.wire.providers import TABLE

    settings = load_settings({}, os.environ, os.getcwd())

    def known_sessions() -> Iterable[tuple[str, str]]:
        store = find_store(None, os.environ, os.getcwd(), settings.session_dir)
        rows = [row for row in islice(summaries(store), 50) if row is not None]
        named = [(row.name, row.first_words) for row in rows if row.name]
        return [*named, *((row.id, row.name or row.first_words) for row in rows)]

    def options() -> Iterable[tuple[str, str]]:
        if words[0] in COMMANDS:
            return options_of(words[: 2 if words[0] == "sessions" else 1])
        return [(flag, row.text) for rows in OPTIONS.values() for row in rows if not row.hidden for flag in row.flags]

    names = (provider.name for provider in TABLE)
    return candidates(
        words, RESERVED, VERBS, options, known_sessions, lambda: model_names(settings.aliases, names)
    )  # fmt: skip


def name_of(command: Any) -> str:
    """What a registered command is called on the command line."""
    return command.name or str(command.callback.__name__)


def options_of(path: list[str]) -> Iterable[tuple[str, str]]:
    """The long options of a command, or of a verb of `sessions`, with their help."""
    from agent.cli.verbs import app as sessions

    named = {name_of(each): each.callback for each in sessions.registered_commands}
    callback = named.get(path[-1]) if path[0] == "sessions" else globals()[path[0]]
    if callback is None:
        return
    alone = typer.Typer(add_completion=False)
    alone.command()(callback)
    for param in typer.main.get_command(alone).params:
        yield from ((flag, getattr(param, "help", None) or "") for flag in param.opts if flag.startswith("--"))


def register(app: typer.Typer, sessions: typer.Typer) -> None:
    """Put the commands in their places."""
    from agent.cli.gathering import import_sessions, stats
    from agent.cli.history import replay, undo

    sessions.command("undo")(undo)
    sessions.command("replay")(replay)
    sessions.command("compact")(compact)
    sessions.command("import")(import_sessions)
    sessions.command("stats")(stats)
    for command in (models, config, doctor, completion):
        app.command(command.__name__)(command)
