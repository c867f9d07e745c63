"""What every measurement here shares: rounds in turn, medians with their range, one table, and how noisy it was.

Whatever is compared is run alternately in one process or against one server, so that what else the machine does falls
on all alike. What counts is the ratio; the milliseconds are only of that machine on that day.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """A median with the lowest and highest of its runs."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        digits = 0 if self.median >= 100 else 1 if self.median >= 10 else 2
        return f"{self.median:,.{digits}f} ({self.low:,.{digits}f}–{self.high:,.{digits}f})"


class Row(NamedTuple):
    """One line of the result: ours, what it is compared with, and the most that is allowed (a ratio, or in `unit`
    where nothing is compared)."""

    part: str
    what: str
    unit: str
    ours: Figure
    floor: Figure | None = None
    floor_is: str = ""
    target: float | None = None

    @property
    def ratio(self) -> float | None:
        """Ours to the floor, medians."""
        return None if self.floor is None else self.ours.median / max(self.floor.median, 1e-9)

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        reached = self.ours.median if self.ratio is None else self.ratio
        return None if self.target is None else reached <= self.target

    def as_json(self) -> dict[str, Any]:
        found = {"part": self.part, "what": self.what, "unit": self.unit, "ours": rounded(self.ours)}
        if self.floor is not None and self.ratio is not None:
            found |= {"floor": rounded(self.floor), "floor_is": self.floor_is, "ratio": round(self.ratio, 2)}
        return found | ({} if self.target is None else {"target": self.target, "met": self.met})


def rounded(figure: Figure) -> dict[str, float]:
    return {name: round(value, 3) for name, value in figure._asdict().items()}


def figure(values: Sequence[float]) -> Figure:
    """The median and the range of some runs."""
    return Figure(statistics.median(values), min(values), max(values))


def in_turns(rounds: int, actions: Mapping[str, Callable[[], Any]]) -> dict[str, list[Any]]:
    """What each action returned, by name: all of them once a round, after one round that does not count."""
    found: dict[str, list[Any]] = {name: [] for name in actions}
    for turn in range(rounds + 1):
        for name, action in actions.items():
            result = action()
            if turn:
                found[name].append(result)
    return found


def milliseconds(action: Callable[[], object]) -> Callable[[], float]:
    """`action`, timed."""

    def timed() -> float:
        start = time.perf_counter()
        kept = action()
        taken = (time.perf_counter() - start) * 1000
        del kept
        return taken

    return timed


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| what | ours, median (range) | compared with | ratio | target |", "|---|--:|---|--:|--:|"]
    part = ""
    for row in rows:
        if row.part != part:
            part = row.part
            lines.append(f"| **{part}** | | | | |")
        compared = "–" if row.floor is None else f"{row.floor_is}: {row.floor} {row.unit}"
        ratio = "–" if row.ratio is None else f"{row.ratio:.2f}"
        limit = "–" if row.target is None else f"≤ {row.target:g}{'' if row.floor else ' ' + row.unit}"
        missed = "" if row.met in (None, True) else " **missed**"
        lines.append(f"| {row.what} | {row.ours} {row.unit} | {compared} | {ratio} | {limit}{missed} |")
    return "\n".join(lines)


def short_table(results: dict[str, Any]) -> str:
    """The rows that have a target, from a result file: what README shows."""
    told = results["about"]
    versions = ", ".join(f"{name} {number}" for name, number in told["versions"].items())
    lines = [
        f"`{told['command']}`, {told['date']}: {told['machine']}, shared with other work ({told['noise'].split(':')[0]} at the "
        f"time); Python {told['python']}, {versions}; medians of {told['runs']} runs, in turn.",
        "",
        "| what | ours | compared with | ratio | at most |",
        "|---|--:|---|--:|--:|",
    ]
    for row in (row for row in results["rows"] if "target" in row):
        name = row["what"] if row["part"] in row["what"] else f"{row['part']}: {row['what']}"
        floor = f"{row['floor_is']}, {row['floor']['median']:.3g} {row['unit']}" if "floor" in row else "–"
        ratio = f"**{row['ratio']}**" if "floor" in row else "–"
        limit = f"{row['target']:g}" + ("" if "floor" in row else f" {row['unit']}")
        lines.append(f"| {name} | {row['ours']['median']:.3g} {row['unit']} | {floor} | {ratio} | {limit} |")
    return "\n".join(lines)


def about(rounds: int) -> dict[str, Any]:
    """The kind of machine and the versions, with nothing that names it."""
    names = ("httpx", "orjson", "typer", "tiktoken")
    return {
        "machine": f"{os.cpu_count()} {platform.machine()} cores, {_memory()} GB, {platform.system()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in names},
        "runs": rounds,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def noise(bare: Sequence[float]) -> str:
    """How even the machine was: judged by the spread of the same bare program, and by the load."""
    spread = (sorted(bare)[len(bare) * 9 // 10] / min(bare)) if bare else 1.0
    load = os.getloadavg()[0]
    word = "noisy" if spread > 1.5 or load > 1.5 * (os.cpu_count() or 1) else "quiet"
    return f"{word}: the slowest tenth of bare runs took {spread:.1f} x the fastest; load {load:.1f}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


def _memory() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)
