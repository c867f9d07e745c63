"""What a running command dies of when the agent is killed: a small shell that waits for the agent's end.

SIGKILL and the out-of-memory killer leave no time to clean up, and a command that goes on while its session is resumed
would be done twice. So a watcher, in a session of its own, holds the read end of a pipe and remembers the last process
group it was told; the end of the pipe is the end of the agent, and then it kills that group. Processes that have left
the group outlive a SIGKILL of the agent; everything else ends them (`agent.tools.process`).
"""

from __future__ import annotations

import os
from functools import lru_cache

_WATCH = 'last=0; while read -r group; do last=$group; done; [ "$last" -gt 1 ] && kill -s KILL -- "-$last"; exit 0'


# ---- effects ----


@lru_cache(maxsize=1)
def start() -> int:
    """Start the watcher; the answer is where to write. -1 where it cannot be started: then there is no guard."""
    read_end, write_end = os.pipe()
    outputs = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    actions = [(os.POSIX_SPAWN_DUP2, read_end, 0), *outputs]
    try:
        os.posix_spawn("/bin/sh", ["sh", "-c", _WATCH], {}, file_actions=actions, setsid=True)
    except (OSError, NotImplementedError):
        os.close(write_end)
        return -1
    finally:
        os.close(read_end)
    return write_end


def remember(group: int) -> None:
    """From now on this process group ends with the agent; 0 for none."""
    pipe = start()
    if pipe >= 0:
        try:
            os.write(pipe, f"{group}\n".encode())
        except OSError:
            return  # the watcher is gone: a guard is not worth failing for
