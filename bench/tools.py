"""What a tool call costs: a bash round through the box against a bare subprocess, with and without confinement.

    python -m bench.tools [ROUNDS]

Each round is measured in turn with the others, so that a busy machine slows all alike; the figures are medians. The
budget: a round through the box without confinement at most three times a bare subprocess; confinement comes apart.
Prints one JSON object: milliseconds, and ratios to the bare subprocess.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from agent.messages import ToolCall
from agent.tools import DEFAULT_TOOLS, Permissions, ToolContext, build_toolbox, sandbox

BUDGET = 3.0
COMMAND = "echo hi"


def bare() -> None:
    """What the same command costs without any of this."""
    subprocess.run(["bash", "-c", COMMAND], stdin=subprocess.DEVNULL, capture_output=True, check=True)


def through_the_box(directory: str, mode: str, by: str) -> Callable[[], None]:
    """One call of bash, confined by `by`."""
    files = os.path.join(directory, "files")
    os.makedirs(files, exist_ok=True)
    context = ToolContext(cwd=directory, roots=[directory], files_dir=lambda: files, sandbox=mode)
    box = build_toolbox(DEFAULT_TOOLS, context, Permissions(sandboxed=True))

    def once() -> None:
        sandbox.available = lambda: by  # type: ignore[assignment]
        result = box.run(ToolCall("1", "bash", json.dumps({"command": COMMAND})))
        assert result.text == "hi\nexit status 0", result.text

    return once


def edits(directory: str) -> Callable[[], None]:
    """One read and one edit of a file of 1,000 lines, with backup and fsync."""
    files = os.path.join(directory, "files")
    context = ToolContext(cwd=directory, roots=[directory], files_dir=lambda: files)
    box = build_toolbox(DEFAULT_TOOLS, context, Permissions())
    path = os.path.join(directory, "file")
    with open(path, "w") as file:
        file.write("".join(f"line {n}\n" for n in range(1000)))
    turn = [0]

    def once() -> None:
        old, turn[0] = turn[0], turn[0] + 1
        marked = (f"line 500{'x' * (old % 2)}\n", f"line 500{'x' * (turn[0] % 2)}\n")
        box.run(ToolCall("1", "read_file", '{"path": "file"}'))
        edit = {"path": "file", "edits": [{"old": marked[0], "new": marked[1]}]}
        result = box.run(ToolCall("1", "edit_file", json.dumps(edit)))
        assert result.ok, result.text

    return once


def measure(rounds: int) -> dict[str, object]:
    """Milliseconds per call of every way that works here."""
    available = sandbox.available
    try:
        return _measure(rounds)
    finally:
        sandbox.available = available


def _measure(rounds: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as directory:
        ways: dict[str, Callable[[], None]] = {"bare subprocess": bare}
        ways["box"] = through_the_box(directory, "off", "none")
        for name in {sandbox.available(), *(["bubblewrap"] if sandbox.bubblewrap_works() else [])} - {"none"}:
            ways[f"box, {name}"] = through_the_box(directory, "workspace-write", name)
        ways["read and edit"] = edits(directory)
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, once in ways.items():
                start = time.perf_counter()
                once()
                taken[name].append((time.perf_counter() - start) * 1000)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    ratios = {name: round(value / medians["bare subprocess"], 2) for name, value in medians.items()}
    return {
        "milliseconds": {name: round(value, 2) for name, value in medians.items()},
        "ratios": ratios,
        "rounds": rounds,
        "within_budget": ratios["box"] <= BUDGET,
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 100), indent=2))  # noqa: T201
