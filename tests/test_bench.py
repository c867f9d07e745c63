"""Each part of `python -m bench` runs and fills its rows. Never a time: a figure of a test run means nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.__main__ import main, parts
from bench.measuring import Figure, Row, figure, table

PEER = """#!{python}
import json, os, sys, urllib.request
if sys.argv[1:] == ["--version"]:
    sys.exit("llm, version 1.2")
with open(os.environ["LLM_USER_PATH"] + "/extra-openai-models.yaml") as file:
    base = file.read().split("api_base: ")[1].strip()
body = json.dumps({{"model": "m", "messages": [{{"role": "user", "content": sys.argv[-1]}}]}}).encode()
with urllib.request.urlopen(base + "/chat/completions", body) as answer:
    print(len(answer.read()))
"""


def test_peers_are_measured_where_they_are_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    main(["--quick", "--only", "peers"])
    assert "| **" not in capsys.readouterr().out
    peer = tmp_path / "llm"
    peer.write_text(PEER.format(python=sys.executable))
    peer.chmod(0o755)
    main(["--quick", "--only", "peers"])
    row = capsys.readouterr().out.splitlines()[3]
    assert row.startswith("| start to first request, beside llm 1.2 |") and "| llm 1.2: " in row


@pytest.mark.parametrize("part", [part for part in parts(1, True, []) if part != "peers"])
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
    table = capsys.readouterr().out
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) > 10 and all(line.count("|") == 6 for line in rows)
    assert table in (path.parents[1] / "README.md").read_text(encoding="utf-8")
