"""Record a session in a terminal and draw it: `python docs/record.py` writes `docs/terminal.svg`.

The commands of `SESSION` run for real, one after another, in a pseudo-terminal of `COLUMNS` columns, against the
scripted server of the tests; what they print is laid out as a terminal would and drawn as plain SVG: no font to fetch,
every run of text pinned to its columns. The temporary home is written `~`; no confinement is asked for, since the
session runs no command, and a system that has none would say so. `record` returns the screen, `draw` is pure.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import unicodedata
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

COLUMNS = 112
CELL, LINE, MARGIN = 8.0, 19, 18
SESSION = (
    'agent "Why did the build fail? See build.log and shop.py"',
    'agent --last "Fix it. The shop is called Lantern and rounds to cents."',
    'CONTEXT_WINDOW=2000 agent --last "Which tests are missing?"',
    'agent -q --last "What is the shop called, and how does it round?"',
    "agent sessions replay last --check",
)
SHOP = "def total(prices, discount=0):\n    return sum(prices) - discount * 100\n"
LOG = "".join(f"test_shop.py::test_{name}_{i:02} PASSED in {i * 7 % 13} ms\n" for name in ("order", "stock", "receipt") for i in range(40)) + (
    "test_shop.py::test_total FAILED: total([10.0, 5.0], discount=0.1) is 5.0, not 13.5\n"
)  # fmt: skip
COLOURS = {"": "#d7dae0", "2": "#848b98", "31": "#f2777a", "33": "#f0c674", "prompt": "#8fc58f"}

SUMMARY = """## Goal
Find out why the build failed, and mend total() in shop.py.
## Done
build.log and shop.py were read; test_total failed with 5.0 for 13.5. shop.py was edited: the discount is a share of the sum now, rounded to cents.
## Facts and decisions
The shop is called Lantern; total() rounds to cents; discount is a share between 0 and 1.
## State and next step
Say which tests are missing.
## Open
none
## Constraints
none
"""


class Span(NamedTuple):
    """Text of one colour (a key of `COLOURS`) that begins at a column."""

    column: int
    text: str
    colour: str


# ---- pure ----


def reply(request: dict[str, Any], index: int) -> Any:
    """What the scripted model says."""
    from server import calls, text

    last = request["messages"][-1]
    said = last["content"]
    if "## Goal" in said:
        return text(SUMMARY)
    if last["role"] == "tool":
        if "discount * 100" in said:
            return text("test_total fails: `discount` is a share, 0.1, but shop.py takes it off as if it were money.")
        return text("Done: the share comes off the sum, and the total is rounded to cents.")
    if "Why" in said:
        return calls([("read_file", {"path": "build.log"}), ("read_file", {"path": "shop.py"})])
    if "Fix it" in said:
        edit = {"old": "sum(prices) - discount * 100", "new": "round(sum(prices) * (1 - discount), 2)"}
        return calls([("edit_file", {"path": "shop.py", "edits": [edit]})])
    if "tests" in said:
        return text("Three: no prices at all, a discount of 1, and a sum that needs rounding.")
    return text("It is called Lantern, and it rounds to cents.")


def width(character: str) -> int:
    """Columns that a character takes."""
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def layout(printed: str) -> list[list[Span]]:
    """The lines of a terminal after `printed`: colours, carriage returns, erased ends of lines, wrapping."""
    lines: list[list[Span]] = [[]]
    colour, column = "", 0
    for piece in re.findall(r"\x1b\[[\d;?]*[A-Za-z]|[\s\S]", printed):
        if piece.startswith("\x1b"):
            if piece.endswith("m"):
                colour = piece[2:-1].lstrip("0")
            elif piece.endswith("K"):
                lines[-1] = [span for span in lines[-1] if span.column < column]
        elif piece == "\n":
            lines.append([])
            column = 0
        elif piece == "\r":
            column = 0
        else:
            if column + width(piece) > COLUMNS:
                lines.append([])
                column = 0
            if lines[-1] and lines[-1][-1].colour == colour and column:
                lines[-1][-1] = lines[-1][-1]._replace(text=lines[-1][-1].text + piece)
            else:
                lines[-1].append(Span(column, piece, colour))
            column += width(piece)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def draw(lines: list[list[Span]]) -> str:
    """The lines as an SVG picture."""
    wide, high = round(COLUMNS * CELL + 2 * MARGIN), len(lines) * LINE + 2 * MARGIN + 14
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" role="img"'
        ' aria-label="A session of agent in a terminal">',
        f'<rect width="{wide}" height="{high}" rx="8" fill="#1d2026"/>',
        *(f'<circle cx="{MARGIN + 4 + 18 * i}" cy="16" r="5" fill="#3b4049"/>' for i in range(3)),
        "<g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace\""
        ' font-size="13" xml:space="preserve">',
    ]
    for row, line in enumerate(lines):
        y = MARGIN + 14 + row * LINE + 14
        for span in line:
            size = sum(map(width, span.text)) * CELL
            parts.append(
                f'<text x="{MARGIN + span.column * CELL:g}" y="{y}" textLength="{size:g}" fill="{COLOURS[span.colour]}">'
                f"{escape(span.text)}</text>"
            )
    return "\n".join([*parts, "</g>", "</svg>", ""])


# ---- effects ---------------------------------------------------------------------------------------------------------


def in_terminal(command: str, cwd: Path, env: dict[str, str]) -> str:
    """What a command prints when its three streams are a terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    with subprocess.Popen(
        ["bash", "-c", command], cwd=cwd, env=env, stdin=slave, stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        printed = b""
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:  # Linux says EIO when the last writer has gone
                break
            if not data:
                break
            printed += data
        process.wait()
    os.close(master)
    return printed.decode().replace("\r\n", "\n")


def record() -> list[list[Span]]:
    """The screen after the whole session."""
    from server import ScriptedServer

    lines: list[list[Span]] = []
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        work = home / "shop"
        work.mkdir()
        (work / "shop.py").write_text(SHOP)
        (work / "build.log").write_text(LOG)
        (home / "agent").write_text(f'#!/bin/sh\nexec {sys.executable} -m agent "$@"\n')
        (home / "agent").chmod(0o755)
        with ScriptedServer(reply, tokens=lambda request: len(json.dumps(request)) // 4) as server:
            env = {
                "HOME": made, "PATH": f"{made}{os.pathsep}{os.environ['PATH']}", "TERM": "xterm-256color", "MODEL": "demo",
                "OPENAI_BASE_URL": server.url, "AGENT_SESSION_DIR": "sessions", "PYTHONPATH": str(HERE.parent),
                "PAGER": "cat", "AGENT_SANDBOX": "off",
            }  # fmt: skip
            for command in SESSION:
                lines += [[]] if lines else []
                lines += [[Span(0, "$", "prompt"), Span(2, command, "")]]
                lines += layout(in_terminal(command, work, env).replace(made, "~"))
        assert server.violations == []
    return lines


if __name__ == "__main__":
    (HERE / "terminal.svg").write_text(draw(record()))
