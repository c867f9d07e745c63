"""A box of tools over a directory of its own, spoken to as a model would."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent.messages import ToolCall
from agent.tools import Permissions, Toolbox, ToolContext, ToolResult, build_toolbox
from agent.tools.permissions import TOOL_NAMES


class Box:
    """`box("read_file", path="a")` makes a call and returns the text, with the directory written as ROOT."""

    def __init__(self, base: Path, **settings: Any) -> None:
        self.root = base / "root"
        self.files = base / "files"
        self.store = base / "store"
        for directory in (self.root, self.store):
            directory.mkdir(exist_ok=True)
        rules = {name: settings.pop(name) for name in ("allow", "deny", "yolo", "sandboxed") if name in settings}
        ask = settings.pop("ask", None)
        self.context = ToolContext(
            cwd=str(self.root),
            roots=[str(self.root), *settings.pop("more_roots", [])],
            files_dir=self._files,
            session_id="20260101-000000-00000000",
            private_dirs=[str(self.store), *settings.pop("private", [])],
            environ=dict(os.environ),
            **settings,
        )
        permissions = Permissions(**{"sandboxed": True, "cwd": str(self.root), **rules})
        self.toolbox: Toolbox = build_toolbox(TOOL_NAMES, self.context, permissions, ask)
        self.result = ToolResult("", ok=True)

    def _files(self) -> str:
        self.files.mkdir(mode=0o700, exist_ok=True)
        return str(self.files)

    def __call__(self, name: str, **args: Any) -> str:
        return self.raw(name, json.dumps(args))

    def raw(self, name: str, arguments: str) -> str:
        """A call whose arguments are this very text."""
        self.result = self.toolbox.run(ToolCall("call_1", name, arguments))
        return self.shown(self.result.text)

    def bash(self, command: str, **args: Any) -> str:
        return self("bash", command=command, **args)

    def shown(self, text: str) -> str:
        return text.replace(str(self.root), "ROOT").replace(str(self.files), "FILES")

    def write(self, name: str, content: bytes | str) -> Path:
        """Put a file there behind the tools' back."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)
