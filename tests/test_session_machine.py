"""Any order of appends, rewrites, crashes, damage, undos and forks: what was said is never lost."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from disks import Killed, Quick, Recorder
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from lives import META, ask, compact, prune

from agent.errors import SessionCorrupt, SessionError
from agent.log import archive, mend
from agent.session import Session


class Life(RuleBasedStateMachine):
    """`told`: n -> text of every message that was acknowledged. `sent`: the requests that must be provable."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="life-"))
        self.store = str(self.root / "store")
        self.id = "life"
        self.told: dict[int, str] = {}
        self.disk = Recorder()

    def teardown(self) -> None:
        self.session.close()
        shutil.rmtree(self.root)

    @initialize()
    def begin(self) -> None:
        self.session = Session.create(self.store, META, id=self.id, disk=self.disk)

    def reopen(self) -> None:
        self.session.close()
        self.disk.kill_at = None
        self.session = Session.open(self.store, self.id, disk=self.disk)

    def learn(self) -> None:
        for entry in self.session.entries:
            if entry["type"] == "message" and not entry.get("pruned"):
                self.told.setdefault(entry["n"], entry["message"]["content"])

    @rule(text=st.text(min_size=1, max_size=12))
    def turn(self, text: str) -> None:
        ask(self.session, text)

    @precondition(lambda self: len(self.session.view()) > 3)
    @rule(keep=st.integers(1, 3))
    def compact(self, keep: int) -> None:
        compact(self.session, keep)

    @precondition(lambda self: self.session.view())
    @rule(pick=st.integers(0, 10))
    def prune(self, pick: int) -> None:
        messages = [e for e in self.session.entries if e["type"] == "message"]
        prune(self.session, messages[pick % len(messages)]["n"])

    @rule(back=st.booleans())
    def undo(self, back: bool) -> None:
        try:
            archive.redo(self.session) if back else archive.undo(self.session)
        except SessionError as error:
            assert "has no" in error.text

    @rule()
    def close_and_open(self) -> None:
        self.reopen()
        assert self.session.notices == []

    @rule(after=st.integers(0, 12), change=st.sampled_from(["turn", "compact", "undo"]))
    def killed(self, after: int, change: str) -> None:
        """The process dies some operations into a change; the next one goes on."""
        self.learn()
        self.disk.kill_at = len(self.disk.ops) + after
        try:
            if change == "turn":
                ask(self.session, "killed in this turn")
            elif change == "compact" and len(self.session.view()) > 3:
                compact(self.session)
            elif change == "undo" and archive.newest(self.session.entries, "compaction"):
                archive.undo(self.session)
        except Killed:
            pass
        self.reopen()

    @rule(tail=st.binary(min_size=1, max_size=30).filter(lambda b: b"\n" not in b))
    def torn(self, tail: bytes) -> None:
        """Something left bytes without a line end; they are set aside or were only white space and NULs."""
        self.learn()
        self.session.close()
        with open(self.session.path, "ab") as file:
            file.write(tail)
        self.reopen()

    @rule(bad=st.sampled_from([b"junk\n", bytes(50) + b"\n", b'{"n":3}\n', b"\xff\n", b'{"type":"x"}{"type":"y"}\n']))
    def damaged(self, bad: bytes) -> None:
        """A bad line: refused, repaired, and on with it."""
        self.learn()
        self.session.close()
        with open(self.session.path, "ab") as file:
            file.write(bad)
        try:
            Session.open(self.store, self.id)
            raise AssertionError("a bad line was not seen")
        except SessionCorrupt:
            assert mend.repair(self.store, self.id, disk=self.disk).quarantine
        self.reopen()

    @rule()
    def fork(self) -> None:
        """Go on in a copy."""
        self.learn()
        view = self.session.view()
        self.session.close()
        self.id = archive.fork(self.store, self.id, disk=self.disk)
        self.session = Session.open(self.store, self.id, disk=self.disk)
        assert self.session.view() == view

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "session"):
            self.learn()
            originals = {e["n"]: e["message"]["content"] for e in self.session.originals()}
            assert self.told.items() <= originals.items()
            assert list(originals) == sorted(originals)

    @invariant()
    def disk_and_memory_agree(self) -> None:
        if hasattr(self, "session"):
            looked = Session.read(self.store, self.id)
            assert (looked.meta, looked.entries) == (self.session.meta, self.session.entries)

    @invariant()
    def everything_can_be_proved(self) -> None:
        if hasattr(self, "session"):
            assert archive.check(self.session).problems == []


Life.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLife = Life.TestCase
assert issubclass(Recorder, Quick)
