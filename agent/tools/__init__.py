"""The tools of a run: one box that turns what a model asked for into what it gets back.

`Toolbox.run` goes prepare -> decide -> execute -> finish, and never raises for anything a call can cause: an unknown
tool, broken arguments, a refusal, a crash of the tool are all results whose text leads on. Only what ends the run
(Ctrl-C, a signal) passes through, after the tool's processes are gone.

The box does not know sessions, screens or the loop; it is handed a `ToolContext`, `Permissions` and a function that
asks the user.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agent.errors import UsageError
from agent.messages import Schema, ToolCall
from agent.tools.arguments import BadArguments, parse
from agent.tools.edits import EditFile, WriteFile
from agent.tools.files import ReadFile
from agent.tools.output import head_and_tail, one_line, visible
from agent.tools.permissions import TOOL_NAMES, Permissions, subject
from agent.tools.protocol import Tool, ToolContext, ToolResult, denied, failed, seen_before
from agent.tools.recall import Recall
from agent.tools.shell import Bash

__all__ = [
    "DEFAULT_TOOLS", "Ask", "Permissions", "Tool", "ToolContext", "ToolResult", "Toolbox", "build_toolbox",
    "seen_before",
]  # fmt: skip

Ask = Callable[[ToolCall, str], str]
"""Shows the user a call (the text is the whole command or path, control characters visible) and returns "yes",
"always" (this very command or file, for the rest of the run) or "no"."""

DEFAULT_TOOLS = ("read_file", "write_file", "edit_file", "bash")


class _Prepared(NamedTuple):
    call: ToolCall
    tool: Tool
    args: dict[str, Any]
    notes: list[str]


class Toolbox:
    """The tools offered to the model and the rules they run under.

    `denials` collects what was refused, in order: `{"tool_name", "tool_use_id", "tool_input", "reason"}`.
    """

    def __init__(
        self, tools: Sequence[Tool], context: ToolContext, permissions: Permissions, ask: Ask | None = None
    ) -> None:
        self.context = context
        self.permissions = permissions
        self.denials: list[dict[str, Any]] = []
        self._tools = {tool.name: tool for tool in tools}
        self._ask = ask

    def schemas(self) -> list[Schema]:
        """What the model is shown, in a fixed order."""
        return [tool.schema for tool in self._tools.values()]

    def names(self) -> list[str]:
        """The tools' names, in the same order."""
        return list(self._tools)

    def add(self, tool: Tool) -> None:
        """Offer one more tool (recall, once something is archived)."""
        self._tools[tool.name] = tool

    def summary(self, call: ToolCall) -> str:
        """One line for people: the command, the path, the query. Total."""
        try:
            args = parse(self._tools[call.name].schema, call.arguments)[0]
        except (KeyError, BadArguments):
            return one_line(call.arguments)
        return one_line(subject(args))

    def unfinished(self) -> str:
        """What the call that was interrupted last had given until then, once; "" for nothing."""
        text, self.context.unfinished = self.context.unfinished, ""
        return text

    def run(self, call: ToolCall) -> ToolResult:
        """Run one call. Never raises an `Exception`; a `BaseException` that is none passes through."""
        args: dict[str, Any] = {}
        try:
            prepared = self._prepare(call)
            if isinstance(prepared, ToolResult):
                return prepared
            args = prepared.args
            result = self._decide(prepared) or prepared.tool.run(args, self.context)
            result = self._finish(result, prepared.notes)
        except Exception as error:
            result = failed(
                f"{visible(call.name)} failed inside the agent ({type(error).__name__}: {visible(str(error))[:300]}). "
                "What it did is unknown: look before you repeat it, or go another way."
            )
        if result.denied:
            self._deny(call, args, result.detail.get("refusal", result.text))
        return result

    def _prepare(self, call: ToolCall) -> _Prepared | ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            names = ", ".join(self._tools) or "none"
            return failed(f"There is no tool {one_line(call.name, 60)!r}. The tools are: {names}. Nothing was run.")
        try:
            args, notes = parse(tool.schema, call.arguments)
        except BadArguments as problem:
            return failed(visible(str(problem)))
        return _Prepared(call, tool, args, notes)

    def _decide(self, prepared: _Prepared) -> ToolResult | None:
        """A refusal, or None when the call may run."""
        name, args = prepared.tool.name, prepared.args
        verdict, reason = self.permissions.decide(name, args)
        if verdict == "allow":
            return None
        if verdict == "deny":
            return denied(f"Denied, nothing was run: {reason}. Do not try it in another form; go on without it.")
        if self._ask is None:
            return denied(
                f"Denied, nothing was run: {reason}, and there is no terminal to ask the user on. Go on without it, or "
                f"tell the user that --allow {_rule_for(name, args)} would permit it."
            )
        answer = self._ask(prepared.call, visible(subject(args) or json.dumps(args)))
        if answer == "always":
            self.permissions.grant(name, args)
        if answer in ("yes", "always"):
            return None
        return denied("The user said no; nothing was run. Ask what they want instead, or go on without it.")

    def _finish(self, result: ToolResult, notes: list[str]) -> ToolResult:
        """The result within the cap, with notes on what was ignored."""
        text, _ = head_and_tail(result.text, self.context.result_cap, _left_out)
        if notes:
            text = f"{text}\n[{visible('; '.join(notes[:5]))}]"
        return result._replace(text=text or "(empty)")

    def _deny(self, call: ToolCall, args: dict[str, Any], reason: str) -> None:
        self.denials.append({"tool_name": call.name, "tool_use_id": call.id, "tool_input": args, "reason": reason})


def build_toolbox(
    names: Sequence[str], context: ToolContext, permissions: Permissions, ask: Ask | None = None
) -> Toolbox:
    """The box with the named tools, in the canonical order. Raises: `UsageError` for a name that is no tool."""
    unknown = [name for name in names if name not in TOOL_NAMES]
    if unknown:
        raise UsageError(f"There is no tool {unknown[0]!r}", f"Tools: {', '.join(TOOL_NAMES)}.")
    every: tuple[Tool, ...] = (ReadFile(), WriteFile(), EditFile(), Bash(), Recall())
    return Toolbox([tool for tool in every if tool.name in names], context, permissions, ask)


def _left_out(characters: int, lines: int) -> str:
    return f"[... {characters:,} characters, {lines:,} lines left out ...]"


def _rule_for(name: str, args: dict[str, Any]) -> str:
    import shlex

    text = one_line(subject(args), 80)
    return shlex.quote(f"{name}({text})") if name == "bash" and "\n" not in subject(args) else name
