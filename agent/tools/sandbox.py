"""How a tool process is confined, and by what.

Modes: `workspace-write` (the default: write in the roots and in a private temporary directory), `read-only` (only the
temporary directory), `off`. In both confined modes: no sockets unless the network is allowed, keys, histories, our
store and configuration not readable, no new privileges, limits on processes and core files, umask 077.

Mechanisms, the first that works: Landlock with a system call filter, bubblewrap, sandbox-exec (macOS), none. A Landlock
too old to keep signals inside (before Linux 6.12) comes after bubblewrap.

A hidden path *inside* a root (a store in the checkout) cannot be left out of a Landlock rule without losing new names
beside it. Then, in this order: it is covered by a mount only the tool process sees (root), bubblewrap does it, or
commands cannot create names beside it, and the result says so. Where a private path is not there yet, or is reached by
a link (the home directory as working directory), no mount helps: its directory is closed (`agent.tools.plan`).

Confinement is put on a short-lived thread, and a process started by that thread inherits it: no code runs between
fork and exec.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from agent.errors import ConfigError
from agent.tools import environment, landlock, paths, seccomp
from agent.tools.output import visible
from agent.tools.plan import Plan, bubblewrap_arguments, landlock_rules, plan_for, seatbelt_profile
from agent.tools.protocol import ToolContext

if TYPE_CHECKING:
    import subprocess

    from agent.tools.process import Attended, Output

MODES = ("read-only", "workspace-write", "off")
_SEES_TRUNCATION, _SEES_SIGNALS = 3, 6
"""Landlock's versions."""
_LONGEST_ARGUMENT = 100_000
"""Bytes; the kernel takes 128 KiB as one argument. A longer command goes through a file."""
_MORE_PROCESSES = 2_000
_LARGEST_FILE = 16 << 20
"""KiB that one file may grow to."""


# ---- effects ----


@lru_cache(maxsize=1)
def available() -> str:
    """What this system can confine with: "landlock", "bubblewrap", "seatbelt" or "none"."""
    if sys.platform == "darwin":
        return "seatbelt" if os.access("/usr/bin/sandbox-exec", os.X_OK) else "none"
    landlocked = _landlock_works()
    if landlocked and landlock.abi() >= _SEES_SIGNALS:
        return "landlock"
    return "bubblewrap" if bubblewrap_works() else "landlock" if landlocked else "none"


def _landlock_works() -> bool:
    """Whether a thread of this process can be confined, tried on one."""
    machine = seccomp.machine()
    if machine is None or not landlock.abi():
        return False
    try:
        listener = _in_thread(lambda: _confine_thread(Plan("/", [], []), machine))
    except OSError:
        return False
    if listener is not None:
        os.close(listener)
    return True


@lru_cache(maxsize=1)
def bubblewrap_works() -> bool:
    """Whether bubblewrap is there and may make namespaces here."""
    import shutil
    import subprocess

    if shutil.which("bwrap") is None:
        return False
    trial = [*bubblewrap_arguments(Plan("/", [], []), None, as_root=os.geteuid() == 0), "true"]
    return subprocess.run(trial, capture_output=True, timeout=10, check=False).returncode == 0


def mechanism(mode: str, demanded: bool = False) -> str:
    """What confines tool processes in `mode`: "landlock", "bubblewrap", "seatbelt", "none", or "off".

    Raises: `ConfigError` when the mode was asked for by name (`demanded`) and nothing here can do it.
    """
    if mode == "off":
        return "off"
    if mode not in MODES:
        raise ConfigError(f"There is no sandbox mode {mode!r}", f"Modes: {', '.join(MODES)}.")
    found = available()
    if found == "none" and demanded:
        raise ConfigError(
            f"The sandbox mode {mode} is not available here: no Landlock, bubblewrap or sandbox-exec that works",
            "Install bubblewrap and let it make namespaces, or use --sandbox off (commands then ask before they run).",
        )
    return found


def hint(context: ToolContext) -> str:
    """One clause for a model whose command may have met the sandbox; "" without one."""
    if mechanism(context.sandbox) in ("off", "none"):
        return ""
    roots = "only $TMPDIR" if context.sandbox == "read-only" else f"only {', '.join(context.roots)} and $TMPDIR"
    net = "" if context.allow_net else "; there is no network"
    plan = plan_for(context, "")
    beside = plan.shut()
    if beside and (plan.closed or not (may_mount() or bubblewrap_works())):
        shown = ", ".join(beside[:4]) + (" ..." if len(beside) > 4 else "")
        net += (
            f"; names directly in {shown} cannot be renamed or removed, and new ones can only be made with write_file"
        )
    return f"sandbox: {roots} can be written{net}"


def warning(context: ToolContext) -> str:
    """A sentence for the user whose run may change the home directory itself; "" for any other. Cheap: asks no kernel
    what confines."""
    home = os.path.realpath(paths.home_of(context))
    wide = [root for root in map(os.path.realpath, context.roots) if paths.inside(home, root)]
    if context.sandbox == "read-only" or not wide:
        return ""
    what = "is" if wide[0] == home else "holds"
    confined = context.sandbox != "off"
    cost = "; commands cannot make, rename or remove anything directly in it" if confined else ""
    return (
        f"{visible(wide[0])} {what} your home directory: tools can change what your shell and other programs start "
        f"with (.bashrc, .profile){cost}. Start in a project's own directory instead"
    )


@contextmanager
def started(
    command: str, context: ToolContext, output: Output
) -> Iterator[tuple[subprocess.Popen[bytes], Attended | None]]:
    """A running `bash`, confined as the context says, its output in one pipe, its input empty.

    The second value is what has to be answered meanwhile. What the pipe still holds at the end goes to `output`, also
    where an interrupt ends this before there was a value. Raises: `OSError` when it cannot be started *confined*; then it
    is not started at all.
    """
    tmpdir = prepared()
    plan = plan_for(context, tmpdir)
    environ = environment.scrubbed(context.environ, context.session_id, tmpdir, plan.cwd)
    by = mechanism(context.sandbox)
    if by == "landlock" and _needs_mounts(plan) and not may_mount() and bubblewrap_works():
        by = "bubblewrap"
    start = {"landlock": _landlocked, "bubblewrap": _bubblewrapped, "seatbelt": _seatbelted}.get(by, _free)
    with ExitStack() as stack:
        yield start(_Launch(_bash(command, environ, tmpdir), environ, plan, stack, output))


@lru_cache(maxsize=1)
def prepared() -> str:
    """What has to be so once before the first tool process; the answer is the run's private temporary directory."""
    import tempfile

    from agent.tools import guard

    guard.start()
    if sys.platform == "linux":
        from agent.tools import kernel

        environment.hide_own(os.environ)
        kernel.adopt_orphans()
    return os.path.realpath(tempfile.mkdtemp(prefix="agent-"))


def discard() -> None:
    """Remove the private temporary directory, where one was made. To be called at the end: nothing else does it."""
    if prepared.cache_info().currsize:
        import shutil

        shutil.rmtree(prepared(), ignore_errors=True)
        prepared.cache_clear()


def _bash(command: str, environ: dict[str, str], tmpdir: str) -> list[str]:
    """The argument list that sets the limits and runs `command`."""
    import shutil

    from agent.tools.process import tasks

    what = 'eval "$1"'
    if len(os.fsencode(command)) > _LONGEST_ARGUMENT:
        path = os.path.join(tmpdir, f"command-{os.urandom(8).hex()}.sh")
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:  # an earlier command could have put a link here, to be written through
            file.write(command.encode("utf-8", "surrogateescape"))
        what, command = '. "$1"', path
    shell = shutil.which("bash", path=environ["PATH"]) or "/bin/sh"
    limits = f"umask 077; ulimit -c 0; ulimit -u {tasks() + _MORE_PROCESSES} 2>/dev/null; ulimit -f {_LARGEST_FILE}"
    return [shell, "-c", f"{limits} 2>/dev/null; {what}", "bash", command]


class _Launch(NamedTuple):
    """A process to be started; when `stack` closes it has ended, and `output` has all that it printed."""

    argv: list[str]
    environ: dict[str, str]
    plan: Plan
    stack: ExitStack
    output: Output

    def spawn(self, before: Sequence[str] = (), pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        """Start it, behind the words of a program that confines it."""
        import subprocess

        from agent.tools import guard

        child = subprocess.Popen(
            [*before, *self.argv], cwd=self.plan.cwd, env=self.environ, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, pass_fds=pass_fds,
        )  # fmt: skip
        guard.remember(child.pid)  # at once: the agent may be killed in the next moment
        self.stack.callback(_end, child, self.output)
        return child


def _end(child: subprocess.Popen[bytes], output: Output) -> None:
    import signal

    from agent.tools.process import drain, signal_group

    signal_group(child, signal.SIGKILL)
    child.wait()
    if child.stdout is not None and not child.stdout.closed:
        drain(child.stdout.fileno(), output)
        child.stdout.close()


_Running = tuple["subprocess.Popen[bytes]", "Attended | None"]


def _free(launch: _Launch) -> _Running:
    return launch.spawn(), None


def _seatbelted(launch: _Launch) -> _Running:
    return launch.spawn(["/usr/bin/sandbox-exec", "-p", seatbelt_profile(launch.plan)]), None


def _bubblewrapped(launch: _Launch) -> _Running:
    machine, as_root = seccomp.machine(), os.geteuid() == 0
    if machine is None:
        return launch.spawn(bubblewrap_arguments(launch.plan, None, as_root)), None
    code = os.memfd_create("filter")
    launch.stack.callback(os.close, code)
    os.write(code, seccomp.program(machine, _families(launch.plan), ask=False))
    os.lseek(code, 0, os.SEEK_SET)
    return launch.spawn(bubblewrap_arguments(launch.plan, code, as_root), (code,)), None


def _landlocked(launch: _Launch) -> _Running:
    machine = seccomp.machine()
    if machine is None:
        raise OSError(errno.ENOSYS, "no system call filter for this machine")

    def start() -> _Running:
        listener = _confine_thread(launch.plan, machine)
        warden = None if listener is None else seccomp.Warden(listener, machine, launch.plan.may_change)
        if warden is not None:
            launch.stack.callback(warden.close)
        return launch.spawn(), warden

    return _in_thread(start)


def _families(plan: Plan) -> tuple[int, ...]:
    return seccomp.INTERNET if plan.allow_net else ()


def _confine_thread(plan: Plan, machine: seccomp.Machine) -> int | None:
    """Confine the calling thread and all it starts; the answer is where questions about files come in."""
    from agent.tools import kernel

    if _needs_mounts(plan) and may_mount():
        _cover(plan)
        plan = replace(plan, hidden=[])
    kernel.no_new_privileges()
    version = landlock.abi()
    landlock.restrict(version, plan.allow_net, landlock_rules(plan))
    kernel.drop_capabilities()
    return seccomp.load(machine, _families(plan), guard_truncation=version < _SEES_TRUNCATION)


def _needs_mounts(plan: Plan) -> bool:
    """Whether names can be made beside what is hidden, if it is covered. Not where those names are closed anyway."""
    return bool(plan.hidden_inside) and not plan.closed


def _cover(plan: Plan) -> None:
    """Mount emptiness over what is hidden, for the calling thread only; what is readable within stays so. A mount
    cannot be renamed or removed, so each directory that holds something hidden is mounted on itself."""
    from agent.tools import kernel

    kernel.own_mounts()
    kept = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in plan.readable}
    for path in plan.holding:
        kernel.bind(path, path)
    for path in plan.hidden:
        kernel.cover(path)
        for inner, descriptor in kept.items():
            if paths.inside(inner, path):
                os.makedirs(inner)
                kernel.bind(f"/proc/self/fd/{descriptor}", inner)
        kernel.seal(path)
    for descriptor in kept.values():
        os.close(descriptor)


@lru_cache(maxsize=1)
def may_mount() -> bool:
    """Whether a thread of this process may have mounts of its own."""
    from agent.tools import kernel

    try:
        _in_thread(kernel.own_mounts)
        return True
    except OSError:
        return False


_T = TypeVar("_T")


def _in_thread(function: Callable[[], _T]) -> _T:
    """Call `function` on a thread of its own, which ends with it; what it raises is raised here. An interrupt waits
    for it, so that nothing is half started."""
    import threading

    results: list[_T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        thread.join()
    except BaseException:
        thread.join()
        raise
    if errors:
        raise errors[0]
    return results[0]
