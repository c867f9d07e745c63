"""`--schema`: a final answer that is JSON of a given shape.

The server is asked for structured output (`response_format`) where it has that; whatever it has, the answer is checked
here, by fastjsonschema (drafts 4, 6 and 7), before the run may end well.
"""

from __future__ import annotations

from typing import Any

import orjson

from agent.errors import AgentError, UsageError


class Shape:
    """A JSON schema, from a file's path or as JSON text. Raises: UsageError when it is none."""

    def __init__(self, given: str) -> None:
        self.schema = _load(given)
        try:
            import fastjsonschema

            self._validate = fastjsonschema.compile(self.schema, handlers=dict.fromkeys(_ELSEWHERE, _refuse))
        except Exception as problem:  # the library raises its own kinds and TypeError alike for a broken schema
            hint = "Drafts 4, 6 and 7 are understood, with references inside the schema"
            raise UsageError(f"--schema is not a valid JSON schema: {problem}", hint) from None

    def response_format(self) -> dict[str, Any]:
        """The request's `response_format`."""
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": self.schema, "strict": True}}

    def check(self, answer: str, hint: str) -> None:
        """Raises: AgentError, naming what does not fit, with `hint` at where the answer is."""
        import fastjsonschema

        try:
            self._validate(orjson.loads(answer))
        except orjson.JSONDecodeError as problem:
            raise AgentError(
                f"The answer is not JSON (--schema): {problem}", "Try a model with structured output"
            ) from None
        except fastjsonschema.JsonSchemaValueException as problem:
            said = problem.message.replace("data", "the answer", 1)
            raise AgentError(f"The answer does not match --schema: {said}", hint) from None


_ELSEWHERE = ("http", "https", "ftp", "file", "data")
"""What a reference may not lead to: the library would fetch it, and nothing but the model's server is ever asked."""


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")


def _load(given: str) -> Any:
    text = given
    if not given.lstrip().startswith(("{", "true", "false")):
        try:
            with open(given, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
            raise UsageError(f"Cannot read the schema {given}: {why}", "Give --schema a file, or JSON") from None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as problem:
        raise UsageError(f"--schema is not JSON: {problem}", "Give --schema a file, or JSON") from None
