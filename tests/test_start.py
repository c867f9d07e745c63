"""What a turn loads before its first request: nothing that it does not use. (`python -m bench` measures the time.)"""

from __future__ import annotations

import os
import subprocess
import sys

from server import ScriptedServer, text

UNUSED = """
typer rich pydantic tiktoken sqlite3 asyncio subprocess ctypes tomllib
agent.cli.dispatch agent.cli.commands agent.cli.verbs agent.compaction agent.anchors agent.compaction.summary agent.compaction.record agent.recall
agent.log.archive agent.views.export agent.jsonlines agent.cli.structured agent.wire.faults agent.wire.overflow agent.wire.retry agent.wire.adapt
agent.tools.sandbox agent.tools.process agent.wire.doctor
""".split()


def test_a_turn_loads_only_what_it_uses() -> None:
    """In a fresh process, with a whole turn behind it: no other command, no compaction, no tool's machinery,
    and no question to the server beyond one."""
    code = (
        "import sys; from agent.cli import main; code = main(['-q', 'hi']); "
        f"sys.stderr.write(str([name for name in {UNUSED!r} if name in sys.modules])); sys.exit(code)"
    )
    with ScriptedServer([text("Hello", usage=(500, 2, 0))]) as server:
        environ = {**os.environ, "OPENAI_BASE_URL": server.url, "MODEL": "m"}
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, stdin=subprocess.DEVNULL)
        asked = len(server.asked)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"Hello\n", b"[]")
    assert asked <= 1
