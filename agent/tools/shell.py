"""bash: one command, confined, watched, and told of in a form the model can act on.

Standard input is closed and there is no terminal, so nothing waits for a person. Both outputs come in the order they
were written. What a command leaves running in the background ends with it. The last line of a result is always
`exit status N`; 124 is a timeout, 128 + N a signal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, BinaryIO

from agent.tools.output import head_and_tail, readable
from agent.tools.protocol import ToolContext, ToolResult, failed, function_schema

DEFAULT_TIMEOUT = 120
LONGEST_TIMEOUT = 3600
_ROOM_FOR_ENDING = 160
"""Tokens for the lines after the output."""
_REFUSALS = re.compile(
    r"permission denied|operation not permitted|read-only file system|network is unreachable|could not resolve|"
    r"name resolution|unable to connect|connection refused|EACCES|EPERM|EROFS|ENOTFOUND",
    re.IGNORECASE,
)


class Bash:
    """Run a command with bash in the working directory. `timeout` is in seconds."""

    name = "bash"
    side_effects = True
    schema = function_schema(
        "bash",
        "Run a bash command without input. Background processes end with it.",
        {"command": {"type": "string"}, "timeout": {"type": "integer", "description": "seconds"}},
        required=("command",),
    )

    def run(self, args: dict[str, Any], context: ToolContext) -> ToolResult:
        command = args["command"]
        if "\0" in command or not command.strip():
            return failed("The command is empty or holds a NUL character. Nothing was run.")
        timeout = min(max(1, args.get("timeout", DEFAULT_TIMEOUT)), LONGEST_TIMEOUT)
        return _run(command, timeout, context)


def ending(exit_code: int, why: str, left_over: int, timeout: int) -> str:
    """The lines after the output: what the model has to know about how it ended, and `exit status N` last."""
    reasons = {
        "timeout": f"[timed out after {timeout} s: the command and all it started were ended. Output so far is above. "
        "Give a larger timeout (seconds), or do less at a time.]",
        "output": "[stopped: too much output. Send it to a file and look at parts of it.]",
        "processes": "[stopped: the command started too many processes.]",
    }
    lines = [reasons[why]] if why in reasons else []
    if left_over and not why:
        some = "a background process was" if left_over == 1 else f"{left_over} background processes were"
        lines.append(f"[{some} ended with the command]")
    return "\n".join([*lines, f"exit status {exit_code}"])


def confinement_hint(text: str, exit_code: int, hint: Callable[[], str]) -> str:
    """A line with `hint` where a failed command's output looks as if the sandbox was in its way, else ""."""
    found = hint() if exit_code and _REFUSALS.search(text) else ""
    return f"[{found}]\n" if found else ""


# ---- effects ----


def _run(command: str, timeout: int, context: ToolContext) -> ToolResult:
    from agent.tools import process, sandbox

    spill_path = ""

    def open_spill() -> BinaryIO:
        nonlocal spill_path
        spill_path = os.path.join(context.files(), f"output-{os.urandom(4).hex()}.txt")
        return os.fdopen(os.open(spill_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")

    output = process.Output(open_spill)
    known = process.children()
    try:
        with sandbox.started(command, context) as (child, attended):
            ended = process.watch(child, output, timeout, known, attended)
        raw_head, raw_tail = output.ends()
        text, cut = _capped(readable(raw_head), readable(raw_tail), output, context, lambda: spill_path)
    except OSError as error:
        return failed(f"The command could not be run: {error.strerror or error}. Nothing was done.")
    finally:
        output.close()
    hint = confinement_hint(text[-4000:], ended.exit_code, lambda: sandbox.hint(context))
    body = f"{text.rstrip(chr(10))}\n" if text.strip() else "(no output)\n"
    detail: dict[str, Any] = {"exit_code": ended.exit_code}
    detail |= {"spill": spill_path} if cut and spill_path else {}
    detail |= {"timed_out": True} if ended.why == "timeout" else {}
    text = body + hint + ending(ended.exit_code, ended.why, ended.left_over, timeout)
    return ToolResult(text, ok=ended.exit_code == 0, detail=detail)


def _capped(head: str, tail: str, output: Any, context: ToolContext, spill_path: Callable[[], str]) -> tuple[str, bool]:
    """The output within the cap, and whether it was cut; what is cut is in the spill by then."""
    between = "\n" if tail else ""

    def left_out(characters: int, lines: int) -> str:
        more = f"{output.size:,} bytes of output in all; " if tail else f"{characters:,} characters, {lines:,} lines; "
        kept = "all of it" if output.complete else "the first part"
        return f"[... {more}{kept} is in {spill_path()}: read_file it with offset and limit, or grep it ...]"

    from agent.tokens import estimate

    whole = head + between + tail
    if tail or estimate(whole) > context.result_cap - _ROOM_FOR_ENDING:
        output.spill_all()
        return head_and_tail(whole, context.result_cap - _ROOM_FOR_ENDING, left_out)
    return whole, False
