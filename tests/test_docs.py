"""README's transcripts run: every `console` block, in order, prints what it shows."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from server import ScriptedServer, calls, text

ROOT = Path(__file__).parent.parent
ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")
TIME = re.compile(r"\b\d+\.\d s\b|\b\d+s\b")

SUMMARY = (
    "## Goal\nHelp with the Go project phoenix.\n## Done\nIts name, its tools and notes.md were noted.\n"
    "## Facts and decisions\nphoenix needs Go 1.26; its tools are read_file and write_file; notes.md tells of the harbour "
    "service, ninety days of readings and an hourly map.\n## State and next step\nGive the project a slogan.\n"
    "## Open\nnone\n## Constraints\nnone\n"
)


def reply(request: dict[str, Any], index: int) -> Any:
    """What the scripted model of the README says."""
    messages = request["messages"]
    last = messages[-1]
    said = last["content"] if isinstance(last["content"], str) else ""
    if last["role"] == "tool":
        return text("There are two: fetch and parse.")
    if "## Goal" in said:
        return text(SUMMARY)
    for words, answer in (
        ("functions", calls([("bash", {"command": "grep -c ^def tools.py"})])),
        ("remember", text("Noted.")),
        ("review", text("Looks right. One nit: the name `x` says little.")),
        ("slogan", text("Rises again, on time.")),
        ("called", text("It is called phoenix.")),
    ):
        if words in said:
            return answer
    return text("Hello! What shall we do?")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def steps(block: str) -> list[tuple[str, list[str]]]:
    """The commands of a transcript with the lines they print."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def plain(line: str) -> str:
    """A line without what differs from run to run: ids, seconds, the temporary directory."""
    return TIME.sub("TIME", ID.sub("ID", line))


def matches(shown: list[str], printed: list[str]) -> bool:
    """`...` as a line stands for any lines, within a line for any text."""
    pattern = "".join(
        "(?:.*\n)*" if line == "..." else re.escape(plain(line)).replace(r"\.\.\.", ".*") + "\n" for line in shown
    )
    return re.fullmatch(pattern, "".join(plain(line) + "\n" for line in printed)) is not None


@pytest.fixture
def shell(tmp_path: Path) -> Any:
    """A directory with a file and a repository, and `agent` on PATH."""
    work = tmp_path / "work"
    (work / "bin").mkdir(parents=True)
    command = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m agent "$@"\n'
    (work / "bin" / "agent").write_text(command)
    (work / "bin" / "agent").chmod(0o755)
    (work / "notes.md").write_text("The harbour service keeps readings for ninety days and draws a map every hour.\n" * 30)
    (work / "tools.py").write_text("def fetch():\n    pass\n\n\ndef parse():\n    pass\n")

    def run(line: str, env: dict[str, str]) -> list[str]:
        path = os.pathsep.join([str(work / "bin"), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-c", line], cwd=work, env={**os.environ, **env, "PATH": path}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False,
        )  # fmt: skip
        return done.stdout.decode().splitlines()

    return run


def test_the_transcripts(shell: Any) -> None:
    """All in one home, in order: what one block leaves, the next one finds."""
    ids: list[str] = []
    wrong = []
    with ScriptedServer(reply, tokens=lambda request: len(json.dumps(request["messages"])) // 4) as server:
        env = {"OPENAI_BASE_URL": server.url, "MODEL": "scripted"}
        for block in blocks("console"):
            for command, shown in steps(block):
                for at, old in enumerate(dict.fromkeys(ID.findall(command))):
                    command = command.replace(old, ids[at] if at < len(ids) else old)
                printed = shell(command, env)
                ids = list(dict.fromkeys([*ids, *(i for line in printed for i in ID.findall(line))]))[:1]
                if not matches(shown, printed):
                    wrong.append("\n".join([f"$ {command}", *printed]))
    assert wrong == []
    assert server.violations == []


def test_there_is_something_to_run() -> None:
    assert len(blocks("console")) >= 4


def test_the_exit_codes_in_readme_and_help_agree() -> None:
    from agent.errors import Exit
    from agent.options import EPILOGUE

    table = {int(code) for code in re.findall(r"^\| (\d+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)}
    assert {int(code) for code in Exit} <= table
    assert {int(code) for code in Exit} <= {int(code) for code in re.findall(r"\b\d+\b", EPILOGUE)}


def test_every_option_is_in_readme() -> None:
    from agent.options import OPTIONS

    readme = (ROOT / "README.md").read_text()
    flags = [flag for rows in OPTIONS.values() for row in rows if not row.hidden for flag in row.flags]
    assert [flag for flag in flags if f"`{flag}" not in readme and f" {flag}`" not in readme] == []
    named = set(re.findall(r"`(--[a-z-]+)", readme))
    assert named - set(flags) - OTHER_FLAGS == set()


OTHER_FLAGS = {
    "--all", "--at", "--check", "--dry-run", "--files", "--format", "--instructions", "--keep", "--last-answer",
    "--older-than", "--redo", "--request", "--strategy", "--offline", "--from", "--force",
}  # fmt: skip
"""Flags of the other commands that README names."""
