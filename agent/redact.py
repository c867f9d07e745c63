"""Taking secrets out of text that a person, a log or a file will see.

What goes: the values this process knows to be keys (8 characters and more), authorization headers, the user part of a
URL, and anything shaped like a well-known kind of key. Names of variables and headers stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

HIDDEN = "[redacted]"
_SECRET_NAME = r"(?i)(?:key|token|secret|passw|authorization|credential|cookie)"
_SHAPES = (
    r"(?i)(?P<a>(?:authorization|proxy-authorization|x-api-key|api-key)[\"']?\s*[:=]\s*[\"']?(?:bearer |basic )?)[^\s\"',}]+"
    r"|(?P<b>\bbearer )[A-Za-z0-9._~+/=-]{8,}"
    r"|(?P<c>\b[a-z][a-z0-9+.-]{0,20}://)[^/\s@\"']{1,300}@"
    r"|(?P<d>)\b(?:sk|pk|rk|gsk|xai|key|ghp|gho|github_pat|hf|AIza|AKIA)[-_]?[A-Za-z0-9_-]{16,}"
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without secrets: `secrets` are known values, shorter ones than 8 characters are left alone."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= 8:
            text = text.replace(secret, HIDDEN)
    return re.sub(_SHAPES, lambda m: (m["a"] or m["b"] or m["c"] or "") + HIDDEN + ("@" if m["c"] else ""), text)


def secret_values(named: Mapping[str, str]) -> list[str]:
    """The values among these (an environment, headers) whose names say they are secret."""
    return [value for name, value in named.items() if re.search(_SECRET_NAME, name) and len(value) >= 8]
