"""What the model wrote as arguments, read against the tool's own schema.

One declaration serves both ways: the JSON schema that the model is shown is what its arguments are parsed by. Lenient
where leniency cannot change what happens: numbers as strings, null for absent, well-known other names, extra keys
(ignored, with a note), JSON encoded twice. Strict where it can: text that is cut or broken is never mended, since a
mended call is half a file or half a command.
"""

from __future__ import annotations

import json
from typing import Any

from agent.messages import Schema

OTHER_NAMES = {
    "file_path": "path", "filepath": "path", "filename": "path", "file": "path", "target_file": "path",
    "directory": "path", "cmd": "command", "script": "command", "text": "content", "contents": "content",
    "file_text": "content", "old_string": "old", "old_str": "old", "old_text": "old", "oldText": "old",
    "search": "old", "new_string": "new", "new_str": "new", "new_text": "new", "newText": "new", "replace": "new",
    "timeout_seconds": "timeout", "q": "query",
}  # fmt: skip
"""Names that other agents' tools use for the same thing. Used only where the schema lacks the one and has the other."""

_LONGEST_SHOWN = 200


class BadArguments(ValueError):
    """The call cannot be run as it stands; the text tells the model what to send instead."""


def parse(schema: Schema, text: str) -> tuple[dict[str, Any], list[str]]:
    """The arguments of a call and notes on what was ignored.

    Raises: `BadArguments` when the text is not one JSON object that fits the schema.
    """
    function = schema["function"]
    parameters = function["parameters"]
    given = _object(text, usage(function))
    return _fit(given, parameters, usage(function))


def usage(function: dict[str, Any]) -> str:
    """How a call looks, in one line: `edit_file{path: string, edits: [{old: string, new: string}]}`."""
    return f"{function['name']}{_shape(function['parameters'])}"


def _shape(schema: dict[str, Any]) -> str:
    if schema.get("type") == "array":
        return f"[{_shape(schema['items'])}]"
    if schema.get("type") != "object":
        return str(schema.get("type", "any"))
    required = schema.get("required", ())
    pairs = (
        f"{name}{'' if name in required else '?'}: {_shape(inner)}" for name, inner in schema["properties"].items()
    )
    return "{" + ", ".join(pairs) + "}"


def _object(text: str, form: str) -> dict[str, Any]:
    """The JSON object in `text`, unwrapped from one further encoding; empty text and null are {}."""
    value: Any = text
    for _ in range(2):
        if not isinstance(value, str):
            break
        value = _decoded(value, form) if value.strip() else {}
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadArguments(f"The arguments are {_kind(value)}, not a JSON object. Nothing was run. Send {form}")
    return value


def _decoded(text: str, form: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except RecursionError:
        raise BadArguments(f"The arguments are nested too deeply. Nothing was run. Send {form}") from None
    except ValueError as error:
        position = getattr(error, "pos", len(text))
        end = text[max(0, position - 30) : position + 30]
        if position >= len(text.rstrip()) or "Unterminated" in str(error):
            raise BadArguments(
                f"The arguments end in the middle ({len(text)} characters came): the output was cut, so nothing was "
                f"run and no file was touched. Send the whole call again; if it is long, in smaller parts. Form: {form}"
            ) from None
        raise BadArguments(
            f"The arguments are not valid JSON ({error}, near {end!r}). Nothing was run. Send {form}"
        ) from None


def _fit(given: dict[str, Any], schema: dict[str, Any], form: str) -> tuple[dict[str, Any], list[str]]:
    properties = schema["properties"]
    renamed = {_named(key, given, properties): value for key, value in given.items() if value is not None}
    renamed = _wrapped(renamed, properties)
    notes = [f"ignored unknown argument {_shown(key)}" for key in renamed if key not in properties]
    missing = [name for name in schema.get("required", ()) if name not in renamed]
    if missing:
        raise BadArguments(f"Missing: {', '.join(missing)}. Nothing was run. Send {form}")
    fitted = {}
    for key, value in renamed.items():
        if key in properties:
            fitted[key], inner = _value(key, value, properties[key], form)
            notes += inner
    return fitted, notes


def _named(key: str, given: dict[str, Any], properties: dict[str, Any]) -> str:
    other = OTHER_NAMES.get(key, key)
    return other if key not in properties and other in properties and given.get(other) is None else key


def _wrapped(given: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
    """`{old, new}` written beside `path` where a list of such objects is asked for becomes a list of one."""
    for name, inner in properties.items():
        items = inner.get("items", {})
        if name in given or items.get("type") != "object":
            continue
        wanted = {key: _named(key, given, items["properties"]) for key in given if key not in properties}
        one = {inside: given[key] for key, inside in wanted.items() if inside in items["properties"]}
        if set(items["required"]) <= set(one):
            rest = {key: value for key, value in given.items() if wanted.get(key) not in one}
            return {**rest, name: [one]}
    return given


def _value(key: str, value: Any, schema: dict[str, Any], form: str) -> tuple[Any, list[str]]:
    kind = schema.get("type")
    if kind == "array":
        return _array(key, value, schema["items"], form)
    if kind == "object":
        value = _object(value, form) if isinstance(value, str) else value
        if isinstance(value, dict):
            return _fit(value, schema, form)
    if kind == "string" and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return value if isinstance(value, str) else json.dumps(value), []
    if kind == "integer" and (number := _integer(value)) is not None:
        return number, []
    if kind == "boolean" and (flag := {"true": True, "false": False}.get(str(value).lower())) is not None:
        return flag, []
    raise BadArguments(f"{key} is {_kind(value)}, not {kind}: {_shown(value)}. Nothing was run. Send {form}")


def _array(key: str, value: Any, items: dict[str, Any], form: str) -> tuple[Any, list[str]]:
    if isinstance(value, str) and items.get("type") == "object":
        value = _decoded(value, form)
    if isinstance(value, dict) and items.get("type") == "object":
        value = [value]
    if not isinstance(value, list):
        raise BadArguments(f"{key} is {_kind(value)}, not a list. Nothing was run. Send {form}")
    fitted = [_value(f"{key}[{place}]", each, items, form) for place, each in enumerate(value)]
    return [each for each, _ in fitted], [note for _, notes in fitted for note in notes]


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value.replace("_", "") if isinstance(value, str) else value)
        return int(number) if number == int(number) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."
