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
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from agent.commands import register
from agent.errors import UsageError
from agent.options import EPILOGUE, INTRODUCTION, NEAR_MISSES, OPTIONS, RESERVED, VERBS, version_line
from agent.verbs import app as sessions


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
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(n, keyword, default=defaults[n], annotation=kind) for n, kind in types.items()]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = types
    return function


@app.command("run", cls=Run)
@with_options
def run_command(ctx: typer.Context, prompt: list[str] | None, **values: Any) -> None:
    """Take one turn."""
    if values.pop("version"):
        typer.echo(version_line())
        return
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


class PlainValue:
    """Reads an option's text without typer's own adapters: those import pydantic, which takes longer than Python."""

    def __init__(self, kind: type, least: float | None) -> None:
        self.kind, self.least = kind, least

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as `kind`. Raises: typer.BadParameter."""
        if value is None or isinstance(value, self.kind | list | tuple):
            return list(value) if isinstance(value, tuple) else value
        try:
            read = self.kind(value)
        except ValueError:
            raise typer.BadParameter(
                f"{value!r} is not {'a whole' if self.kind is int else 'a'} number", ctx, param
            ) from None
        if self.least is not None and read < self.least:
            raise typer.BadParameter(f"{value} is below {self.least:g}", ctx, param)
        return read


def lighten(command: Any, parent: typer.Context | None = None) -> None:
    """Make a command tree read its plain values itself; whatever is not plain stays typer's."""
    context = typer.Context(command, parent=parent, **command.context_settings)
    for sub in getattr(command, "commands", {}).values():
        lighten(sub, context)
    for param in (*command.params, command.get_help_option(context)):
        annotation = getattr(getattr(param, "type_descriptor", None), "annotation", None)
        kind = str if annotation == list[str] else annotation
        if kind in (str, int, float, bool):
            plain = PlainValue(kind, getattr(param, "min", None))
            param.get_runtime_param = lambda plain=plain: plain


def invoke(argv: list[str]) -> int:
    """Parse and run one command line; its exit code.

    Raises: AgentError, also for what typer finds wrong with the command line (UsageError).
    """
    from typer.exceptions import Abort, Exit, TyperException

    command = typer.main.get_command(app)
    lighten(command)
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
