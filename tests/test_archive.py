"""The past of a session: what the model saw at any request, undo and redo, forks, and a proof that bites."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lives import META, ask, compact, prune, texts, user

from agent.errors import SessionCorrupt, SessionError, SessionNotFound, UsageError
from agent.log import archive
from agent.log.logfile import generation_paths
from agent.log.mend import repair
from agent.session import Session
from agent.wire import prepare_for_wire


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def long_life(store: str, id: str = "life") -> list[list[dict[str, object]]]:
    """Five compactions, a pruning and an undo, with turns between; what was sent at each request, in order."""
    sent = []
    with Session.create(store, META, id=id) as session:
        session.append({"type": "message", "message": {"role": "system", "content": "be brief"}})

        def turn(text: str) -> None:
            sent.append(prepare_for_wire([*session.view(), {"role": "user", "content": text}]))
            ask(session, text)

        for round in range(5):
            for number in range(3):
                turn(f"round {round}, turn {number}")
            compact(session)
        turn("before the pruning")
        prune(session, session.entries[-2]["n"])
        turn("before the undo")
        archive.undo(session)
        turn("after the undo")
    return sent


# ---- replay ----------------------------------------------------------------------------------------------------------


def test_every_request_of_a_life_is_shown_again_as_it_was_sent(store: str) -> None:
    """Across five compactions, a pruning and an undo: the same messages, and every digest equal."""
    sent = long_life(store)
    session = Session.read(store, "life")
    for k, messages in enumerate(sent, 1):
        found = archive.at_request(session, k)
        assert (found.k, found.messages, found.computed) == (k, messages, found.recorded)
    assert archive.check(session) == archive.Check(requests=len(sent), files=7, problems=[])
    with pytest.raises(SessionNotFound, match="has no request 19"):
        archive.at_request(session, 19)


def test_any_flipped_byte_of_an_archive_is_found(store: str) -> None:
    """Wherever it is, in whatever generation: the check names the archive."""
    long_life(store)
    session = Session.read(store, "life")
    for path in generation_paths(session.path):
        data = Path(path).read_bytes()
        name = os.path.basename(path).removesuffix(".jsonl")
        for at in range(0, len(data), max(1, len(data) // 25)):
            Path(path).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            problems = archive.check(Session.read(store, "life")).problems
            assert any(problem.startswith(f"archive {name} ") for problem in problems)
        Path(path).write_bytes(data)
    assert archive.check(session).problems == []
    os.remove(generation_paths(session.path)[2])
    assert archive.check(session).problems == ["archive 0003 is missing"]


def test_a_changed_message_in_the_log_itself_is_found(store: str) -> None:
    """Valid JSON, another word: the digest of every later request says so."""
    with Session.create(store, META, id="a") as session:
        ask(session, "attack at dawn")
        ask(session, "and then")
    path = Path(session.path)
    path.write_bytes(path.read_bytes().replace(b'"attack at dawn"', b'"attack at noon"'))
    problems = archive.check(Session.read(store, "a")).problems
    assert [problem.split(":")[0] for problem in problems] == ["request 1 (current)", "request 2 (current)"]
    assert archive.check_request(Session.read(store, "a"), 2).problems[0].startswith("request 2: ")


def test_a_bad_line_in_an_archive_is_named(store: str) -> None:
    """The check says which line; undo refuses to bring back a generation that cannot be read whole."""
    long_life(store)
    with Session.open(store, "life") as session:
        record = archive.newest(session.entries, "compaction")
        assert record is not None
        path = Path(store) / "life.archive" / f"{record['archive']}.jsonl"
        path.write_bytes(path.read_bytes().replace(b'{"type":"message"', b'{"type"+"message"', 1))
        assert any(f"archive {record['archive']}, line " in p for p in archive.check(session).problems)
        before = list(session.entries)
        with pytest.raises(SessionCorrupt, match="is damaged: line"):
            archive.undo(session)
        assert session.entries == before


# ---- undo, redo ------------------------------------------------------------------------------------------------------


def test_undo_brings_back_the_originals_and_keeps_what_came_after(store: str) -> None:
    """The summary goes, the folded messages return, the later turn stays at the end."""
    with Session.create(store, META, id="a") as session:
        for turn in ("one", "two", "three"):
            ask(session, turn)
        compact(session)
        ask(session, "after")
        assert texts(session) == ["a summary", "three", "re: three", "after", "re: after"]
        outcome = archive.undo(session)
        assert {k: v for k, v in outcome.items() if k != "at"} == {
            "type": "undo", "n": 11, "undid": 7, "archive": "0002", "messages": {"before": 5, "after": 8}, "problems": [],
        }  # fmt: skip
        assert texts(session) == ["one", "re: one", "two", "re: two", "three", "re: three", "after", "re: after"]
        with pytest.raises(SessionError, match="has no compaction to undo"):
            archive.undo(session)


def test_undo_of_a_pruning_brings_back_the_words(store: str) -> None:
    with Session.create(store, META, id="a") as session:
        ask(session, "every word")
        prune(session, 1)
        assert texts(session)[0] == "[1 was shortened]"
        archive.undo(session)
        assert texts(session) == ["every word", "re: every word"]


def test_undos_stack_and_redo_unstacks_them(store: str) -> None:
    """Two compactions undone one by one and brought back one by one; turns made meanwhile are never lost."""
    with Session.create(store, META, id="a") as session:
        for turn in ("one", "two", "three"):
            ask(session, turn)
        compact(session)
        ask(session, "four")
        compact(session)
        twice = texts(session)
        archive.undo(session)
        once = texts(session)
        archive.undo(session)
        whole = texts(session)
        assert (len(twice), len(once), len(whole)) == (3, 5, 8)
        ask(session, "meanwhile")
        archive.redo(session)
        assert texts(session) == [*once, "meanwhile", "re: meanwhile"]
        archive.redo(session)
        assert texts(session) == [*twice, "meanwhile", "re: meanwhile"]
        with pytest.raises(SessionError, match="has no undo to take back"):
            archive.redo(session)
        archive.undo(session)
        assert texts(session) == [*once, "meanwhile", "re: meanwhile"]
        assert archive.check(session).problems == []


def test_undo_and_redo_in_a_session_without_a_file() -> None:
    """--no-session keeps its generations in memory."""
    with Session.ephemeral(META) as session:
        ask(session, "one")
        ask(session, "two")
        compact(session)
        archive.undo(session)
        assert len(texts(session)) == 4
        archive.redo(session)
        assert len(texts(session)) == 3


def test_a_name_in_a_file_never_becomes_a_path(store: str, tmp_path: Path) -> None:
    """A compaction or a chain that names ../outside as its archive: not found, and reported."""
    with Session.create(store, META, id="a") as session:
        ask(session, "one")
    (tmp_path / "outside.jsonl").write_bytes(Path(session.path).read_bytes())
    with Session.open(store, "a") as session:
        session.append({"type": "compaction", "archive": "../../outside", "strategy": "x"})
        with pytest.raises(SessionNotFound, match="has no archive"):
            archive.undo(session)
        session.meta["archived"] = {"name": "../../outside", "sha256": "0"}
        problem = "archive ../../outside is missing"
        assert archive.check(session) == archive.Check(1, 1, [problem])


# ---- fork ------------------------------------------------------------------------------------------------------------


def test_a_fork_is_a_whole_life_and_leaves_the_original_alone(store: str) -> None:
    """Same view, same requests, same proof; then each goes its own way."""
    sent = long_life(store)
    files = {p: p.read_bytes() for p in Path(store).rglob("*.jsonl")}
    new = archive.fork(store, "life")
    assert {p: p.read_bytes() for p in files} == files
    with Session.open(store, new) as copy:
        original = Session.read(store, "life")
        assert copy.view() == original.view()
        assert copy.meta["parent"] == {"id": "life", "n": original.entries[-1]["n"]}
        assert archive.check(copy) == archive.check(original)
        assert archive.at_request(copy, 4).messages == sent[3]
        ask(copy, "my own way")
        compact(copy)
        assert [e["n"] for e in copy.originals()][:20] == [e["n"] for e in original.originals()][:20]
    assert {p: p.read_bytes() for p in files} == files


def test_a_fork_at_an_entry_ends_with_it(store: str) -> None:
    """At every number of a life: the view as it was when that entry was the last."""
    seen: dict[int, list[str]] = {}
    with Session.create(store, META, id="a") as session:
        for turn in range(7):
            ask(session, f"turn {turn}")
            seen[session.entries[-1]["n"]] = texts(session)
            seen[session.entries[-2]["n"]] = texts(session)[:-1]
            if turn % 3 == 2:
                compact(session)
        top = session.entries[-1]["n"]
    for n, view in seen.items():
        with Session.open(store, archive.fork(store, "a", at=n)) as copy:
            assert (texts(copy), copy.meta["parent"]) == (view, {"id": "a", "n": n})
            assert copy.append(user("on"))["n"] > n
            assert archive.check(copy).problems == []
    for wrong in (0, top + 1, 10**9):
        with pytest.raises(UsageError, match=f"has no entry {wrong}: the last is {top}"):
            archive.fork(store, "a", at=wrong)


@pytest.mark.parametrize("names", [1, 3])
def test_a_fork_of_a_renamed_session_has_nothing_that_came_after(names: int, store: str) -> None:
    """A name makes a generation without a new entry: what is shared is older than the fork, and its own words count."""
    with Session.create(store, META, id="a") as session:
        for turn in range(5):
            ask(session, f"turn {turn}")
        for name in range(names):
            session.rename(f"name-{name}")
        ask(session, "last")
    for at in (4, 10, 12):
        with Session.open(store, archive.fork(store, "a", at=at)) as copy:
            ask(copy, "mine")
            assert [e["n"] for e in copy.originals()] == list(range(1, at + 3))
            assert [e["message"]["content"] for e in copy.originals()][-2] == "mine"
            assert archive.check(copy).problems == []


def test_what_was_mended_is_an_original_again(store: str) -> None:
    """A line that could not be read in the archive stands in the file that replaced it: shown, searched, forked."""
    with Session.create(store, META, id="a") as session:
        for turn in range(4):
            ask(session, f"turn {turn}")
    raw = Path(session.path).read_bytes().split(b"\n")
    for bad in (1, 3, 8):
        Path(session.path).write_bytes(b"\n".join([*raw[:bad], b"\0\0" + raw[bad], *raw[bad + 1 :]]))
        assert repair(store, "a").findings
        mended = Session.read(store, "a")
        assert [e["n"] for e in mended.originals()] == list(range(1, 9)), bad
        for at in (bad, 8):
            with Session.open(store, archive.fork(store, "a", at=at)) as copy:
                assert [e["n"] for e in copy.originals()] == list(range(1, at + 1)), (bad, at)
        for path in [*Path(store, "a.archive").glob("0*.jsonl"), Path(session.path)]:
            path.unlink()


def test_a_fork_of_a_damaged_or_missing_archive_is_refused(store: str) -> None:
    with Session.create(store, META, id="a") as session:
        for turn in range(3):
            ask(session, f"turn {turn}")
        compact(session)
    archived = Path(store, "a.archive", "0001.jsonl")
    whole = archived.read_bytes()
    archived.write_bytes(whole.replace(b'"content":"turn 1"', b'"content":"tur'))
    with pytest.raises(SessionCorrupt, match=r"0001\.jsonl is damaged: line 4"):
        archive.fork(store, "a", at=4)
    archived.unlink()
    with pytest.raises(SessionError, match="the archive of session a that held entry 4 is gone"):
        archive.fork(store, "a", at=4)


def test_a_busy_session_can_be_forked_and_a_damaged_one_cannot(store: str) -> None:
    """Forking is the way out when the session is in use; damage is never copied in silence."""
    with Session.create(store, META, id="a") as session:
        ask(session, "one")
        new = archive.fork(store, "a", cwd="/elsewhere")
        assert Session.read(store, new).meta["cwd"] == "/elsewhere"
        with open(session.path, "ab") as file:
            file.write(b"junk\n")
    with pytest.raises(SessionCorrupt, match="line 4"):
        archive.fork(store, "a")


def test_a_life_can_be_undone_where_links_are_refused(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without hard links: archives and forks are copies, and prove the same."""

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    sent = long_life(store)
    new = archive.fork(store, "life")
    session = Session.read(store, new)
    assert archive.check(session) == archive.Check(len(sent), 7, [])
    assert all(os.stat(path).st_nlink == 1 for path in generation_paths(session.path))
    assert [p for p in Path(store).rglob("*") if p.suffix not in (".jsonl", ".lock", ".archive")] == []
