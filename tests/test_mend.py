"""Repair: every kind of bad line, what is rescued from it, and where its bytes are afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from disks import Quick
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import META, ask, compact, texts, user

from agent.errors import SessionCorrupt
from agent.log import archive
from agent.log.entries import encode
from agent.log.mend import Finding, examine, repair, rescue
from agent.session import Session
from agent.wire import prepare_for_wire

HEAD = b'{"type":"meta","version":1,"id":"d","model":"m"}\n'
ONE = b'{"type":"message","n":1,"message":{"role":"user","content":"one"}}\n'
TWO = b'{"type":"message","n":2,"message":{"role":"assistant","content":"two"}}\n'
LONG = b'{"type":"message","n":3,"message":{"role":"tool","tool_call_id":"x","content":"a\nb\n\nc"}}\n'


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path)


CASES = {
    "a line of NULs": (bytes(500) + b"\n", []),
    "NULs before a record": (bytes(500) + TWO, ["two"]),
    "NULs after a record": (TWO[:-1] + bytes(9) + b"\n", ["two"]),
    "two records glued": (ONE[:-1] + TWO, ["one", "two"]),
    "three glued with spaces": (ONE[:-1] + b"  " + TWO[:-1] + b" " + ONE, ["one", "two", "one"]),
    "a torn record before a whole one": (ONE[:40] + TWO, ["two"]),
    "a whole record before a torn one": (TWO[:-1] + ONE[:40] + b"\n", ["two"]),
    "a torn record": (TWO[:40] + b"\n", []),
    "a record broken by raw line ends": (LONG, ["a\nb\n\nc"]),
    "a raw control character": (TWO.replace(b"two", b"t\x1bwo"), ["t\x1bwo"]),
    "not UTF-8": (TWO.replace(b"two", b"t\xffwo"), ["t\ufffdwo"]),
    "garbage": (b"\x80\x81 garbage }{\n", []),
    "a record inside a torn one": (b'{"type":"message","message":{"content":[{"type":"text","text":"x"}]\n', []),
    "BOM in the middle": (b"\xef\xbb\xbf" + TWO, ["two"]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_rescued_from_a_bad_line(store: str, name: str) -> None:
    """The session opens again with what could be taken back, in its place; the damaged file is in the archive and the
    bad lines in quarantine, byte for byte."""
    bad, rescued = CASES[name]
    path = Path(store) / "d.jsonl"
    path.write_bytes(HEAD + ONE + bad + TWO)
    with pytest.raises(SessionCorrupt):
        Session.open(store, "d")
    assert examine(store, "d")[0].line == 3
    assert path.read_bytes() == HEAD + ONE + bad + TWO
    done = repair(store, "d")
    assert sum(finding.rescued for finding in done.findings) == len(rescued)
    assert Path(done.archive).read_bytes() == HEAD + ONE + bad + TWO
    kept = Path(done.quarantine).read_bytes()
    assert [line for line in bad.split(b"\n") if line] == [line for line in kept.split(b"\n") if line]
    with Session.open(store, "d") as session:
        said = [e["message"]["content"] for e in session.entries]
        assert (said, session.notices, session.meta["model"]) == (["one", *rescued, "two"], [], "m")
        session.append(user("on we go"))
    assert repair(store, "d").findings == []


def test_a_damaged_meta_line(store: str) -> None:
    """The settings are gone, the conversation is not; numbers go on above the largest."""
    (Path(store) / "d.jsonl").write_bytes(HEAD[:20] + b"\x00" + HEAD[21:-2] + b"\n" + ONE + TWO)
    assert [f.line for f in repair(store, "d").findings] == [1]
    with Session.open(store, "d") as session:
        assert texts(session) == ["one", "two"]
        assert session.append(user("more"))["n"] == 3


def test_a_damaged_record_in_a_long_life(store: str) -> None:
    """Archives, counts and undo outlive a repair."""
    with Session.create(store, META, id="d") as session:
        for turn in range(3):
            ask(session, f"turn {turn}")
        compact(session)
        ask(session, "after")
    path = Path(session.path)
    path.write_bytes(path.read_bytes().replace(b"re: after", b"re: \x00fter"))
    assert [f.rescued for f in repair(store, "d").findings] == [1]
    with Session.open(store, "d") as session:
        assert (session.next_request(), session.meta["counts"]["generation"]) == (5, 2)
        assert archive.undo(session)["messages"] == {"before": 5, "after": 8}
        assert texts(session)[:1] == ["turn 0"]


DAMAGE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "NULs before a record": lambda line, _: bytes(300) + line,
    "two records on one line": lambda line, _: line[:-1],
    "a record broken by a raw line end": lambda line, _: line.replace(b",", b",\n", 1),
    "a torn copy of the line before": lambda line, before: before[:40] + line,
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_was_mended_without_loss_proves_every_request_again(store: str, name: str) -> None:
    """In a life with a compaction, whichever line was damaged, the first one too, and even if another is damaged after
    the repair: each request is shown as it was sent, each answer's proof is counted, and nothing differs."""
    sent = []

    def turn(session: Session, text: str) -> None:
        sent.append(prepare_for_wire([*session.view(), {"role": "user", "content": text}]))
        ask(session, text)

    def spoiled(lines: list[bytes], at: int) -> bytes:
        bad = DAMAGE[name](lines[at], lines[at - 1])
        return b"".join([*lines[:at], bad, *lines[at + 1 :]])

    with Session.create(store, META, id="life", disk=Quick()) as session:
        for number in range(3):
            turn(session, f"turn {number}")
        compact(session)
        for number in range(3, 6):
            turn(session, f"turn {number}")
    path = Path(session.path)
    whole = path.read_bytes().splitlines(keepends=True)
    for at in range(len(whole) - 1):
        for second in (None, len(whole) - 2):
            path.write_bytes(spoiled(whole, at))
            assert repair(store, "life", disk=Quick()).findings
            if second is not None:
                path.write_bytes(spoiled(path.read_bytes().splitlines(keepends=True), second))
                assert repair(store, "life", disk=Quick()).findings
            with Session.open(store, "life", disk=Quick()) as session:
                turn(session, "after the repair")
            found = archive.check(session)
            assert (at, second, found.requests, found.problems) == (at, second, len(sent), [])
            assert [archive.at_request(session, k).messages for k in range(1, len(sent) + 1)] == sent
            sent.pop()
            for each in Path(store, "life.archive").glob("*"):
                if each.name != "0001.jsonl":
                    each.unlink()


def test_a_request_that_cannot_be_shown_as_it_was_sent_says_so(store: str) -> None:
    """A byte that is lost for good: the requests that held it differ, and only they."""
    with Session.create(store, META, id="d") as session:
        for word in ("one", "two", "three"):
            ask(session, word)
    path = Path(session.path)
    path.write_bytes(path.read_bytes().replace(b'"two"', b'"t\xffo"'))
    repair(store, "d")
    session = Session.read(store, "d")
    assert [archive.at_request(session, k).differs for k in (1, 2, 3)] == [False, True, True]
    assert archive.at_request(session, 3).messages[2]["content"] == "t\ufffdo"
    found = archive.check(session)
    assert (found.requests, [p.split(":")[0] for p in found.problems]) == (
        3, ["request 2 (current)", "request 3 (current)"]
    )  # fmt: skip


def test_a_record_written_twice_gets_a_number_of_its_own(store: str) -> None:
    """So that n goes on naming one entry, and nothing drops out of the originals."""
    three = TWO.replace(b"two", b"another two")
    (Path(store) / "d.jsonl").write_bytes(HEAD + ONE + TWO[:-1] + three + ONE)
    repair(store, "d")
    with Session.open(store, "d") as session:
        assert [(e["n"], e["message"]["content"]) for e in session.originals()] == [
            (1, "one"), (2, "two"), (3, "another two"), (4, "one")
        ]  # fmt: skip


def test_a_sound_session_is_left_as_it_is(store: str) -> None:
    """Not one byte changes, and nothing is archived."""
    (Path(store) / "d.jsonl").write_bytes(HEAD + ONE)
    assert repair(store, "d")[1:] == ([], [], "", "")
    assert (Path(store) / "d.jsonl").read_bytes() == HEAD + ONE
    assert not (Path(store) / "d.archive").exists()


def test_the_findings_name_each_line(store: str) -> None:
    """What `agent doctor ID` tells: the line, why, how much comes back."""
    (Path(store) / "d.jsonl").write_bytes(HEAD + ONE[:-1] + TWO + b"junk\n" + LONG)
    assert examine(store, "d") == [
        Finding(2, "it is not JSON (unexpected content after document)", 2),
        Finding(3, "it is not JSON (unexpected character, expected a JSON value)", 0),
        Finding(4, "it is not JSON (unexpected end of data)", 1),
        Finding(5, "it belongs to the line before", 0),
        Finding(7, "it belongs to the line before", 0),
    ]


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_rescue_is_total(raw: bytes) -> None:
    """Any bytes give records or none, never an error; and what it gives can be written."""
    for entry in rescue(raw.replace(b"\n", b"")):
        assert json.loads(encode(entry))["type"] == entry["type"]
