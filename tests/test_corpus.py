"""Real sessions: each loads, replays, survives a rewrite with the same view, is compacted and undone, and exports.

Three stand in the repository; when the larger collection lies beside the checkout, all of it is taken.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from disks import Quick
from lives import ask, compact

from agent.log import archive
from agent.session import Session
from agent.views.export import FORMATS, export

HERE = Path(__file__).parent / "data" / "sessions"
BESIDE = Path(__file__).parents[2] / "shared" / "data" / "sessions"
FILES = sorted({path.stem: path for folder in (BESIDE, HERE) for path in folder.glob("*.jsonl")}.items())


@pytest.mark.parametrize("path", [path for _, path in FILES], ids=[name for name, _ in FILES])
def test_a_real_session_from_end_to_end(path: Path, tmp_path: Path) -> None:
    """load -> rewrite -> load is the same view; compact -> undo is too; every request proves; every export is whole."""
    shutil.copy(path, tmp_path / "real.jsonl")
    store, disk = str(tmp_path), Quick()
    with Session.open(store, "real", disk=disk) as session:
        assert session.notices == []
        view = session.view()
        lines = path.read_bytes().count(b"\n")
        assert [e["n"] for e in session.entries] == list(range(1, lines))
        session.rewrite(session.entries)
    with Session.open(store, "real", disk=disk) as session:
        assert (session.view(), session.notices) == (view, [])
        ask(session, "what was that about?")
        compact(session, keep=min(6, lines - 1))
        assert len(session.view()) <= 9
        archive.undo(session)
        assert session.view()[: len(view)] == view
        assert archive.check(session) == archive.Check(1, 3, [])
        assert [e["n"] for e in session.originals()][: lines - 1] == list(range(1, lines))
    for form in FORMATS:
        assert sum(map(len, export(Session.read(store, "real"), form))) > 1000
