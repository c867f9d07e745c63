"""The grammar of the command line, declared in one table and read by typer.

The first word alone may be a command, from the frozen list `RESERVED`; anything else is a prompt, and `agent run ...`
is the explicit form. Options take exactly one value, repeat where that makes sense, stand before or after the prompt,
and `--` ends them. A mistake that would send a command to a model as a prompt is exit 2 and the right spelling.

Nothing here imports httpx or tiktoken: `--help`, completion and the session verbs start fast. Values stay text: what
they mean is `agent.config`'s to say, so that a flag, a variable and a file are read alike.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from agent.commands import register
from agent.errors import UsageError
from agent.verbs import app as sessions

RESERVED = ("sessions", "models", "config", "doctor", "completion", "run", "help")
NEAR_MISSES = {"session": "sessions", "model": "models", "configs": "config"}
VERBS = {"list", "show", "last", "search", "name", "fork", "export", "import", "rm", "prune", "undo", "replay", "path"}

INTRODUCTION = """\
agent: a one-shot command-line agent whose memory can be trusted.

  agent "prompt"              start a session, take one turn
  agent -c ID "prompt"        continue it (id, unique prefix, name, or last)
  agent --last "prompt"       continue the newest session of this directory
  git diff | agent "review"   standard input goes with the prompt
  agent sessions              what there is;  agent sessions show ID  reads it
  agent doctor                what is configured, and whether it works
"""

EPILOGUE = """\
Commands: sessions, models, config show, doctor, completion SHELL, run, help. A prompt that starts with one: quote it.
Exit codes: 0 done, 1 failed, 2 usage, 3 configuration, 4 session, 5 denied, 6 limit, 7 busy, 75 try again, 124 timeout,
130 interrupted. Settings: flags > environment > session > config.toml; `agent config show` says what holds and why.
"""


class Row(NamedTuple):
    """One option: `metavar` is "" for a switch; `many` may be given more than once."""

    name: str
    flags: tuple[str, ...]
    metavar: str
    text: str
    many: bool = False
    hidden: bool = False


OPTIONS: dict[str, tuple[Row, ...]] = {
    "Session": (
        Row("continue_id", ("-c", "--continue"), "ID", "continue a session: id, prefix, name, last"),
        Row("last", ("--last",), "", "continue the newest session of this directory"),
        Row("fork", ("--fork",), "", "continue in a copy; the original stays as it is"),
        Row("name", ("-n", "--name"), "NAME", "name the session"),
        Row("no_session", ("--no-session", "--ephemeral"), "", "leave nothing on disk"),
        Row("session_dir", ("--session-dir",), "DIR", "where sessions are kept"),
        Row("wait", ("--wait",), "SEC", "seconds to wait for a busy session"),
        Row("pin", ("--pin",), "TEXT", "a rule that no compaction may drop", many=True),
    ),
    "Model": (
        Row("model", ("-m", "--model"), "MODEL", "model, alias, provider/model or file.gguf"),
        Row("system", ("-s", "--system"), "TEXT", "system prompt (new sessions)"),
        Row("system_file", ("--system-file",), "PATH", "system prompt from a file"),
        Row("context_window", ("--window",), "N", "context window in tokens: 8192, 8k"),
        Row("compact_at", ("--compact-at",), "X", "compact at a fraction, at tokens, or off"),
        Row("summary_model", ("--summary-model",), "M", "another model for summaries"),
        Row("max_tokens", ("--max-tokens",), "N", "cap on one answer, in tokens"),
        Row("profile", ("--profile",), "NAME", "a [profiles.NAME] of config.toml"),
    ),
    "Input": (
        Row("file", ("-f", "--file"), "PATH", "attach a text file or image; - is stdin", many=True),
        Row("cd", ("-C", "--cd"), "DIR", "run as if started there"),
        Row("no_stdin", ("--no-stdin",), "", "never look at standard input"),
        Row("no_input", ("--no-input",), "", "never ask; a question is a denial"),
    ),
    "Output": (
        Row("output", ("-o", "--output"), "FILE", "also write the answer there, atomically"),
        Row("json", ("--json",), "", "events as JSON lines; result is the last"),
        Row("output_format", ("--output-format",), "FORMAT", "text, json or stream-json (= --json)"),
        Row("include_partial_messages", ("--include-partial-messages",), "", "with --json: every fragment too"),
        Row("quiet", ("-q", "--quiet"), "", "the answer and errors only"),
        Row("verbose", ("-v", "--verbose"), "", "what tools were asked and gave"),
        Row("debug", ("--debug",), "", "the wire on stderr, redacted"),
        Row("color", ("--color",), "WHEN", "auto, always or never"),
    ),
    "Tools": (
        Row("tools", ("--tools",), "LIST", "offer only these, with commas between"),
        Row("no_tools", ("--no-tools",), "", "offer none"),
        Row("allow", ("--allow",), "RULE", "allow calls: 'bash(git *)', write_file, net", many=True),
        Row("deny", ("--deny",), "RULE", "deny calls; deny wins", many=True),
        Row("sandbox", ("--sandbox",), "MODE", "read-only, workspace-write or off"),
        Row("add_dir", ("--add-dir",), "DIR", "another directory that tools may write", many=True),
        Row("yolo", ("--yolo",), "", "turn every question into yes; the sandbox stays"),
        Row("strict", ("--strict",), "", "exit 5 when something was denied"),
    ),
    "Limits": (
        Row("max_steps", ("--max-steps",), "N", "model calls in one turn (100)"),
        Row("timeout", ("--timeout",), "SEC", "seconds for the whole run"),
        Row("version", ("-V", "--version"), "", "product, version and place"),
        Row("printed", ("-p", "--print"), "", "nothing: accepted for the habit's sake", hidden=True),
    ),
}
"""The options of a run, in the order and groups of `--help`."""


class Grammar(TyperGroup):
    """The top level: puts `run` before everything that is not a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.obj = list(args)
        if args[:1] == ["help"]:
            args = ["run", "--help"]
        elif not args or args[0] not in RESERVED:
            args = ["run", *args]
        return super().parse_args(ctx, args)


class Run(TyperCommand):
    """`agent run`: its help is the front page, grouped."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(INTRODUCTION)
        for title, rows in OPTIONS.items():
            formatter.write(f"\n{title}\n")
            for row in (row for row in rows if not row.hidden):
                spelt = " ".join(filter(None, [", ".join(row.flags), row.metavar]))
                formatter.write(f"  {spelt:<29} {row.text}\n")
        formatter.write(f"\n{EPILOGUE}")


app = typer.Typer(
    cls=Grammar,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 118},
)
app.add_typer(sessions, name="sessions", help="List, read, search and mend sessions.")
register(app, sessions)


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give `function(ctx, prompt, **values)` the signature that typer reads, from the table."""
    words = Annotated[list[str] | None, typer.Argument(help="words of the prompt; - is standard input")]
    types: dict[str, Any] = {"ctx": typer.Context, "prompt": words}
    rows = [row for group in OPTIONS.values() for row in group]
    for row in rows:
        kind: Any = bool if not row.metavar else list[str] | None if row.many else str | None
        about = typer.Option(*row.flags, help=row.text, metavar=row.metavar or None, hidden=row.hidden)
        types[row.name] = Annotated[kind, about]
    defaults: dict[str, Any] = dict.fromkeys(types) | {row.name: False for row in rows if not row.metavar}
    defaults["ctx"] = inspect.Parameter.empty
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kind)
        for name, kind in types.items()
    )
    function.__annotations__ = types
    return function


@app.command("run", cls=Run)
@with_options
def run_command(ctx: typer.Context, prompt: list[str] | None, **values: Any) -> None:
    """Take one turn."""
    if values.pop("version"):
        from agent.cli import main

        raise typer.Exit(main(["-V"]))
    words = prompt or []
    check_words(words, ctx.find_root().obj or [])
    from agent.run import Ask, run

    raise typer.Exit(run(Ask.of(words, values), os.environ))


def check_words(words: list[str], argv: list[str]) -> None:
    """Refuse a prompt that looks like a misplaced or misspelt command. `argv` is the whole command line.

    Raises: UsageError with the right spelling.
    """
    if not words or "--" in argv or argv[:1] == ["run"]:
        return
    first, rest = words[0], " ".join(words)
    if first in RESERVED:
        options = " ".join(word for word in argv if word.startswith("-"))
        hint = f"The command: agent {rest} {options}. A prompt: agent {options} -- {rest}"
        raise UsageError(f"{first!r} is a command, but options came before it", hint)
    if first in NEAR_MISSES and len(words) > 1 and words[1] in VERBS:
        right = " ".join([NEAR_MISSES[first], *words[1:]])
        raise UsageError(f"There is no command {first!r}", f"Did you mean: agent {right}? A prompt: quote it")


def invoke(argv: list[str]) -> int:
    """Parse and run one command line; its exit code.

    Raises: AgentError, also for what typer finds wrong with the command line (UsageError).
    """
    from typer.exceptions import Abort, Exit, TyperException

    command = typer.main.get_command(app)
    try:
        result = command.main(args=argv, prog_name="agent", standalone_mode=False)
    except Exit as leave:
        return leave.exit_code
    except Abort:
        return 130
    except TyperException as problem:
        raise UsageError(problem.format_message().rstrip("."), advice(argv)) from None
    return result if isinstance(result, int) else 0


def advice(argv: list[str]) -> str:
    """What to type after a usage error."""
    if argv and argv[0] in RESERVED and len(argv) > 1:
        return f"See agent {argv[0]} --help. To send this as a prompt: agent -- {' '.join(argv)}"
    return "See agent --help"
