"""recall: what an earlier part of the session said, after a compaction has taken it out of the context."""

from __future__ import annotations

from typing import Any

from agent.tools.protocol import ToolContext, ToolResult, failed, function_schema


class Recall:
    """Search the originals of the session; the run supplies the search."""

    name = "recall"
    schema = function_schema(
        "recall",
        "Search this session's earlier messages for words.",
        {"query": {"type": "string"}},
    )

    def run(self, args: dict[str, Any], context: ToolContext) -> ToolResult:
        if context.recall is None:
            return failed("There is nothing to recall: the whole session is still in the context.")
        return ToolResult(context.recall(args["query"]), ok=True)
