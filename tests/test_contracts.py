"""What holds the package together: imports run one way, files stay short, importing does nothing, nothing leaks in."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "agent"
ROOT = PACKAGE.parent

ORDER = """
errors messages wire events signals
cli.options cli.argv redact wire.providers wire.windows
values config log.entries tokens
log.disk log.lock log.logfile log.writer session
log.archive log.mend log.library log.search views.story views.stats views.chart views.page views.export recall
tools
anchors compaction.plan compaction.inert compaction.cutting compaction.replies compaction.rules compaction.statements compaction.present compaction.listing compaction.record compaction.gleaned compaction.guards compaction.form compaction.frame compaction.summary compaction.past compaction.room compaction.asking compaction.draft compaction.entries compaction gate
loop
wire.memory wire.truncation wire.retry wire.sse wire.amiss wire.refusal wire.overflow wire.kinds wire.faults wire.usage wire.toolcalls wire.foreign wire.leaked wire.reasoning wire.stream wire.adapt wire.body wire.transport wire.probes wire.exchange client wire.doctor
patience lines render jsonlines views.printing local cli.completion
cli.prompt cli.asking cli.outfile cli.structured cli.asked cli.equipment cli.opening views.scales cli.run cli.examine importers cli.verbs cli.history cli.gathering cli.commands cli.dispatch cli.grammar cli __main__
""".split()
"""The reading order. A module imports only modules that stand before it, wherever the import is written."""

WHOLE = ("tools", "importers")

LONGEST_FILE = 400
LONGEST_FUNCTION = 60


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def chapter(path: Path) -> str:
    """The word in `ORDER` that a file stands under; all of `tools/` is one, and so is all of `importers/`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts[0] in WHOLE:
        return parts[0]
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def imported(tree: ast.AST) -> set[str]:
    """The chapters of this package that a file imports, at the top or anywhere else."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "agent":
            names += [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            names += [name.name for name in node.names if name.name.startswith("agent.")]
    return {found for name in names if (found := _chapter_of(name.split(".")[1:])) is not None}


def _chapter_of(parts: list[str]) -> str | None:
    """The chapter of a dotted name inside the package, whose end may be something that a module defines."""
    while parts:
        path = PACKAGE.joinpath(*parts)
        if path.with_suffix(".py").is_file():
            return chapter(path.with_suffix(".py"))
        if (path / "__init__.py").is_file():
            return chapter(path / "__init__.py")
        parts = parts[:-1]
    return None


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    me = chapter(path)
    if me == "__init__":
        assert imported(ast.parse(path.read_text())) == set()
        return
    later = {name for name in imported(ast.parse(path.read_text())) if ORDER.index(name) > ORDER.index(me)}
    assert later == set(), f"{me} imports {later}, which stand after it"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_file_is_a_chapter(path: Path) -> None:
    """A docstring first; at most 400 lines; no function over 60; no print, no exit below the command line."""
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    assert text.count("\n") <= LONGEST_FILE
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1}"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.end_lineno
        and node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION
    ]
    assert long == []
    if path.name != "cli.py":
        assert not re.search(r"^\s*(print\(|sys\.exit\()", text, re.MULTILINE)


def test_the_loop_and_compaction_do_not_know_the_client() -> None:
    """They take a model as a protocol: nothing of them reaches httpx, even indirectly."""
    code = "import sys, agent.loop, agent.compaction; sys.exit('httpx' in sys.modules or 'agent.client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("argv", ["--help", "-V", "sessions list", "completion bash", "config show"])
def test_what_needs_no_model_imports_no_client(argv: str) -> None:
    """`--help`, `-V`, lists and completion start fast."""
    code = (
        "import sys; from agent.cli import main; main(sys.argv[1:]); "
        "sys.exit(str([m for m in ('httpx', 'tiktoken', 'rich', 'pydantic', 'sqlite3', 'asyncio') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *argv.split()], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[]"


def test_importing_does_nothing(tmp_path: Path) -> None:
    """No file, no output, no look at the environment that could fail: HOME is unset and the directory unwritable."""
    names = [str(path.relative_to(ROOT).with_suffix("")).replace("/", ".") for path in modules()]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    code = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
    here = tmp_path / "here"
    here.mkdir(mode=0o500)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=here, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert list(here.iterdir()) == []


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_no_registry_no_machine_no_key_in_any_file() -> None:
    forbidden = re.compile(
        rb"py"
        rb"pi\.org|python"
        rb"hosted\.org|registry\.npm"
        rb"js|deb\.deb"
        rb"ian\.org|(?:^|[^A-Za-z0-9_.])/(?:wo"
        rb"rk|fa"
        rb"rm)/|"
        rb"\bsk-(?:proj-|ant-)?[A-Za-z0-9]{32,}"
    )
    found = [str(path) for path in tracked() if forbidden.search(path.read_bytes())]
    assert found == []


def test_every_exit_code_is_documented() -> None:
    from agent.errors import Exit

    readme = (ROOT / "README.md").read_text()
    assert [code for code in Exit if f"| {int(code)} |" not in readme] == []


def test_the_standing_prompt_is_small() -> None:
    """System prompt and tool schemas together stay under 450 tokens (cl100k)."""
    import orjson

    from agent.cli.equipment import SYSTEM_PROMPT
    from agent.tokens import count
    from agent.tools import Permissions, ToolContext, build_toolbox
    from agent.tools.permissions import TOOL_NAMES

    box = build_toolbox(TOOL_NAMES, ToolContext("/w", ["/w"], lambda: ""), Permissions())
    prompt = SYSTEM_PROMPT.format(cwd="/home/user/projects/some-project")
    assert count(prompt) + count(orjson.dumps(box.schemas()).decode()) < 450
