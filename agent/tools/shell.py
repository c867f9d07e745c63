"""bash: one command, confined, watched, and told of in a form the model can act on.

Standard input is closed and there is no terminal, so nothing waits for a person. Both outputs come in the order they
were written. What a command leaves running in the background ends with it. The last line of a result is always
`exit status N`; 124 is a timeout, 128 + N a signal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

from agent.errors import StorageError
from agent.tools.output import head_and_tail, readable
from agent.tools.protocol import ToolContext, ToolResult, failed, function_schema

if TYPE_CHECKING:
    from agent.tools.process import Output

DEFAULT_TIMEOUT = 120
LONGEST_TIMEOUT = 3600
CUT_SHORT = (
    "[interrupted: the run was stopped, and the command and all it started with it. Output so far is above; what it did "
    "until then is done. Check before repeating it.]"
)
_REFUSALS = re.compile(
    r"permission denied|operation not permitted|read-only file system|network is unreachable|could not resolve|"
    r"name resolution|unable to connect|connection refused|resource busy|EACCES|EPERM|EROFS|ENOTFOUND",
    re.IGNORECASE,
)


class Bash:
    """Run a command with bash in the working directory. `timeout` is in seconds."""

    name = "bash"
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


def left_out(output: Output, characters: int, spill: str) -> str:
    """The line that stands for the middle of a long output."""
    size = f"{output.size:,} bytes in all" if output.overflowed else f"{characters:,} characters cut"
    if output.problem:
        return f"[... {size}; it could not be kept in a file: {output.problem} ...]"
    part = "all of it" if output.complete else "the first part"
    return f"[... {size}; {part} is in {spill}: read_file or grep it ...]"


# ---- effects ----


def _run(command: str, timeout: int, context: ToolContext) -> ToolResult:
    from agent.tools import guard, lasting, process, sandbox

    spill_path = ""

    def open_spill() -> BinaryIO:
        nonlocal spill_path
        try:
            folder = context.files()
        except StorageError as error:
            raise OSError(str(error)) from error
        spill_path = os.path.join(folder, f"output-{os.urandom(4).hex()}.txt")
        return os.fdopen(os.open(spill_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")

    output = process.Output(open_spill)
    sandbox.prepared()
    confined = sandbox.mechanism(context.sandbox) not in ("off", "none")
    known = process.children()
    begun = False
    try:
        with lasting.kept(context, confined) as undone, sandbox.started(command, context, output) as (child, attended):
            begun = True
            ended = process.watch(child, output, timeout, known, attended)
    except KeyboardInterrupt:
        if begun or output.size:
            context.unfinished = _told(output, CUT_SHORT, context, lambda: spill_path)[0]
        raise
    except OSError as error:
        done = "It had been started, and may have done its work." if begun else "Nothing was done."
        return failed(f"The command could not be run: {error.strerror or error}. {done}")
    finally:
        guard.remember(0)
        output.close()
    text = "\n".join(map(readable, output.ends())) if output.overflowed else readable(output.ends()[0])
    refused = lasting.line(undone)
    after = confinement_hint(text[:2000] + text[-4000:], ended.exit_code, lambda: sandbox.hint(context))
    after += refused + ending(ended.exit_code, ended.why, ended.left_over, timeout)
    told, cut = _told(output, after, context, lambda: spill_path)
    detail: dict[str, Any] = {"exit_code": ended.exit_code}
    detail |= {"spill": spill_path} if cut and not output.problem else {}
    detail |= {"timed_out": True} if ended.why == "timeout" else {}
    detail |= {"refusal": refused.strip()} if refused else {}
    return ToolResult(told, ended.exit_code == 0 and not refused, denied=bool(refused), detail=detail)


def _told(output: Output, after: str, context: ToolContext, spill: Callable[[], str]) -> tuple[str, bool]:
    """The output as it is told, with what comes `after` it, and whether its middle was left out."""
    from agent.tokens import estimate

    text = "\n".join(map(readable, output.ends())) if output.overflowed else readable(output.ends()[0])
    room = max(context.result_cap // 2, context.result_cap - estimate(after) - 4)
    cut = output.overflowed or estimate(text) > room
    if cut:
        output.spill_all()
        output.close()
        text, _ = head_and_tail(text, room, lambda characters, lines: left_out(output, characters, spill()))
    body = f"{text.rstrip(chr(10))}\n" if text.strip() else "(no output)\n"
    return body + after, cut
