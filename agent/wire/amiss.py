"""What a server put into a 200 in place of an answer: whether an event is an error, and a chunk inside an envelope.

Errors come under `error`, under keys of their own, as a code and a sentence, inside another object, beside choices that
are null or empty, or inside a choice. What else holds choices or a usage is an answer; an error object with nothing in it
says that all is well.

Does not know which kind of error it is.
"""

from __future__ import annotations

import re
from typing import Any

from agent.wire.sse import Event

_ERROR_KEYS = (
    "error_code", "errors", "error_msg", "error_message", "error_type", "errormessage", "errortype", "errorcode",
)  # fmt: skip
_FINE = (None, 0, "0", 200, "200")
_FAILED = ("error", "failed", "failure")


def fault_in(event: Event) -> Any:
    """What an event says went wrong (a JSON value or text), or None for an ordinary event."""
    value = event.value
    if event.name == "error":
        return value if value is not None else event.data.decode("utf-8", "replace")
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if (error and _is_error(error)) or value.get("type") in ("error", "response.failed"):
        return value
    base = value.get("base_resp")
    if isinstance(base, dict) and base.get("status_code") not in _FINE:
        return value
    if beside := _fault_beside(value):
        return beside
    if value.get("choices"):
        return _fault_in_choice(value["choices"])
    inner = unwrapped(value)
    if inner is not value and (inner.get("choices") or inner.get("candidates")):
        return _fault_in_choice(inner.get("choices"))
    if value.get("usage"):
        return None
    found = _lowered(value)
    held = found.get("response")  # Tencent cloud
    if _is_error(found.get("error")) or (isinstance(held, dict) and _is_error(_lowered(held).get("error"))):
        return value
    if found.get("object") == "error" or any(found.get(key) for key in _ERROR_KEYS):
        return value
    if isinstance(found.get("detail"), (str, list, dict)) or str(found.get("status")).lower() in _FAILED:
        return value
    return value if says_something(value) and _is_refused(found) else None


def says_something(value: dict[str, Any]) -> bool:
    """Whether a value has a sentence for people where errors have theirs. Only where no answer came is it one."""
    found = _lowered(value)
    return any(isinstance(said := found.get(key), str) and said.strip() for key in ("message", "msg", "details"))


def _fault_in_choice(choices: Any) -> Any:
    """The error that stands in a choice, in its delta or its message, and nothing of what stands beside it."""
    for choice in choices if isinstance(choices, list) else []:
        for holder in (choice, choice.get("delta"), choice.get("message")) if isinstance(choice, dict) else ():
            if isinstance(holder, dict) and _is_error(holder.get("error")):
                return {"error": holder["error"]}
    return None


def _fault_beside(value: dict[str, Any]) -> dict[str, Any] | None:
    """The error in an extension (`x_groq`): it says why an answer was stopped early."""
    held = (inner for key, inner in value.items() if key.startswith("x_") and isinstance(inner, dict))
    return next(({"error": inner["error"]} for inner in held if _is_error(inner.get("error"))), None)


def unwrapped(value: dict[str, Any]) -> dict[str, Any]:
    """A chunk inside a gateway's envelope, or the value itself."""
    if "choices" not in value:
        for key in ("data", "result", "response", "output"):
            inner = value.get(key)
            if isinstance(inner, dict) and any(isinstance(inner.get(k), list) for k in ("choices", "candidates")):
                return inner
    return value


def _lowered(value: dict[str, Any]) -> dict[str, Any]:
    return {str(key).lower(): inner for key, inner in value.items()}


def _is_error(error: Any) -> bool:
    if isinstance(error, dict):
        told = {key: value for key, value in error.items() if value}
        fine = "code" in error and error["code"] in _FINE[1:] and told.keys() <= {"code", "message"}
        return bool(told) and not (
            fine and str(error.get("message") or "").lower() in ("", "success", "succeeded", "ok")
        )
    return bool(error) and error is not True


def _is_refused(value: dict[str, Any]) -> bool:
    status = str(value.get("status"))
    return value.get("success") is False or value.get("code") not in _FINE or bool(re.fullmatch(r"[45]\d\d", status))
