"""Every way a run can fail, as one tree, and the exit code of each.

    AgentError                        1   failed
    ├─ UsageError                     2   the command line or an environment value is wrong
    ├─ ConfigError                    3   configuration file, provider, built-in model
    │  └─ AuthError                   3   401, 403
    ├─ SessionError                   4   not found, ambiguous, damaged
    │  ├─ SessionNotFound             4
    │  ├─ SessionCorrupt              4   names the file and the line
    │  └─ SessionBusy                 7   another process holds the lock
    ├─ StorageError                   1   the disk refused a write (full, read-only, gone)
    ├─ DeniedError                    5   something was denied, with --strict
    ├─ LimitError                     6   --max-steps, answers cut again and again, or a context that cannot be made to fit
    ├─ APIError                       1   the server said no, for a reason that a retry does not mend
    │  │                                  (3 where it does not know the model or the address)
    │  ├─ ContextOverflow             6   prompt larger than the window (the loop recovers from it first)
    │  ├─ OutputCapTooLarge           1   max_tokens larger than the model allows (clamped and sent again)
    │  └─ TemporaryError             75   429, 5xx, network, a stream that ended early
    └─ Interrupted                  130   SIGINT; 143 SIGTERM, 129 SIGHUP, 124 --timeout

An error's text is one sentence in the user's terms, followed by what to do next. Only the screens (`agent.render`,
`agent.jsonlines`) print one, and only `agent.cli` makes an exit code of it. A tool's failure is not in the tree: it is a result that the model can act on.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes. Stable: scripts depend on them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    CONFIG = 3
    SESSION = 4
    DENIED = 5
    LIMIT = 6
    BUSY = 7
    TEMPORARY = 75
    TIMEOUT = 124
    INTERRUPTED = 130


class AgentError(Exception):
    """A failure that a person can act on.

    `hint` is the next command to type or the thing to change, or "". `kind` is a stable word for machines
    (`result.error.code` in JSON).
    """

    exit_code: int = Exit.FAILED
    kind = "failed"

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint

    def __str__(self) -> str:
        stop = "" if self.text.endswith((".", "?", "!")) else "."
        return f"{self.text}{stop} {self.hint}" if self.hint else self.text


class UsageError(AgentError):
    exit_code = Exit.USAGE
    kind = "usage"


class ConfigError(AgentError):
    exit_code = Exit.CONFIG
    kind = "config"


class AuthError(ConfigError):
    kind = "auth"


class SessionError(AgentError):
    exit_code = Exit.SESSION
    kind = "session"


class SessionNotFound(SessionError):
    kind = "session_not_found"


class SessionCorrupt(SessionError):
    """A complete line of the file cannot be read; `line` counts from 1."""

    kind = "session_corrupt"

    def __init__(self, text: str, hint: str = "", line: int = 0) -> None:
        super().__init__(text, hint)
        self.line = line


class SessionBusy(SessionError):
    exit_code = Exit.BUSY
    kind = "session_busy"


class StorageError(AgentError):
    kind = "storage"


class DeniedError(AgentError):
    exit_code = Exit.DENIED
    kind = "denied"


class LimitError(AgentError):
    exit_code = Exit.LIMIT
    kind = "limit"

    def __init__(self, text: str, hint: str = "", *, kind: str = "limit") -> None:
        super().__init__(text, hint)
        self.kind = kind


class APIError(AgentError):
    """The server refused or failed.

    `kind` is one of the failure classes of `agent.wire.faults`; `status` the HTTP status, or None when there was none;
    `retry_after` seconds the server asked for, or None; `body` the raw answer, redacted;
    `retries` how often a retry may help (None: as often as the ladder allows).
    """

    kind = "bad_request"
    retryable = False
    retries: int | None = None
    retry_after: float | None = None

    def __init__(
        self,
        text: str,
        hint: str = "",
        *,
        kind: str | None = None,
        status: int | None = None,
        body: str = "",
        parameter: str | None = None,
    ) -> None:
        super().__init__(text, hint)
        if kind is not None:
            self.kind = kind
        if kind == "not_found":
            self.exit_code = Exit.CONFIG
        self.status = status
        self.body = body
        self.parameter = parameter


class ContextOverflow(APIError):
    """The prompt is larger than the model's window.

    `have` and `limit` are tokens where the server stated them, else None; `limit_is_input` when the limit is for the
    prompt alone and not for prompt and output together. `prompt` and `completion` are the parts of `have` where the
    server told them apart.
    """

    exit_code = Exit.LIMIT
    kind = "overflow"
    prompt: int | None = None
    completion: int | None = None

    def __init__(
        self,
        text: str,
        hint: str = "",
        *,
        have: int | None = None,
        limit: int | None = None,
        limit_is_input: bool = False,
        status: int | None = None,
        body: str = "",
    ) -> None:
        super().__init__(text, hint, status=status, body=body)
        self.have = have
        self.limit = limit
        self.limit_is_input = limit_is_input


class OutputCapTooLarge(APIError):
    """`max_tokens` is more than the model gives; `limit` is the largest allowed, in tokens, where stated."""

    kind = "output_cap"

    def __init__(self, text: str, *, limit: int | None = None, status: int | None = None, body: str = "") -> None:
        super().__init__(text, status=status, body=body)
        self.limit = limit


class TemporaryError(APIError):
    exit_code = Exit.TEMPORARY
    kind = "temporary"
    retryable = True


class Interrupted(AgentError):
    """A signal or --timeout ended the run; what was streamed is on disk."""

    exit_code: int = Exit.INTERRUPTED
    kind = "interrupted"

    def __init__(self, text: str, exit_code: int = Exit.INTERRUPTED) -> None:
        super().__init__(text)
        self.exit_code = exit_code
