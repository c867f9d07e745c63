"""From argv to an exit code: the only place that exits, and the last that prints an error.

`main` is what a test calls and what the `agent` command runs. The grammar of the command line is in
`agent.cli.grammar`, one run in `agent.cli.run`; `-V` imports neither, since it should cost no more than Python itself.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import NoReturn

from agent.cli.options import version_line
from agent.errors import AgentError, Exit

VERSION = (["-V"], ["--version"])
INSTALL_AGAIN = (
    "Install agent again, with the packages it needs, in the environment this command runs in (README, Try it)"
)


def entry() -> NoReturn:
    """The `agent` command. Leaves at once when all is on disk: unwinding the interpreter would cost some 20 ms."""
    gc.set_threshold(50_000)  # starting up makes no garbage: looking for it while modules load takes 8 ms of 120
    open_standard_streams()
    if sys.argv[1:] not in VERSION:
        from agent.signals import end_at_once

        end_at_once()
    code: int = Exit.DONE
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # the reader of `agent sessions list | head` has gone: what was found out until then counts
    except OSError as problem:
        os.write(2, f"agent: Cannot write to standard output: {problem.strerror}\n".encode())
        code = Exit.FAILED
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    os._exit(code)


def open_standard_streams() -> None:
    """Fill the standard descriptors that were closed, so that no file of ours gets their number: a session opened as
    descriptor 2 would take what is meant for stderr. Writing to a stdout that was closed is still an error.
    """
    for fd, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, mode)  # the lowest free number is the one that is missing
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  it stays open
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def main(argv: list[str]) -> int:
    """Run one command line and return its exit code. Never raises an AgentError; Ctrl-C is 130."""
    if argv in VERSION:
        sys.stdout.write(f"{version_line()}\n")
        return Exit.DONE
    from agent.cli.grammar import invoke
    from agent.lines import visible

    try:
        return invoke(argv)
    except AgentError as error:
        line = " ".join(argv).replace("--output-format=", "--output-format ")
        if "--json" in argv or "--output-format json" in line or "--output-format stream-json" in line:
            _tell_as_json(error)
            return error.exit_code
        with suppress(OSError):  # nobody reads it: the code says it all the same
            sys.stderr.write(f"agent: {visible(str(error))}\n")
        return error.exit_code
    except FileNotFoundError:
        if _somewhere():
            raise
        sys.stderr.write("agent: The working directory has been removed. Change to another one, or give -C DIR\n")
        return Exit.USAGE
    except ModuleNotFoundError as missing:
        # In words even where JSON was asked for: what writes the JSON may be what is missing.
        sys.stderr.write(f"agent: This installation lacks the package {missing.name}. {INSTALL_AGAIN}\n")
        return Exit.CONFIG
    except KeyboardInterrupt as signal:
        return getattr(signal, "exit_code", Exit.INTERRUPTED)


def _somewhere() -> bool:
    """Whether the working directory is still there."""
    try:
        return bool(os.getcwd())
    except FileNotFoundError:
        return False


def _tell_as_json(error: AgentError) -> None:
    """What is wrong with a command line that asked for events: a `result`, the only and last line."""
    from agent.jsonlines import JsonLines
    from agent.render import Output

    JsonLines(Output(1), Output(2), partial=False, once=True, resume="agent").fail(error)
