"""What servers have taught us, kept between runs: one small JSON file.

    {"version": 1, "servers": {"<base URL> <model>": {"window": 8192, "max_output": ..., "dialect": {...}, "at": ...}}}

`window` and `max_input` (tokens) were stated by an overflow answer or seen in a usage, `asked` was answered to a question,
`low` and `most` are prompts that it said it had read (`agent.wire.truncation`). A server on this machine is believed for a day:
it may have been started anew with other settings. The file is a convenience: one that cannot be read counts as empty, one that
cannot be written is let be.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from agent.config import state_home
from agent.wire.providers import is_loopback

LOCAL_SECONDS = 86400


def default_path(environ: Mapping[str, str]) -> str | None:
    """`$XDG_STATE_HOME/agent/learned.json`; None without a home."""
    home = state_home(environ)
    return os.path.join(home, "learned.json") if home else None


class Memory:
    """Facts by base URL and model. With `path` None nothing is kept on disk."""

    def __init__(self, path: str | None = None, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._servers: dict[str, dict[str, Any]] | None = None

    def of(self, base_url: str, model: str) -> dict[str, Any]:
        """What is known of one model of one server; {} when nothing is."""
        found = self._loaded().get(f"{base_url} {model}")
        if not isinstance(found, dict):
            return {}
        at = found.get("at")
        old = not isinstance(at, int) or self._clock() - at > LOCAL_SECONDS
        return {} if old and is_loopback(base_url) else dict(found)

    def learn(self, base_url: str, model: str, **facts: Any) -> None:
        """Keep facts (None forgets one), together with what other processes wrote meanwhile."""
        self._servers = self._read() if self.path else self._loaded()
        known = self.of(base_url, model)
        changed = {k: v for k, v in {**known, **facts}.items() if v is not None}
        if {k: v for k, v in changed.items() if k != "at"} == {k: v for k, v in known.items() if k != "at"}:
            return
        self._servers[f"{base_url} {model}"] = {**changed, "at": int(self._clock())}
        self._write()

    # ---- effects ----

    def _loaded(self) -> dict[str, dict[str, Any]]:
        if self._servers is None:
            self._servers = self._read()
        return self._servers

    def _read(self) -> dict[str, dict[str, Any]]:
        if not self.path:
            return {}
        try:
            with open(self.path, "rb") as file:
                stored = orjson.loads(file.read())
        except (OSError, ValueError):
            return {}
        servers = stored.get("servers") if isinstance(stored, dict) else None
        return servers if isinstance(servers, dict) else {}

    def _write(self) -> None:
        """Replace the file whole, mode 0600; a disk that refuses is no reason to fail a turn."""
        if not self.path:
            return
        fresh = f"{self.path}.{os.getpid()}.tmp"
        try:
            os.makedirs(os.path.dirname(self.path), 0o700, exist_ok=True)
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(orjson.dumps({"version": 1, "servers": self._servers}))
            os.replace(fresh, self.path)
        except OSError:
            try:
                os.unlink(fresh)
            except OSError:
                pass
