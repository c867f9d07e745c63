"""What a tool process is told: a copy of the environment without anything secret or anything that runs code.

A variable is secret by its name (`*_KEY`, `*_TOKEN`, `*_SECRET`, `*PASSWORD*` and their like), by the shape of its
value (the prefixes of well-known keys, a URL with a password), or because its value is that of a secret one. So the
user's keys reach no tool; and the agent's own copy in `/proc/<pid>/environ` is overwritten before the first tool runs,
since a process of the same user could read it there where nothing confines it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_SECRET_NAME = re.compile(
    r"(^|_)(API_?|ACCESS_?|PRIVATE_?|SIGNING_?|ENCRYPTION_?|SSH_?|MASTER_?)?KEYS?(_|$)|APIKEY|TOKEN|SECRET|PASSW(OR)?D"
    r"|PASSPHRASE|CREDENTIAL|COOKIE|(^|_)(PAT|PWD|PASS|AUTH|BEARER|DSN)$|CONNECTION_STRING|SIGNATURE",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"^(sk-|sk_|rk_live|pk_live|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|xapp-|AKIA|ASIA|AIza|ya29\.|hf_|npm_|pypi-|"
    r"dop_v1_|gsk_|xai-|SG\.|eyJ[\w-]{10,}\.eyJ|-----BEGIN)|://[^/@\s:]*:[^/@\s]+@"
)
_NOT_SECRET = frozenset({"PWD", "OLDPWD"})
_RUNS_CODE = re.compile(r"^(BASH_ENV|ENV|PROMPT_COMMAND|BASH_FUNC_.*|BASHOPTS|SHELLOPTS|PS[0-4])$")
_LEADS_OUT = re.compile(r"^(SSH_AUTH_SOCK|SSH_AGENT_PID|GPG_AGENT_INFO|DBUS_SESSION_BUS_ADDRESS|DOCKER_HOST|AGENT_.*)$")
_FIXED = {
    "TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true", "EDITOR": "true", "VISUAL": "true", "DEBIAN_FRONTEND": "noninteractive", "PIP_NO_INPUT": "1",
}  # fmt: skip
"""Nobody is there to page, edit or answer."""

_LEAST_SECRET = 8
"""Characters; a shorter value is too common to be known again."""


def secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that are secret by name or by value."""
    return {
        name: value
        for name, value in environ.items()
        if (_SECRET_NAME.search(name) and name not in _NOT_SECRET) or _SECRET_VALUE.search(value)
    }


def scrubbed(environ: Mapping[str, str], session_id: str, tmpdir: str, cwd: str) -> dict[str, str]:
    """The environment of a tool process."""
    hidden = secrets(environ)
    values = [value for value in hidden.values() if len(value) >= _LEAST_SECRET]
    kept = {
        name: value
        for name, value in environ.items()
        if name not in hidden
        and not _RUNS_CODE.match(name)
        and not _LEADS_OUT.match(name)
        and not any(secret in value for secret in values)
    }
    own = {"AGENT_SESSION_ID": session_id, "TMPDIR": tmpdir, "TMP": tmpdir, "TEMP": tmpdir, "PWD": cwd}
    return {"PATH": os.defpath, **kept, **_FIXED, **own}


# ---- effects ----


def hide_own(environ: Mapping[str, str]) -> None:
    """Overwrite the values of secret variables where the kernel shows this process's environment to others.

    Python's copy in `os.environ` stays as it is. Linux only; where it cannot be done nothing happens, as the sandbox
    is the first line.
    """
    from agent.tools import kernel

    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
        start, end = int(fields[47]), int(fields[48])  # env_start and env_end, fields 50 and 51 of proc(5)
        with open("/proc/self/environ", "rb") as file:
            block = file.read()
        if start and end - start >= len(block):
            for offset, length in secret_spans(block, environ):
                kernel.overwrite(start + offset, length)
        kernel.close_memory()
    except (OSError, ValueError, IndexError):
        return


def secret_spans(block: bytes, environ: Mapping[str, str]) -> list[tuple[int, int]]:
    """Where (offset, length) the values of secret variables stand in an environment block `NAME=value\\0...`."""
    hidden = {os.fsencode(name) for name in secrets(environ)}
    found, offset = [], 0
    for item in block.split(b"\0"):
        name, separator, value = item.partition(b"=")
        own = {os.fsdecode(name): os.fsdecode(value)} if separator else {}
        if value and (name in hidden or secrets(own)):
            found.append((offset + len(name) + 1, len(value)))
        offset += len(item) + 1
    return found
