"""No crash loses anything: every state that a crash can leave behind each operation, tried one by one.

For each kind of change the operations are recorded; for every prefix of them, every state of the disk is made that a
killed process or a loss of power allows, and in each: the session opens to the state before or the state after, every
message that was ever acknowledged is among its originals, and the next append is clean.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from disks import CopyingRecorder, Killed, Op, Quick, Recorder, World, after_kill, after_power_loss, worlds
from lives import META, ask, compact, prune, user

from agent.errors import SessionNotFound
from agent.log import archive, mend
from agent.log.entries import Entry
from agent.session import Session

ID = "20260101-000000-0000abcd"
Change = Callable[[str, Recorder], None]
TRIED: dict[str, int] = {}
TORN = b'{"type":"message","message":{"role":"user","content":"torn in the midd'


@pytest.fixture(scope="module", autouse=True)
def tally() -> Iterator[None]:
    """`pytest -s` shows how many states were tried."""
    yield
    print(f"\n{sum(TRIED.values()):,} crash states tried, 0 lost")  # noqa: T201


def opened(store: str, disk: Quick) -> Session:
    return Session.open(store, ID, disk=disk)


def appends(store: str, disk: Recorder) -> None:
    with opened(store, disk) as session:
        session.append(user("an appended prompt"))


def compacts(store: str, disk: Recorder) -> None:
    with opened(store, disk) as session:
        compact(session)


def prunes(store: str, disk: Recorder) -> None:
    with opened(store, disk) as session:
        prune(session, 2)


def renames(store: str, disk: Recorder) -> None:
    with opened(store, disk) as session:
        session.rename("a-name")


def undoes(store: str, disk: Recorder) -> None:
    with opened(store, disk) as session:
        archive.undo(session)


def redoes(store: str, disk: Recorder) -> None:
    with opened(store, disk) as session:
        archive.redo(session)


def reopens(store: str, disk: Recorder) -> None:
    opened(store, disk).close()


def repairs(store: str, disk: Recorder) -> None:
    mend.repair(store, ID, disk=disk)


def spoil(store: str, tail: bytes) -> None:
    with open(os.path.join(store, f"{ID}.jsonl"), "ab") as file:
        file.write(tail)


def a_life(store: str, steps: str) -> None:
    """Build a session before the recording starts: t(urn), c(ompact), u(ndo), T(orn tail), V(alid tail), B(ad line)."""
    session = Session.create(store, META, id=ID, disk=Quick())
    for number, step in enumerate(steps):
        if step in "TVB":
            session.close()
            spoil(store, {"T": TORN, "V": b'{"type":"note","n":99}', "B": b'{"type":"note"}x\n'}[step])
            continue
        if step == "t":
            ask(session, f"turn {number}")
        else:
            {"c": compact, "u": archive.undo}[step](session)
    session.close()


CHANGES: dict[str, tuple[str, Change, type[Recorder]]] = {
    "append": ("tt", appends, Recorder),
    "append after a torn tail": ("ttT", appends, Recorder),
    "append after an unended record": ("ttV", appends, Recorder),
    "open with a torn tail": ("tT", reopens, Recorder),
    "first compaction": ("ttt", compacts, Recorder),
    "second compaction": ("tttctt", compacts, Recorder),
    "compaction where links are refused": ("tttctt", compacts, CopyingRecorder),
    "prune": ("tt", prunes, Recorder),
    "rename": ("tt", renames, Recorder),
    "undo": ("tttct", undoes, Recorder),
    "redo": ("tttctut", redoes, Recorder),
    "repair": ("ttB", repairs, Recorder),
    "repair with a torn tail": ("ttBT", repairs, Recorder),
}


State = tuple[str, list[Entry]]


def content(store: str) -> State:
    """A session's state: its name and its entries."""
    session = Session.read(store, ID)
    return str(session.meta.get("name")), session.entries


def try_world(world: World, root: Path, onto: Path, allowed: list[State], told: set[int], torn: bool) -> None:
    """Lay the state out; it must open to one of the allowed ones, hold what was told, and take an append. Torn bytes
    stay somewhere."""
    if onto.exists():
        shutil.rmtree(onto)
    onto.mkdir()
    world.lay_out(root, onto)
    store = str(onto / "store")
    if b'{"type":"note"}x' in (onto / "store" / f"{ID}.jsonl").read_bytes():
        mend.repair(store, ID, disk=Quick())
    with Session.open(store, ID, disk=Quick()) as session:
        found = [e for e in session.entries if e["type"] != "undo"]
        assert (str(session.meta.get("name")), found) in allowed
        assert told <= {e["n"] for e in session.originals()}
        added = session.append(user("after the crash"))
    with Session.open(store, ID, disk=Quick()) as session:
        assert (session.entries[-1], session.notices) == (added, [])
    assert not torn or any(TORN in path.read_bytes() for path in onto.rglob("*") if path.is_file())


def without_undo(state: State) -> State:
    """An undo's own record carries the time it was made, so it is compared by what it brought back."""
    return state[0], [e for e in state[1] if e["type"] != "undo"]


@pytest.mark.parametrize("name", CHANGES)
def test_a_crash_leaves_the_state_before_or_after(name: str, tmp_path: Path) -> None:
    """Every prefix of the operations, every reordering between syncs, torn halves and zeroed blocks of each write."""
    steps, change, recorder = CHANGES[name]
    root = tmp_path / "real"
    store = str(root / "store")
    a_life(store, steps)
    disk, start = recorder(), World.of(root)
    before = without_undo(content(store))
    told = {e["n"] for e in Session.read(store, ID).originals()}
    change(store, disk)
    after = without_undo(content(store))
    if change is repairs:
        before = after  # what a repair finds is what it leaves
    count = 0
    for issued, world in worlds(start, disk.ops):
        allowed = [after] if issued == len(disk.ops) else [before, after]
        try_world(world, root, tmp_path / "crashed", [*map(without_undo, allowed)], told, "T" in steps)
        count += 1
    TRIED[name] = count
    assert count > len(disk.ops)


@pytest.mark.parametrize("name", ["first compaction", "second compaction", "undo", "append", "rename"])
def test_what_the_next_process_appends_survives_a_crash_of_the_one_before(name: str, tmp_path: Path) -> None:
    """A process killed at each operation, a second one that appends and is told so, then the power goes: the appended
    entry is there, even if what the first one did to the names had not reached the disk."""
    steps, change, recorder = CHANGES[name]
    total = 0
    for kill_at in range(100):
        root = tmp_path / f"real{kill_at}"
        store = str(root / "store")
        a_life(store, steps)
        disk, start = recorder(), World.of(root)
        disk.kill_at = kill_at
        try:
            change(store, disk)
        except Killed:
            pass
        else:
            break
        disk.kill_at = None
        with opened(store, disk) as session:
            added = session.append(user("from the next process"))
        for world in after_power_loss(start, disk.ops):
            onto = tmp_path / "crashed"
            shutil.rmtree(onto, ignore_errors=True)
            world.lay_out(root, onto)
            assert Session.read(str(onto / "store"), ID).entries[-1] == added
            total += 1
    TRIED[f"{name}, then the next process"] = total
    assert total >= kill_at > 2


@pytest.mark.parametrize("name", ["append", "second compaction", "undo"])
def test_a_crash_while_recovering_from_a_crash(name: str, tmp_path: Path) -> None:
    """The change is killed at each operation; the next process opens, repairs and appends, and the power goes at any
    moment of that: still the state before or after the first change, perhaps with the append, and nothing lost."""
    steps, change, recorder = CHANGES[name]
    root = tmp_path / "real"
    a_life(str(root / "store"), steps)
    disk, start = recorder(), World.of(root)
    before = without_undo(content(str(root / "store")))
    told = {e["n"] for e in Session.read(str(root / "store"), ID).originals()}
    change(str(root / "store"), disk)
    allowed = [before, without_undo(content(str(root / "store")))]
    count = 0
    for issued in range(len(disk.ops)):
        for number, world in enumerate(after_kill(start, disk.ops[: issued + 1])):
            if number > 3:
                break  # a few cuts of each write are enough here
            again = tmp_path / f"again{issued}.{number}"
            again.mkdir()
            world.lay_out(root, again)
            second, middle = Recorder(), World.of(again)
            with opened(str(again / "store"), second) as session:
                added = session.append(user("after the first crash"))
            grown = [(name, [*entries, added]) for name, entries in allowed]
            for _, later in worlds(middle, second.ops):
                try_world(later, again, tmp_path / "crashed", allowed + grown, told, torn=False)
                count += 1
    TRIED[f"{name}, then a crash of the recovery"] = count
    assert count > 10 * len(disk.ops)


def test_a_crash_while_a_session_is_renamed_leaves_the_time_of_its_last_write(tmp_path: Path) -> None:
    """In every state, under the old name or the new: a list has it where it was."""
    root = tmp_path / "real"
    a_life(str(root / "store"), "tt")
    log = str(root / "store" / f"{ID}.jsonl")
    os.utime(log, (1000, 1000))
    disk, start = Recorder(), World.of(root)
    renames(str(root / "store"), disk)
    assert os.stat(log).st_mtime == 1000
    states = [world.dates[world.names[log]] for _, world in worlds(start, disk.ops)]
    assert set(states) == {1000 * 10**9}
    TRIED["the time of a rename"] = len(states)


def made_or_absent(tmp_path: Path, root: Path, start: World, ops: list[Op], id: str, whole: list[Entry]) -> int:
    """Every state: the session is not there, or (for `create`) empty, or whole; at the end it is whole."""
    count = 0
    for issued, world in worlds(start, ops):
        onto = tmp_path / "crashed"
        shutil.rmtree(onto, ignore_errors=True)
        onto.mkdir()
        world.lay_out(root, onto)
        count += 1
        try:
            with Session.open(str(onto / "store"), id, disk=Quick()) as session:
                assert session.entries == whole
                session.append(user("after the crash"))
        except SessionNotFound:
            assert issued < len(ops)
    return count


def test_a_crash_while_a_session_is_made(tmp_path: Path) -> None:
    """A new session is there with its meta line, or empty (and usable), or not at all."""
    root = tmp_path / "real"
    root.mkdir()
    disk, start = Recorder(), World.of(root)
    Session.create(str(root / "store"), META, id=ID, disk=disk).close()
    TRIED["create"] = made_or_absent(tmp_path, root, start, disk.ops, ID, [])
    assert TRIED["create"] > len(disk.ops)


def test_a_crash_while_a_session_is_forked(tmp_path: Path) -> None:
    """A fork is not there, or complete with its archives; the original does not change by one byte."""
    root = tmp_path / "real"
    store = str(root / "store")
    a_life(store, "tttctct")
    original = (root / "store" / f"{ID}.jsonl").read_bytes()
    disk, start = Recorder(), World.of(root)
    new = archive.fork(store, ID, disk=disk)
    whole = Session.read(store, new).entries
    TRIED["fork"] = made_or_absent(tmp_path, root, start, disk.ops, new, whole)
    assert (root / "store" / f"{ID}.jsonl").read_bytes() == original
    assert archive.check(Session.read(store, new)).problems == []
