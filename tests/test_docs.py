"""README's transcripts run: every `console` block, in order, prints what it shows."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from xml.sax.saxutils import escape, unescape

import pytest
from server import ScriptedServer, calls, status, text

ROOT = Path(__file__).parent.parent
ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")
TIME = re.compile(r"\b\d+\.\d s\b|\b\d+s\b")

GIT = {
    "GIT_AUTHOR_NAME": "me", "GIT_AUTHOR_EMAIL": "me@example.com", "GIT_EDITOR": "true",
    "GIT_COMMITTER_NAME": "me", "GIT_COMMITTER_EMAIL": "me@example.com",
}  # fmt: skip
"""Who commits in the transcripts; an editor that leaves the message as it is."""

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
        ("in one line?", text("The notes now tell of ninety days of readings.")),
        ("what is a harbour", text("A harbour is a place where ships are safe.")),
        ("a commit message", text("tools: fetch and parse, still empty")),
        ("STOP", text("STOP: a key is in it." if "KEY" in said else "OK: small and clear.")),
        ("every morning", text("Noted.")),
        ("yesterday", text("Nothing changed.")),
        ("about what?", text("Two functions without a body." if "tools.py" in said else "A harbour's readings.")),
        ("does it need?", text("A second reading.")),
        ("example", text("For example, a list.")),
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
    (work / "notes.md").write_text(
        "The harbour service keeps readings for ninety days and draws a map every hour.\n" * 30
    )
    (work / "tools.py").write_text("def fetch():\n    pass\n\n\ndef parse():\n    pass\n")
    (work / "question.txt").write_text("what is a harbour?\n")
    history = "git init -q . && git add notes.md && git commit -q -m 'notes: ninety days of readings'"
    subprocess.run(["bash", "-c", history], cwd=work, env={**os.environ, **GIT}, check=True)

    def run(line: str, env: dict[str, str]) -> list[str]:
        path = os.pathsep.join([str(work / "bin"), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-c", line], cwd=work, env={**os.environ, **GIT, **env, "PATH": path}, stdin=subprocess.DEVNULL,
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
    assert not wrong, "\n\n".join(wrong)
    assert server.violations == []


def test_there_is_something_to_run() -> None:
    assert len(blocks("console")) >= 4


def under(heading: str, kind: str = "sh") -> str:
    """The first block of `kind` below a heading of README."""
    text = (ROOT / "README.md").read_text()
    start = re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE)
    assert start, heading
    found = re.search(rf"^```{kind}\n(.*?)^```", text[start.end() :], re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


@pytest.mark.parametrize("script", blocks("sh"), ids=lambda script: script.splitlines()[0][:40])
def test_every_script_is_bash(script: str) -> None:
    """Also those that need machines that are not here: bash reads each to its end."""
    done = subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_hook_holds_back_what_it_should(shell: Any) -> None:
    """STOP on the first line stops the commit, OK does not, and no answer does not either."""
    with ScriptedServer(reply) as server:
        env = {"OPENAI_BASE_URL": server.url, "MODEL": "scripted", "HOOK": under("A git hook")}
        shell('printf %s "$HOOK" > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit', env)
        assert shell("git add tools.py; git commit -q -m tools; echo $?", env) == ["OK: small and clear.", "0"]
        secret = "echo KEY > secret; git add secret; git commit -q -m secret; echo $?"
        assert shell(secret, env) == ["STOP: a key is in it.", "1"]
        last = shell("git commit -q -m secret; echo $?", {**env, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})[-1]
        assert last == "0"
    assert server.violations == []


def test_the_line_for_cron(shell: Any, home: Path) -> None:
    """It runs under sh in the bare environment that cron gives, and has no `%`, which cron would take for a newline."""
    times, _, line = under("Every morning", "crontab").strip().partition("  ")
    assert len(times.split()) == 5 and "%" not in line
    (home / "project").mkdir()
    with ScriptedServer(reply) as server:
        env = {"OPENAI_BASE_URL": server.url, "MODEL": "scripted", "LINE": line}
        shell("agent -q -n standup 'every morning'", env)
        bare = 'env -i HOME="$HOME" PATH="$PATH" OPENAI_BASE_URL="$OPENAI_BASE_URL" MODEL=m sh -c "$LINE"'
        assert shell(bare, env) == ["Nothing changed."]
    assert server.violations == []


def test_the_aliases(shell: Any) -> None:
    with ScriptedServer(reply) as server:
        env = {"OPENAI_BASE_URL": server.url, "MODEL": "scripted"}
        script = f"shopt -s expand_aliases\n{under('A short name for the last session')}a -q hello\naa -q an example"
        assert shell(script, env) == ["Hello! What shall we do?", "For example, a list."]
        assert [len(request["messages"]) for request in server.requests] == [2, 4]


def test_the_names_in_jq_are_names_in_the_result(shell: Any) -> None:
    """Every `.name` of the CI step is a key of a real `result` line or of one of its denials."""
    filters = "\n".join(re.findall(r"^jq .*", under("A step in CI"), re.MULTILINE))
    with ScriptedServer(reply) as server:
        env = {"OPENAI_BASE_URL": server.url, "MODEL": "scripted"}
        command = "agent --json --no-session --strict --deny bash 'how many functions?' 2>/dev/null; echo $?"
        *events, code = shell(command, env)
    result = json.loads(events[-1])
    known = {*result, *result["usage"], *result["error"], *result["permission_denials"][0]}
    assert set(re.findall(r"\.([a-z_]+)", filters)) - {"jsonl"} <= known
    assert (result["exit_code"], code) == (5, "5")


def keys(value: Any) -> set[str]:
    """Every key at any depth."""
    if isinstance(value, list):
        return set().union(*map(keys, value))
    return set(value).union(*map(keys, value.values())) if isinstance(value, dict) else set()


def test_the_table_of_events(shell: Any) -> None:
    """A turn with a tool and a compaction prints the kinds of line in README's table, with the fields named there."""
    section = (ROOT / "README.md").read_text().split("### Events")[1].split("\n##")[0]
    rows = re.findall(r"^\| `(\w+)`(?: `(\w+)`)? \| (.*) \|$", section, re.MULTILINE)
    table = {(kind, about): set(re.findall(r"`(\w+)`", said)) for kind, about, said in rows}
    with ScriptedServer(reply, tokens=lambda request: len(json.dumps(request["messages"])) // 4) as server:
        env = {"OPENAI_BASE_URL": server.url, "MODEL": "scripted"}
        shell("agent -q -n long -f notes.md 'remember that it needs Go 1.26'; agent -q -c long 'a slogan'", env)
        command = "CONTEXT_WINDOW=900 agent --json --include-partial-messages -c long 'how many functions?' 2>/dev/null"
        lines = [json.loads(line) for line in shell(command, env)]
    seen: dict[tuple[str, str], set[str]] = {}
    for line in lines:
        kind = (line["type"], line["subtype"] if line["type"] == "system" else "")
        seen.setdefault(kind, set()).update(keys(line))
    assert seen.keys() == table.keys()
    assert {kind: fields - seen[kind] for kind, fields in table.items() if fields - seen[kind]} == {}
    assert server.violations == []


def test_the_work_script_does_each_file_once(shell: Any) -> None:
    """Eight at a time; again: nothing is asked; after a failure: the same session goes on, with the file."""
    down = {"again": True}

    def once_down(request: dict[str, Any], index: int) -> Any:
        return status(400, {"error": {"message": "no"}}) if down.pop("again", None) else reply(request, index)

    with ScriptedServer(once_down) as server:
        env = {"OPENAI_BASE_URL": server.url, "MODEL": "scripted", "WORK": under("Many machines")}
        shell(
            'printf %s "$WORK" > work; chmod +x work; mkdir texts; for i in 1 2 3; do echo $i > texts/$i.txt; done', env
        )
        every = "find texts -name '*.txt' -print0 | xargs -0 -P 8 -n 1 ./work"
        assert every + "\n" in blocks("sh")
        assert len(shell("ls texts/*.md", env)) == 1  # ls: no such file
        shell(every, env)
        assert len(shell("ls texts/*.md", env)) == 2
        shell(every, env)
        assert len(shell("ls texts/*.md", env)) == 3
        assert len(server.requests) == 4
        shell(every, env)
        assert len(server.requests) == 4
        assert len(shell("agent sessions list", env)) == 3
    assert server.violations == []


def test_the_job_gives_up_on_what_a_retry_cannot_mend() -> None:
    from agent.errors import Exit

    job = under("Many machines", "yaml")
    hopeless = {Exit.USAGE, Exit.CONFIG, Exit.SESSION, Exit.DENIED, Exit.LIMIT}
    values = re.search(r"values: \[([\d, ]+)\]", job)
    assert values and {int(code) for code in values[1].split(",")} == {int(code) for code in hopeless}
    command = json.loads(re.search(r"command: (\[.*\])", job)[1])  # type: ignore[index]
    done = subprocess.run(["sh", "-n", "-c", command[2]], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def script(name: str) -> dict[str, Any]:
    """What a script of `docs/` defines."""
    return runpy.run_path(str(ROOT / "docs" / name))


def test_the_picture_shows_what_the_program_prints() -> None:
    """`docs/terminal.svg` is `docs/record.py`'s recording, but for ids, counts and times. Else: python
    docs/record.py"""
    shown = re.findall(r">([^<]+)</text>", (ROOT / "docs" / "terminal.svg").read_text())
    printed = [span.text for line in script("record.py")["record"]() for span in line]

    def kept(texts: list[str]) -> str:
        return re.sub(r"\d[\d,.]*", "#", ID.sub("ID", "".join(map(unescape, texts)).replace("\n", "")))

    assert kept(shown) == kept([escape(text) for text in printed])


def test_the_man_page_is_up_to_date() -> None:
    """`docs/agent.1` comes from the tables that `--help` is made of. Else: python docs/man.py"""
    assert (ROOT / "docs" / "agent.1").read_text() == script("man.py")["page"]()


def test_the_map_names_every_chapter_in_order() -> None:
    """CONTRIBUTING's map is the import order that `tests/test_contracts.py` holds the package to."""
    from test_contracts import ORDER

    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^```\n(.*?)^```", contributing, re.MULTILINE | re.DOTALL)[0].splitlines()
    assert [name for row in rows for name in row[12:].split()] == ORDER
    assert contributing.count("\n") <= 60
    table = re.findall(r"^\| [a-z ]+ \| (`.*`) \| ", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(table) == 8 and set(re.findall(r"`(\w+)`", " ".join(table))) <= set(ORDER)


def test_the_way_from_argv_to_disk_exists() -> None:
    """Every step that README names is a function that is there."""
    line = re.search(r"^From argv to bytes on disk: (.*)\.$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert line
    steps_named = re.findall(r"`([\w.]+)`", line[1])
    assert len(steps_named) == 6
    for step in steps_named:
        assert callable(resolve_name(f"agent.{step}")), step


def test_the_changelog_tells_of_this_version() -> None:
    from agent import __version__

    versions = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == __version__


def test_a_bug_report_asks_for_doctor() -> None:
    assert "`agent doctor`" in (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.md").read_text()


def test_the_chinese_readme_is_in_step() -> None:
    """The same headings, level by level, and the same code blocks, byte for byte. Else: python docs/blocks.py"""
    source, translation = (ROOT / "README.md").read_text(), (ROOT / "README.zh-CN.md").read_text()
    assert translation == script("blocks.py")["in_step"](source, translation)

    def levels(text: str) -> list[str]:
        return re.findall(r"^(#+) ", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)

    assert levels(source) == levels(translation)


def test_the_exit_codes_in_readme_and_help_agree() -> None:
    from agent.cli.options import EPILOGUE
    from agent.errors import Exit

    table = {int(code) for code in re.findall(r"^\| (\d+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)}
    assert {int(code) for code in Exit} <= table
    assert {int(code) for code in Exit} <= {int(code) for code in re.findall(r"\b\d+\b", EPILOGUE)}


def test_the_table_of_compaction_settings_is_true() -> None:
    """Each is a setting, with the default that is shown where the default is a word or a number."""
    from agent.config import SETTINGS, merge

    options = {option.name: option for option in SETTINGS}
    section = (ROOT / "README.md").read_text().split("## Compaction")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", section, re.MULTILINE)
    named = {name for name in options if name.startswith(("summary_", "compact_"))}
    assert named <= {name for name, _, _ in rows} <= set(options)
    for name, default, told in rows:
        if default.startswith("`") and options[name].default is not None:
            assert default == f"`{options[name].default}`"
        for word in re.findall(r"`(\w+)`", told):
            if name in ("summary_format", "summary_role"):
                assert getattr(merge({name: word}, {}, {}, {}, {}), name) == word


def test_every_option_is_in_readme() -> None:
    from agent.cli.options import OPTIONS

    readme = (ROOT / "README.md").read_text()
    flags = [flag for rows in OPTIONS.values() for row in rows if not row.hidden for flag in row.flags]
    assert [flag for flag in flags if f"`{flag}" not in readme and f" {flag}`" not in readme] == []
    named = set(re.findall(r"`(--[a-z-]+)", readme))
    assert named - set(flags) - OTHER_FLAGS - NOT_THERE == set()
    assert named >= NOT_THERE and NOT_THERE & set(flags) == set()


OTHER_FLAGS = {
    "--all", "--at", "--check", "--dry-run", "--files", "--format", "--instructions", "--keep", "--last-answer",
    "--older-than", "--redo", "--request", "--strategy", "--offline", "--from", "--force",
}  # fmt: skip
"""Flags of the other commands that README names."""

NOT_THERE = {"--session-id", "--no-stream", "--raw", "--render", "--max-cost", "--no-color"}
"""Flags of other programs that README says it leaves out."""
