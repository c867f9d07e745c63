"""The commands beside `run`, handed to typer: `sessions ...`, models, config, doctor, completion.

typer costs more than Python itself, and so does every command it builds: it is imported only here, builds only what
argv names, and reads plain values through `PlainValue` rather than its own adapters, which import pydantic.
"""

from __future__ import annotations

import copy
from typing import Any

import typer

from agent.cli.commands import name_of, register
from agent.cli.verbs import app as sessions
from agent.errors import UsageError

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 118},
)
register(app, sessions)


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


def command(argv: list[str]) -> int:
    """Run the command that `argv` begins with; its exit code.

    Raises: AgentError, also for what typer finds wrong with the command line (UsageError).
    """
    from typer.exceptions import Abort, Exit, TyperException

    group, words, program = (sessions, argv[1:], "agent sessions") if argv[0] == "sessions" else (app, argv, "agent")
    if group is sessions and words[:1] and words[0].startswith("-") and words[0] not in ("-h", "--help"):
        words = ["list", *words]  # `agent sessions --json`
    wanted = next((word for word in words if not word.startswith("-")), "")
    named = [each for each in group.registered_commands if name_of(each) == wanted]
    light = copy.copy(group)
    light.registered_commands = named or group.registered_commands
    tree = typer.main.get_group(light)
    lighten(tree)
    try:
        # Not `tree.main`: it makes exit 1 of a reader that has gone, which is no error (`agent.cli.entry`).
        with tree.make_context(program, words) as context:
            result = tree.invoke(context)
    except Exit as leave:
        return leave.exit_code
    except (Abort, EOFError):
        return 130
    except TyperException as problem:
        said = problem.format_message().rstrip(".")
        perhaps_a_prompt = said.startswith(("No such command", "Got unexpected extra argument"))
        where = f"{argv[0]} {wanted}" if named and group is sessions else argv[0]
        raise UsageError(said, advice(argv, where, perhaps_a_prompt)) from None
    return result if isinstance(result, int) else 0


def advice(argv: list[str], where: str, perhaps_a_prompt: bool) -> str:
    """What to type after a usage error; `where` is the command whose options it was about."""
    as_prompt = f". To send this as a prompt: agent -- {' '.join(argv)}" if perhaps_a_prompt else ""
    return f"See agent {where} --help{as_prompt}"
