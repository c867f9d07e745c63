"""From argv to an exit code: the only place that exits, and the last that prints an error.

`main` is what a test calls and what the `agent` command runs. The grammar of the command line is in `agent.grammar`,
one run in `agent.run`; `-V` imports neither, since it should cost no more than Python itself.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

from agent.errors import AgentError, Exit
from agent.options import version_line


def entry() -> NoReturn:
    """The `agent` command. Leaves at once when all is on disk: unwinding the interpreter would cost some 20 ms."""
    gc.set_threshold(50_000)  # starting up makes no garbage: looking for it while modules load takes 8 ms of 120
    code = main(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or Exit.FAILED
    os._exit(code)


def main(argv: list[str]) -> int:
    """Run one command line and return its exit code. Never raises an AgentError; Ctrl-C is 130."""
    if argv in (["-V"], ["--version"]):
        sys.stdout.write(f"{version_line()}\n")
        return Exit.DONE
    from agent.grammar import invoke
    from agent.render import visible

    try:
        return invoke(argv)
    except AgentError as error:
        if any(
            word in ("--json", "stream-json", "--output-format=json", "--output-format=stream-json") for word in argv
        ):
            _tell_as_json(error)
            return error.exit_code
        sys.stderr.write(f"agent: {visible(str(error))}\n")
        return error.exit_code
    except KeyboardInterrupt as signal:
        return getattr(signal, "exit_code", Exit.INTERRUPTED)
    except BrokenPipeError:  # the reader of `agent sessions list | head` has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Exit.DONE


def _tell_as_json(error: AgentError) -> None:
    """What is wrong with a command line that asked for events: a `result`, the only and last line."""
    from agent.jsonlines import JsonLines
    from agent.render import Output

    JsonLines(Output(1), Output(2), partial=False, once=True, resume="agent").fail(error)
