"""Everything that is measured here, in one command.

    python -m bench [--runs 15] [--quick] [--only PART] [--write]
    python -m bench --readme

Prints a Markdown table; `--write` also puts the figures, with machine, versions and command, into bench/results.json,
from which `--readme` prints README's numbers. `--quick` is for a test: everything small, once or twice, and no figure
of it means anything.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable

from bench import inside, peers, processes
from bench.measuring import Row, about, noise, short_table, table

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results.json")


def parts(runs: int, quick: bool, bare: list[float]) -> dict[str, Callable[[], list[Row]]]:
    """The measurements by name. `bare` gets the times of a bare interpreter."""
    few = max(2, runs // 3)

    def start() -> list[Row]:
        rows, times = processes.start(runs)
        bare.extend(times)
        return rows

    return {
        "start": start,
        "peers": lambda: peers.beside(runs),
        "stream": lambda: processes.stream(runs, 200 if quick else 20_000),
        "resume": lambda: processes.resume(runs, (10, 100) if quick else (10, 1_000, 10_000)),
        "lives": lambda: processes.lives(runs, 5 if quick else 1_000),
        # in this process, before a log of 100 MB has been through it
        "counting": lambda: inside.counting(runs, 200 if quick else 1_000),
        "loading": lambda: inside.loading(few, 1 if quick else 100),
        "disk": lambda: inside.disk(20 * runs),  # a turn takes a millisecond, and a disk is uneven
        "tools": lambda: inside.tool_round(3 * runs),
        "list": lambda: inside.listing(few, 50 if quick else 10_000),
        "standing": inside.standing,
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", help="one part; may be repeated")
    parser.add_argument("--write", action="store_true", help="write bench/results.json")
    parser.add_argument(
        "--readme", action="store_true", help="print README's table from bench/results.json, measure nothing"
    )
    options = parser.parse_args(argv)
    if options.readme:
        with open(RESULTS, encoding="utf-8") as file:
            sys.stdout.write(short_table(json.load(file)) + "\n")
        return
    runs, bare = 1 if options.quick else options.runs, list[float]()
    rows: list[Row] = []
    for name, measure in parts(runs, options.quick, bare).items():
        if not options.only or name in options.only:
            sys.stderr.write(f"{name} ...\n")
            rows += measure()
    told = about(runs) | {"noise": noise(bare), "command": "python -m bench " + " ".join(argv or sys.argv[1:])}
    sys.stdout.write(table(rows) + f"\n\n{told['machine']}; Python {told['python']}; {runs} runs; {told['noise']}\n")
    if options.write:
        with open(RESULTS, "w", encoding="utf-8") as file:
            json.dump({"about": told, "rows": [row.as_json() for row in rows]}, file, indent=1, ensure_ascii=False)
            file.write("\n")


if __name__ == "__main__":
    main()
