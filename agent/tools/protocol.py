"""What a tool is: the protocol, its result, and what it is told about the run.

A tool is a name, a schema and a function. It never raises for something the model can mend: that is a result with
`ok` False whose text says what to do next. Whoever adds a tool of another origin implements `Tool` and is done.

Paths in `detail` are absolute, symlinks resolved. `detail` is what the session file keeps of a call besides its text:

    exit_code   int                      bash
    files       {"read": [path], "changed": [path]}
    seen        {path: sha256}           content the model knows, so that a later process can refuse a stale write
    spill       path                     the whole output, where the text was cut
    backup      {"path", "name", "before", "after", "mode"}     see `agent.tools.backup`
    timed_out   true                     bash
    refusal     text                     bash: what of its doings was put back
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from agent.messages import Schema


class ToolResult(NamedTuple):
    """The outcome of one call: `text` is for the model, `detail` for the session file. `detail` is never changed in
    place."""

    text: str
    ok: bool
    denied: bool = False
    detail: dict[str, Any] = {}  # noqa: RUF012  a NamedTuple's default, read only


def failed(text: str, **detail: Any) -> ToolResult:
    """A call that did not do what was asked; `text` says what to do instead."""
    return ToolResult(text, ok=False, detail=detail)


def denied(text: str) -> ToolResult:
    """A call that was not allowed to happen. Nothing was touched."""
    return ToolResult(text, ok=False, denied=True)


@dataclass
class ToolContext:
    """What the tools of one run share.

    `roots` are the directories tools may write in (`cwd` among them); `private_dirs` are never readable, except the
    session's own `files_dir()`, which is made when first asked for. `result_cap` is the largest result in tokens.
    `seen` maps a path to the sha256 of the content the model last saw. `environ` is the environment the user gave the
    agent; tool processes get a scrubbed copy.
    """

    cwd: str
    roots: list[str]
    files_dir: Callable[[], str]
    session_id: str = ""
    result_cap: int = 8_000
    sandbox: str = "workspace-write"
    allow_net: bool = False
    seen: dict[str, str] = field(default_factory=dict)
    private_dirs: list[str] = field(default_factory=list)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    recall: Callable[[str], str] | None = None
    files_dirs: list[str] = field(default_factory=list)
    """Where `files()` has put something in this run: readable for tool processes too."""
    lasting: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What no command may leave changed, and the repositories `made` in this run: see `agent.tools.lasting`."""
    made: set[tuple[int, int]] = field(default_factory=set)

    unfinished: str = ""
    """What a call that was interrupted had given until then."""

    def files(self) -> str:
        """The session's files directory, made on demand."""
        path = self.files_dir()
        if path not in self.files_dirs:
            self.files_dirs.append(path)
        return path


class Tool(Protocol):
    """One thing the model can ask for. `schema` is in the OpenAI function form; `parameters` in it is the one
    declaration that the argument parser reads too."""

    name: str
    schema: Schema

    def run(self, args: dict[str, Any], context: ToolContext) -> ToolResult: ...


def function_schema(
    name: str, description: str, properties: dict[str, Any], required: tuple[str, ...] | None = None
) -> Schema:
    """The OpenAI function form; every property is required unless `required` says which are."""
    names = list(properties) if required is None else list(required)
    parameters = {"type": "object", "properties": properties, "required": names}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def seen_before(details: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What the model has seen, from the `tool` objects of a session's entries in order."""
    found: dict[str, str] = {}
    for detail in details:
        seen = detail.get("seen")
        if isinstance(seen, dict):
            found.update({k: v for k, v in seen.items() if isinstance(k, str) and isinstance(v, str)})
    return found
