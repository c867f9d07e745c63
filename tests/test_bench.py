"""Each part of `python -m bench` runs and fills its rows. Never a time: a figure of a test run means nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.__main__ import main, parts
from bench.measuring import Figure, Row, figure, table


@pytest.mark.parametrize("part", parts(1, True, []))
def test_a_part_runs(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--only", part])
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(("| **", "| what"))]
    assert rows
    assert all(line.count("|") == 6 for line in rows)
    assert "1 runs" in lines[-1]


def test_a_row_says_whether_its_target_is_met() -> None:
    ours, bare = figure([2.0, 3.0, 10.0]), Figure(2.0, 2.0, 2.0)
    rows = [
        Row("part", "a", "ms", ours, bare, "bare", 1.5),
        Row("part", "b", "ms", ours, bare, "bare", 1.4),
        Row("part", "c", "ms", ours, target=5),
    ]
    assert [row.met for row in rows] == [True, False, True]
    assert table(rows).splitlines()[2:] == [
        "| **part** | | | | |",
        "| a | 3.00 (2.00–10.00) ms | bare: 2.00 (2.00–2.00) ms | 1.50 | ≤ 1.5 |",
        "| b | 3.00 (2.00–10.00) ms | bare: 2.00 (2.00–2.00) ms | 1.50 | ≤ 1.4 **missed** |",
        "| c | 3.00 (2.00–10.00) ms | – | – | ≤ 5 ms |",
    ]
    assert rows[0].as_json()["ratio"] == 1.5


def test_the_committed_figures_say_where_they_are_from(capsys: pytest.CaptureFixture[str]) -> None:
    """And README's table is made of them."""
    path = Path(__file__).parent.parent / "bench" / "results.json"
    about = json.loads(path.read_text(encoding="utf-8"))["about"]
    assert set(about) == {"machine", "python", "versions", "runs", "date", "noise", "command"}
    main(["--readme"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(rows) > 10 and all(line.count("|") == 6 for line in rows)
