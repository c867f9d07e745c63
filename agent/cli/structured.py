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

            self._validate = fastjsonschema.compile(self.schema)
        except Exception as problem:  # the library raises its own kinds and TypeError alike for a broken schema
            raise UsageError(f"--schema is no JSON schema: {problem}", "Drafts 4, 6 and 7 are understood") from None

    def response_format(self) -> dict[str, Any]:
        """The request's `response_format`."""
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": self.schema, "strict": True}}

    def check(self, answer: str) -> None:
        """Raises: AgentError, naming what does not fit."""
        import fastjsonschema

        try:
            self._validate(orjson.loads(answer))
        except orjson.JSONDecodeError as problem:
            raise AgentError(
                f"The answer is not JSON (--schema): {problem}", "Try a model with structured output"
            ) from None
        except fastjsonschema.JsonSchemaValueException as problem:
            said = problem.message.replace("data", "the answer", 1)
            raise AgentError(
                f"The answer does not match --schema: {said}", "The answer is saved all the same"
            ) from None


def _load(given: str) -> Any:
    text = given
    if not given.lstrip().startswith(("{", "true", "false")):
        try:
            with open(given, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as problem:
            raise UsageError(f"Cannot read the schema {given}: {problem}", "Give --schema a file, or JSON") from None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as problem:
        raise UsageError(f"--schema is not JSON: {problem}", "Give --schema a file, or JSON") from None
