"""What one command may do, and the same in the words of each mechanism.

A plan names directories that can be written, private paths, and what follows when a private path lies *inside* a
writable directory (the home directory as working directory, a store in the checkout):

    hidden     private paths that exist: not read, not written
    holding    directories on the way to a private path: not renamed, not removed, or the way would lead elsewhere
    names      what must stay as it is for the way to stay: names not there yet, so that no command can make a key, a
               store or a configuration of its own, and symbolic links
    closed     the directories that hold `names`: nothing is made, renamed or removed directly in them; what is
               in them can be written in place, and the directories in them are open

All that is said here is of paths. Where the kernel takes only directories (Landlock, mounts), `closed` is shut whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from agent.tools import landlock, paths
from agent.tools.protocol import ToolContext

_SYSTEM = ("/dev", "/proc", "/sys")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_AS_ROOT = ["--cap-drop", "ALL", "--cap-add", "CAP_DAC_OVERRIDE", "--cap-add", "CAP_FOWNER", "--cap-add", "CAP_FSETID"]
_MOST_BINDS = 2_000
"""bubblewrap takes 9,000 words; what is beyond stays read-only."""
_MOST_LINKS = 40
"""As the kernel follows."""


@dataclass(frozen=True)
class Plan:
    """What one command may do: `writable` and `readable` override `hidden`; all resolved, all but `names` existing."""

    cwd: str
    writable: list[str]
    hidden: list[str]
    readable: list[str] = field(default_factory=list)
    allow_net: bool = False
    holding: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @property
    def closed(self) -> list[str]:
        """The directories in which no name may come, go or change."""
        return sorted({os.path.dirname(name) for name in self.names})

    @property
    def hidden_inside(self) -> list[str]:
        """The hidden paths that lie in a writable directory."""
        return [path for path in self.hidden if _within(path, self.writable)]

    def may_change(self, path: str) -> bool:
        """Whether the mode of a resolved path may be changed."""
        return _within(path, self.writable) and not _within(path, self.hidden)

    def shut(self) -> list[str]:
        """The directories in which a mechanism without mounts makes no names: on the way to what is hidden or named."""
        ends = [*self.hidden_inside, *self.names]
        roots = [root for root in self.writable if any(path != root and paths.inside(path, root) for path in ends)]
        return sorted({*roots, *self.holding, *self.closed})

    def open(self, root: str, listing: Callable[[str], list[str]]) -> list[str]:
        """What of one writable directory can be written, as the fewest paths."""
        return list(landlock.uncovered(root, [*self.hidden, *_SYSTEM], listing, self.closed))


def _within(path: str, directories: Iterable[str]) -> bool:
    return any(paths.inside(path, directory) for directory in directories)


def landlock_rules(plan: Plan, listing: Callable[[str], list[str]] = os.listdir) -> list[tuple[str, int]]:
    """Landlock's rules for a plan: what may be read, listed, used and written."""
    rules = [("/", landlock.READ_DIR)]
    hidden = [*plan.hidden, "/dev"]
    rules += [(path, landlock.READ) for path in landlock.uncovered("/", hidden, listing)]
    rules += [(path, landlock.READ) for path in plan.readable]
    rules += [(f"/dev/{name}", landlock.USE_DEVICE) for name in _DEVICES]
    for root in plan.writable:
        rules += [(path, landlock.READ | landlock.WRITE) for path in plan.open(root, listing)]
    return rules


def bubblewrap_arguments(plan: Plan, filter_descriptor: int | None, as_root: bool) -> list[str]:
    """The command line of bubblewrap for a plan, up to the command. Root is left only what work on files needs."""
    words = ["bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--ro-bind", "/", "/"]
    words += ["--dev", "/dev", "--proc", "/proc"]
    words += _AS_ROOT if as_root else []
    words += [] if plan.allow_net else ["--unshare-net"]
    for path in _bound(plan):
        words += ["--bind-try", path, path]
    for path in plan.hidden:
        words += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]
    for path in plan.readable:
        words += ["--ro-bind", path, path]
    for path in filter(os.path.isdir, plan.hidden):
        words += ["--remount-ro", path]
    words += [] if filter_descriptor is None else ["--seccomp", str(filter_descriptor)]
    return [*words, "--chdir", plan.cwd, "--"]


def _bound(plan: Plan) -> list[str]:
    """What bubblewrap mounts writable. A mount cannot be renamed or removed, so all of `holding` are mounts too, or
    stay in the read-only rest."""
    bound: list[str] = []
    for root in plan.writable:
        if any(paths.inside(path, root) for path in plan.closed):
            bound += [path for path in plan.open(root, os.listdir) if not os.path.islink(path)][:_MOST_BINDS]
        else:
            bound += [root, *(path for path in plan.holding if paths.inside(path, root))]
    return bound


def seatbelt_profile(plan: Plan) -> str:
    """The profile of sandbox-exec for a plan."""
    lines = ["(version 1)", "(allow default)", "(deny file-write*)"]
    lines += [f"(allow file-write* (subpath {_quoted(root)}))" for root in plan.writable]
    lines += [f'(allow file-write* (literal "/dev/{name}"))' for name in _DEVICES]
    lines += [f"(deny file-write-unlink (literal {_quoted(path)}))" for path in plan.holding]
    lines += [f"(deny file-write* (subpath {_quoted(path)}))" for path in plan.names]
    lines += [f"(deny file-read* file-write* (subpath {_quoted(path)}))" for path in plan.hidden]
    lines += [f"(allow file-read* (subpath {_quoted(path)}))" for path in plan.readable]
    lines += [] if plan.allow_net else ["(deny network*)"]
    return "\n".join([*lines, "(deny signal (target others))"])


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


# ---- effects ----


def plan_for(context: ToolContext, tmpdir: str) -> Plan:
    """What the mode of a run lets one command do."""
    roots = [] if context.sandbox == "read-only" else [os.path.realpath(root) for root in context.roots]
    hidden = sorted({path for path in paths.hidden_paths(context) if os.path.lexists(path)})
    inner = [one for one in hidden if any(one != other and paths.inside(one, other) for other in hidden)]
    outer = [path for path in hidden if path not in inner]
    own = [os.path.realpath(path) for path in context.files_dirs]
    writable = [*roots, tmpdir] if tmpdir else roots
    ways = [way(path) for path in paths.private_names(context)]
    holding = sorted({each for on_the_way, _ in ways for each in on_the_way})
    names = sorted({each for _, changing in ways for each in changing})
    return Plan(
        os.path.realpath(context.cwd), writable, outer, own, context.allow_net,
        [path for path in holding if _strictly(path, writable) and not _within(path, outer)],
        [path for path in names if _strictly(path, writable) and not _within(os.path.dirname(path), outer)],
    )  # fmt: skip


def _strictly(path: str, directories: Iterable[str]) -> bool:
    return any(path != directory and paths.inside(path, directory) for directory in directories)


def way(path: str) -> tuple[list[str], list[str]]:
    """The directories passed on the way to an absolute path, and the names that decide where it leads: each symbolic
    link on it, and the first thing that is not there or is no directory."""
    at, left = "/", _parts(path)
    passed: list[str] = []
    deciding: list[str] = []
    while left and len(deciding) <= _MOST_LINKS:
        name = left.pop(0)
        below = os.path.dirname(at) if name == ".." else os.path.join(at, name)
        if os.path.islink(below):
            deciding.append(below)
            target = os.readlink(below)
            at, left = "/" if os.path.isabs(target) else at, [*_parts(target), *left]
        elif left and os.path.isdir(below):
            passed.append(below)
            at = below
        elif left or not os.path.lexists(below):
            return passed, [*deciding, below]
    return passed, deciding


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
