"""The log: what an append and a rewrite leave on disk, what each kind of damage does, and who may write."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from disks import Failing, Quick
from lives import META, answer, ask, compact, prune, texts, user

from agent.errors import AgentError, SessionBusy, SessionCorrupt, SessionError, SessionNotFound, StorageError
from agent.session import Session

SEED = Path(__file__).parent / "data" / "seed001"


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def lines(session: Session) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(session.path).read_bytes().split(b"\n")[:-1]]


def write(store: str, data: bytes, id: str = "damaged") -> Path:
    """A session file with these bytes."""
    os.makedirs(store, exist_ok=True)
    path = Path(store) / f"{id}.jsonl"
    path.write_bytes(data)
    return path


HEAD = b'{"type":"meta","version":1,"id":"damaged"}\n'
ONE = b'{"type":"message","n":1,"message":{"role":"user","content":"one"}}\n'
TWO = b'{"type":"message","n":2,"message":{"role":"assistant","content":"two"}}\n'


# ---- the file --------------------------------------------------------------------------------------------------------


def test_what_a_turn_leaves_on_disk(store: str) -> None:
    """The meta line first, then one line an entry, numbered from 1, each with its time, as the format says."""
    with Session.create(store, {"cwd": "/work", "model": "m", "extra": [1]}, id="a") as session:
        ask(session, "hi")
        meta, prompt, reply = lines(session)
    assert {k: v for k, v in meta.items() if k != "created_at"} == {
        "type": "meta", "version": 1, "id": "a", "cwd": "/work", "model": "m", "extra": [1],
        "counts": {"n": 0, "requests": 0, "generation": 0, "compactions": 0},
    }  # fmt: skip
    assert list(prompt) == ["type", "n", "at", "message"]
    assert (prompt["n"], prompt["message"]) == (1, {"role": "user", "content": "hi"})
    assert (reply["n"], reply["request"]["k"]) == (2, 1)  # type: ignore[index]


def test_a_file_by_the_smaller_program_loads_and_goes_on(store: str) -> None:
    """No version, no n: the place is the number; both generations of the seed's own session."""
    for name, count in (("before-compaction", 7), ("after-compaction", 4)):
        data = (SEED / f"{name}.jsonl").read_bytes()
        write(store, data, name)
        with Session.open(store, name) as session:
            assert [e["n"] for e in session.entries] == list(range(1, len(data.splitlines())))
            assert session.notices == []
            assert session.append(user("more"))["n"] == len(data.splitlines())
            assert len(session.view()) == len(data.splitlines())
        assert count >= 4


def test_unknown_types_and_keys_survive_a_rewrite(store: str) -> None:
    """What a later version added stays, whatever this one does with the file."""
    strange = b'{"type":"weather","n":3,"sky":{"deep":[1,null,"\\u00e9"]}}\n'
    write(store, HEAD.replace(b'"version":1', b'"version":1,"mood":"fine"') + ONE[:-2] + b',"odd":true}\n' + strange)
    with Session.open(store, "damaged") as session:
        session.rewrite(session.entries, model="other")
    with Session.open(store, "damaged") as session:
        assert (session.meta["mood"], session.meta["model"]) == ("fine", "other")
        assert session.entries == [json.loads(ONE) | {"odd": True}, json.loads(strange)]


def test_a_line_put_in_by_hand_hides_none(store: str) -> None:
    """Without a number, between two that have one: every message is found, also after a compaction."""
    with Session.create(store, {"model": "m"}) as session:
        for word in ("one", "two", "three"):
            session.append({"type": "message", "message": {"role": "user", "content": word}})
    lines = Path(session.path).read_bytes().splitlines(keepends=True)
    lines.insert(2, b'{"type":"message","message":{"role":"user","content":"by hand"}}\n')
    Path(session.path).write_bytes(b"".join(lines))
    with Session.open(store, session.id) as session:
        assert session.notices == ["1 entry had no number and got one"]
        assert texts(session) == ["one", "by hand", "two", "three"]
        session.rewrite(session.entries[2:])
        session.append({"type": "message", "message": {"role": "user", "content": "four"}})
        found = {e["message"]["content"]: e["n"] for e in session.originals()}
    assert found == {"one": 1, "two": 2, "three": 3, "by hand": 4, "four": 5}


def test_a_line_copied_by_hand_and_changed_is_an_original_too(store: str) -> None:
    with Session.create(store, {"model": "m"}) as session:
        for word in ("one", "two", "three"):
            session.append({"type": "message", "message": {"role": "user", "content": word}})
    lines = Path(session.path).read_bytes().splitlines(keepends=True)
    Path(session.path).write_bytes(
        b"".join([*lines[:3], lines[2].replace(b"two", b"two and a half"), lines[2], lines[3]])
    )
    with Session.open(store, session.id) as session:
        session.rewrite(session.entries[3:])
        found = [(e["n"], e["message"]["content"]) for e in session.originals()]
    assert found == [(1, "one"), (2, "two"), (2, "two and a half"), (3, "three")]


def test_numbers_are_never_used_twice(store: str) -> None:
    """n goes on counting after a compaction, an undo of nothing, and a reopening."""
    with Session.create(store, META) as session:
        for turn in range(3):
            ask(session, f"turn {turn}")
        compact(session)
        ask(session, "after")
    with Session.open(store, session.id) as session:
        ask(session, "reopened")
        numbers = [e["n"] for e in session.originals()]
    assert numbers == [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12]
    assert session.next_request() == 6


def test_originals_are_what_was_written_before_any_shortening(store: str) -> None:
    """A pruned message comes back whole, in its place, once."""
    with Session.create(store, META) as session:
        ask(session, "keep every word of this")
        ask(session, "second")
        prune(session, 1)
        assert texts(session)[0] == "[1 was shortened]"
        compact(session, keep=1)
        ask(session, "third")
        found = [(e["n"], e["message"]["content"]) for e in session.originals() if not e.get("summary")]
    assert found == [
        (1, "keep every word of this"), (2, "re: keep every word of this"), (3, "second"), (4, "re: second"),
        (8, "third"), (9, "re: third"),
    ]  # fmt: skip


@pytest.mark.parametrize("meanwhile", ["nothing", "an append", "a byte changed in place"])
def test_a_digest_found_ahead_is_that_of_the_file_that_is_archived(store: str, meanwhile: str) -> None:
    """Whatever happens to the file between: the chain of generations holds."""
    with Session.create(store, {"model": "m"}) as session:
        session.append({"type": "message", "message": {"role": "user", "content": "one"}})
        session.digest_ahead()
        if meanwhile == "an append":
            session.append({"type": "message", "message": {"role": "assistant", "content": "two"}})
        elif meanwhile == "a byte changed in place":
            path = Path(session.path)
            with path.open("r+b") as file:
                file.seek(path.read_bytes().index(b"one"))
                file.write(b"owe")
        name = session.rewrite(session.entries)
        archived = Path(store, f"{session.id}.archive", f"{name}.jsonl").read_bytes()
        assert session.meta["archived"]["sha256"] == hashlib.sha256(archived).hexdigest()


def test_an_ephemeral_session_behaves_the_same_and_leaves_nothing(store: str, tmp_path: Path) -> None:
    """--no-session: same numbers, same view, same originals; no file is made."""
    with Session.ephemeral(META) as kept, Session.create(store, META) as written:
        for session in (kept, written):
            ask(session, "one")
            ask(session, "two")
            assert compact(session) == "0001"
            ask(session, "three")
        assert texts(kept) == texts(written)
        assert [e["n"] for e in kept.originals()] == [e["n"] for e in written.originals()]
        folder = kept.files_dir()
        assert os.path.isdir(folder)
    assert not os.path.exists(folder)


def test_no_secret_becomes_a_setting(store: str) -> None:
    """A key or an Authorization header is refused before it can reach a file."""
    for name in ("api_key", "OPENAI_API_KEY", "Authorization", "password"):
        with pytest.raises(ValueError, match="must not be stored"):
            Session.create(store, {name: "x"})
        with Session.create(store, META, id=name) as session, pytest.raises(ValueError, match="must not be stored"):
            session.rewrite([], **{name: "x"})
    write(store, HEAD.replace(b'"version":1', b'"version":1,"password_hint":"foreign"') + ONE)
    with Session.open(store, "damaged") as session:
        session.rewrite(session.entries)
        assert session.meta["password_hint"] == "foreign"  # what another program stored is not ours to drop


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_files_are_private_whatever_the_umask(store: str, umask: int) -> None:
    """0600 and 0700 for the log, lock, temporary, archive and side directories."""
    old = os.umask(umask)
    try:
        with Session.create(store, META) as session:
            ask(session, "one")
            ask(session, "two")
            compact(session)
            session.files_dir()
    finally:
        os.umask(old)
    modes = {p.is_dir(): stat.S_IMODE(p.stat().st_mode) for p in [Path(store), *Path(store).rglob("*")]}
    assert modes == {True: 0o700, False: 0o600}


def test_a_file_others_could_read_is_closed_when_it_is_continued(store: str) -> None:
    """A log that another program left 0644."""
    os.chmod(write(store, HEAD + ONE), 0o644)
    with Session.open(store, "damaged") as session:
        assert stat.S_IMODE(os.stat(session.path).st_mode) == 0o600


# ---- damage ----------------------------------------------------------------------------------------------------------


def entries_after(store: str, data: bytes) -> tuple[list[object], list[str], bytes]:
    """Open a file with these bytes: contents of its messages, notices, and the file as it is then."""
    path = write(store, data)
    with Session.open(store, "damaged") as session:
        found = [e["message"]["content"] for e in session.entries if e["type"] == "message"]
        notices = [n.replace(store, "") for n in session.notices]
    return found, notices, path.read_bytes()


def test_an_unterminated_record_that_parses_counts(store: str) -> None:
    """It gets its line end, and the next append starts on a line of its own."""
    found, notices, data = entries_after(store, HEAD + ONE + TWO[:-1])
    assert (found, notices) == (["one", "two"], ["the last record lacked its line end, which was added"])
    assert data == HEAD + ONE + TWO


def test_a_torn_record_is_set_aside(store: str) -> None:
    """Every proper prefix of a record: moved to a side file whole, told, and the log ends where it was good."""
    for cut in range(1, len(TWO) - 1):
        found, notices, data = entries_after(store, HEAD + ONE + TWO[:cut])
        side = Path(store) / "damaged.archive" / f"torn-{cut:04d}"
        assert (found, data, side.read_bytes()) == (["one"], HEAD + ONE, TWO[:cut])
        assert notices == [f"{cut} bytes of an unfinished record were moved to /damaged.archive/torn-{cut:04d}"]


@pytest.mark.parametrize("count", [1, 200, 700, 4096])
def test_a_block_of_nuls_at_the_end_is_set_aside(store: str, count: int) -> None:
    """What a machine's crash leaves: the zeros go to the side file, also right behind a record that lost its LF."""
    found, _, data = entries_after(store, HEAD + ONE + bytes(count))
    assert (found, data) == (["one"], HEAD + ONE)
    found, _, data = entries_after(store, HEAD + ONE + TWO[:-1] + bytes(count))
    assert (found, data) == (["one", "two"], HEAD + ONE + TWO)
    sides = sorted((Path(store) / "damaged.archive").iterdir())
    assert [side.read_bytes() for side in sides] == [bytes(count), bytes(count)]


BAD = {
    "not JSON": (b'{"type":"message",}\n', "it is not JSON"),
    "a bare word": (b"hello\n", "it is not JSON"),
    "NULs": (bytes(300) + b"\n", "it holds NUL bytes"),
    "NULs before a record": (bytes(300) + TWO, "it holds NUL bytes"),
    "glued records": (ONE[:-1] + TWO, "it is not JSON"),
    "torn then whole": (b'{"type":"mess' + TWO, "it is not JSON"),
    "raw line end in a record": (TWO.replace(b"two", b"t\nwo"), "it is not JSON"),
    "raw control character": (TWO.replace(b"two", b"t\x01wo"), "it is not JSON"),
    "not UTF-8": (TWO.replace(b"two", b"t\xffwo"), f"it is not UTF-8 at byte {TWO.index(b'two') + 2}"),
    "surrogate bytes": (TWO.replace(b"two", b"\xed\xa0\xbd"), "it is not UTF-8"),
    "UTF-16": ('{"type":"x"}'.encode("utf-16") + b"\n", "it holds NUL bytes"),
    "an array": (b"[1,2]\n", "it is not a JSON object"),
    "a number": (b"42\n", "it is not a JSON object"),
    "no type": (b'{"n":3}\n', "it has no type"),
    "a message without a role": (b'{"type":"message","message":{}}\n', "it is a message without a role"),
    "a message that is text": (b'{"type":"message","message":"hi"}\n', "it is a message without a role"),
    "n is text": (b'{"type":"note","n":"3"}\n', "its n is not a number"),
    "n is true": (b'{"type":"note","n":true}\n', "its n is not a number"),
    "NaN": (b'{"type":"note","x":NaN}\n', "it is not JSON"),
    "too deep": (b'{"type":"note","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "it is not JSON"),
    "BOM in the middle": (b"\xef\xbb\xbf" + TWO, "it is not JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_terminated_bad_line_stops_the_session_and_changes_nothing(store: str, name: str) -> None:
    """Exit 4, naming the line and why, whatever stands after it; not a byte is written, a torn tail included."""
    bad, why = BAD[name]
    data = HEAD + ONE + bad + TWO + b'{"torn'
    path = write(store, data)
    with pytest.raises(SessionCorrupt, match=r"line 3 of .*damaged.jsonl: ") as caught:
        Session.open(store, "damaged")
    assert why in caught.value.text
    assert (caught.value.line, caught.value.exit_code) == (3, 4)
    assert caught.value.hint == "Repair it, keeping every byte, with: agent doctor damaged"
    assert path.read_bytes() == data
    assert sorted(os.listdir(store)) == ["damaged.jsonl", "damaged.lock"]
    looked = Session.read(store, "damaged")
    assert looked.view()[:2] == [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    assert looked.notices[0].startswith("line 3 cannot be read: ")


def test_a_flipped_byte_never_makes_an_entry_vanish_in_silence(store: str) -> None:
    """Each byte of a file, overwritten in turn: refused, told, or there; two records are never fused unseen."""
    data = HEAD + ONE + TWO
    for at in range(len(data)):
        write(store, data[:at] + b"\x07" + data[at + 1 :])
        try:
            with Session.open(store, "damaged", disk=Quick()) as session:
                assert len(session.entries) == 2 or session.notices
        except (SessionCorrupt, SessionError):
            continue


def test_marks_and_line_ends_of_other_systems(store: str) -> None:
    """BOM: ignored with a notice. CRLF: loads, and stays. Blank lines: nothing in them to lose."""
    found, notices, _ = entries_after(store, b"\xef\xbb\xbf" + HEAD + ONE)
    assert (found, notices) == (["one"], ["the file began with a byte order mark, which was ignored"])
    dos = (HEAD + ONE + TWO).replace(b"\n", b"\r\n")
    assert entries_after(store, dos) == (["one", "two"], [], dos)
    found, _, data = entries_after(store, dos[:-1])
    assert (found, data) == (["one", "two"], dos)
    assert entries_after(store, HEAD + b"\n \r\n" + ONE + b"\n")[:2] == (["one"], [])


def test_line_separators_inside_text_do_not_split_a_record(store: str) -> None:
    """U+2028, U+0085, vertical tab, form feed, CR and NUL in a message: one line, the same text back."""
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\rg\nh\0i\x1b[31m\U0001f600"
    with Session.create(store, META, id="a") as session:
        session.append(user(text))
    with Session.open(store, "a") as session:
        assert (texts(session), session.notices) == ([text], [])
    assert Path(session.path).read_bytes().count(b"\n") == 2


def test_lone_surrogates_are_kept(store: str) -> None:
    """Read as escapes, written as escapes, in keys and values, across a rewrite."""
    found, notices, _ = entries_after(store, HEAD + ONE.replace(b"one", b"half \\ud83d of it"))
    assert (found, notices) == (["half \ud83d of it"], [])
    with Session.open(store, "damaged") as session:
        session.append(answer("\udc80 from a file name", **{"k\ud800": 1}))
        session.rewrite(session.entries)
    with Session.open(store, "damaged") as session:
        assert texts(session) == ["half \ud83d of it", "\udc80 from a file name"]
        assert session.entries[1]["k\ud800"] == 1


def test_an_empty_file_is_a_session_without_messages(store: str) -> None:
    """It opens, says so, gets a meta line, and takes a turn. So does a file that holds only a torn meta line."""
    for data in (b"", b'{"type":"met', bytes(64)):
        found, notices, after = entries_after(store, data)
        assert (found, notices[-1]) == ([], "the file was empty: the session starts anew")
        assert json.loads(after)["id"] == "damaged"


def test_a_file_without_a_meta_line_opens(store: str) -> None:
    """Its messages count; the settings are made up, and it says so."""
    found, notices, _ = entries_after(store, ONE + TWO)
    assert (found, notices) == (
        ["one", "two"], ["the file has no meta line: its settings and its directory are unknown"]
    )  # fmt: skip


def test_a_later_version_is_read_but_not_written(store: str) -> None:
    """Exit 4 for -c, with the advice to upgrade; `show` still works."""
    path = write(store, HEAD.replace(b'"version":1', b'"version":2') + ONE)
    before = path.read_bytes()
    with pytest.raises(SessionError, match="written by a later version"):
        Session.open(store, "damaged")
    assert (path.read_bytes(), texts(Session.read(store, "damaged"))) == (before, ["one"])


def test_a_line_of_a_hundred_megabytes_is_only_a_long_line(store: str) -> None:
    """It loads, is shown, and takes an append."""
    write(store, HEAD + ONE.replace(b"one", b"x" * 100_000_000))
    with Session.open(store, "damaged", disk=Quick()) as session:
        session.append(answer("short"))
        assert [len(text) for text in texts(session)] == [100_000_000, 5]


# ---- what is not a session -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "id",
    ["../../etc/passwd", "/etc/passwd", "a/b", "", ".", "..", "a\0b", "x" * 300, ".hidden", "-rf", "a b", "a\nb", "é",
     "a.jsonl", "a.lock", "a.archive", "~", "*", "a\\b"],
)  # fmt: skip
def test_what_is_not_an_id_never_becomes_a_path(store: str, id: str) -> None:
    """Exit 4 and no file touched, for opening, reading and making."""
    for attempt in (Session.open, Session.read):
        with pytest.raises(SessionNotFound, match="is not a session id") as caught:
            attempt(store, id)
        assert caught.value.exit_code == 4
    if id:
        with pytest.raises(SessionNotFound):
            Session.create(store, META, id=id)
    assert not os.path.exists(store)


def test_an_unknown_id_makes_no_file(store: str) -> None:
    """Not even a lock."""
    os.mkdir(store)
    with pytest.raises(SessionNotFound, match="no session 'CON' in"):
        Session.open(store, "CON")
    assert os.listdir(store) == []


def test_what_is_no_plain_file_is_refused(store: str, tmp_path: Path) -> None:
    """A directory, a pipe, a link out of the store, a dangling link: exit 4, nothing followed, nothing hangs."""
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(HEAD + ONE)
    os.mkdir(store)
    os.mkdir(f"{store}/folder.jsonl")
    os.mkfifo(f"{store}/pipe.jsonl")
    os.symlink(outside, f"{store}/link.jsonl")
    os.symlink(tmp_path / "nowhere", f"{store}/dangling.jsonl")
    for id in ("folder", "pipe", "link", "dangling"):
        for attempt in (Session.open, Session.read):
            with pytest.raises(SessionError, match=r"is not a file|is a symbolic link") as caught:
                attempt(store, id)
            assert caught.value.exit_code == 4
    assert outside.read_bytes() == HEAD + ONE


def test_side_directories_that_are_links_are_not_written_through(store: str, tmp_path: Path) -> None:
    """A planted <id>.archive or <id>.files link: refused, the log whole, nothing outside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    with Session.create(store, META, id="a") as session:
        ask(session, "one")
        ask(session, "two")
        os.symlink(outside, f"{store}/a.archive")
        os.symlink(outside, f"{store}/a.files")
        for attempt in (lambda: compact(session), session.files_dir):
            with pytest.raises(StorageError, match="symbolic link"):
                attempt()
        ask(session, "three")
    assert (os.listdir(outside), len(Session.read(store, "a").entries)) == ([], 6)


def test_making_a_session_twice_is_an_error(store: str) -> None:
    """The caller's own id: never a silent second session, and the first stays."""
    Session.create(store, META, id="a").close()
    with pytest.raises(SessionError, match="session a exists already"):
        Session.create(store, META, id="a")
    assert len(Session.read(store, "a").meta) > 3


# ---- a disk that refuses ---------------------------------------------------------------------------------------------

ERRORS = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS]
CHANGES: dict[str, Callable[[Session], object]] = {
    "append": lambda s: s.append(user("new")),
    "rewrite": lambda s: compact(s, 1),
    "rename": lambda s: s.rename("n"),
}


@pytest.mark.parametrize("forever", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("number", ERRORS, ids=lambda n: errno.errorcode[n])
def test_every_operation_refused_in_turn(store: str, name: str, number: int, forever: bool) -> None:
    """The nth operation fails, for every n: an error in words and exit 1, or done; the file is whole, before or after,
    in this process and the next, and a later append works."""
    for nth in range(1, 60):
        id = f"s{nth}"
        with Session.create(store, META, id=id, disk=Quick()) as session:
            ask(session, "one")
            ask(session, "two")
        before = Session.read(store, id).entries
        disk = Failing(10**6, OSError(number, os.strerror(number)), forever=forever)
        with Session.open(store, id, disk=disk) as session:
            disk.nth = disk.count + nth
            failed = False
            try:
                CHANGES[name](session)
            except StorageError as error:
                failed = True
                assert (error.exit_code, "cannot " in error.text, session.entries) == (1, True, before)
            finished = disk.count < disk.nth
            disk.nth = 10**6
            disk.forever = False
            held = list(session.entries)
            added = session.append(user("afterwards"))
        with Session.open(store, id, disk=Quick()) as session:
            assert session.entries == [*held, added]
            assert [n for n in session.notices if "moved" in n] == []
        assert failed or held != before or name == "rename"
        if finished:
            return
    raise AssertionError("the change never came to its end")


@pytest.mark.parametrize("number", ERRORS, ids=lambda n: errno.errorcode[n])
def test_making_a_session_on_a_disk_that_refuses(store: str, number: int) -> None:
    """An error in words, and no half-made session, for every operation that fails."""
    for nth in range(1, 60):
        disk = Failing(nth, OSError(number, os.strerror(number)))
        try:
            Session.create(store, META, id=f"s{nth}", disk=disk).close()
        except StorageError as error:
            assert error.exit_code == 1
            assert not os.path.exists(f"{store}/s{nth}.jsonl")
        else:
            assert nth > 4
            return


def test_a_directory_that_vanishes_or_closes_during_the_run(store: str, tmp_path: Path) -> None:
    """Moved away: an error and the moved file whole. Removed: an error. Another program's write: never overwritten."""
    with Session.create(store, META, id="a") as session:
        ask(session, "one")
        os.rename(store, tmp_path / "moved")
        for attempt in (lambda: session.append(user("lost?")), lambda: compact(session, 1)):
            with pytest.raises(StorageError, match="it is not there"):
                attempt()
        assert len(Session.read(str(tmp_path / "moved"), "a").entries) == 2
        os.rename(tmp_path / "moved", store)
        with open(session.path, "ab") as foreign:
            foreign.write(TWO)
        for attempt in (lambda: session.append(user("over it?")), lambda: compact(session, 1)):
            with pytest.raises(StorageError, match="changed by another program"):
                attempt()
    assert Path(session.path).read_bytes().endswith(TWO)


def test_an_interrupt_in_the_middle_of_an_append(store: str) -> None:
    """Ctrl-C at any operation of an append: memory and disk agree, and the next append is clean."""
    for nth in (1, 2):  # the write, the fsync
        disk = Failing(10**6, KeyboardInterrupt())
        with Session.create(store, META, id=f"s{nth}", disk=disk) as session:
            session.append(user("one"))
            disk.nth = disk.count + nth
            with pytest.raises(KeyboardInterrupt):
                session.append(user("two"))
            assert len(session.entries) == 1
            session.append(user("three"))
        with Session.open(store, f"s{nth}") as again:
            assert (again.entries, again.notices) == (session.entries, [])


def test_a_read_only_directory(store: str) -> None:
    """A clear error for a new session and for -c; reading works. (Root ignores modes, so the disk says it.)"""
    Session.create(store, META, id="a").close()
    disk = Failing(1, PermissionError(errno.EACCES, "Permission denied"), forever=True)
    for attempt in (lambda: Session.open(store, "a", disk=disk), lambda: Session.create(store, META, disk=disk)):
        with pytest.raises(StorageError, match="permission denied") as caught:
            attempt()
        assert "--session-dir" in caught.value.hint
    assert Session.read(store, "a").entries == []


# ---- processes -------------------------------------------------------------------------------------------------------

APPENDER = """
import sys
from agent.session import Session
from agent.errors import SessionBusy
store, id, wait, count = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
try:
    with Session.open(store, id, wait=wait) as session:
        for number in range(count):
            message = {"role": "user", "content": f"{sys.argv[5]}.{number}"}
            print(session.append({"type": "message", "message": message})["n"], flush=True)
except SessionBusy:
    sys.exit(7)
"""


def appender(store: str, id: str, *, wait: float, count: int, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", APPENDER, store, id, str(wait), str(count), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_a_second_run_is_told_who_holds_the_session(store: str) -> None:
    """Exit 7 and the pid; free again as soon as the holder is gone; the lock file that stays is no obstacle."""
    with Session.create(store, META, id="a"):
        with pytest.raises(
            SessionBusy, match=rf"session a is in use by another run \(process {os.getpid()}\)"
        ) as caught:
            Session.open(store, "a")
        assert (caught.value.exit_code, caught.value.hint) == (
            7,
            "Wait for it with --wait SECONDS; a turn can go on in a copy: --fork",
        )
    with Session.open(store, "a") as session:
        assert session.entries == []
    assert os.path.exists(f"{store}/a.lock")


@pytest.mark.parametrize("count", [2, 50])
def test_many_processes_on_one_session(store: str, count: int) -> None:
    """All wait their turn: every entry of every process is there, whole, none interleaved, all numbers different."""
    Session.create(store, META, id="a").close()
    running = [appender(store, "a", wait=60, count=3, name=str(i)) for i in range(count)]
    assert [process.communicate()[0].count(b"\n") for process in running] == [3] * count
    with Session.open(store, "a") as session:
        said = texts(session)
        assert [e["n"] for e in session.entries] == list(range(1, 3 * count + 1))
        assert session.notices == []
    blocks = [said[at : at + 3] for at in range(0, len(said), 3)]
    assert sorted(blocks) == sorted([f"{i}.0", f"{i}.1", f"{i}.2"] for i in range(count))


def test_fifty_processes_on_fifty_sessions(store: str) -> None:
    """Nobody waits for anybody."""
    for i in range(50):
        Session.create(store, META, id=f"s{i}", disk=Quick()).close()
    running = [appender(store, f"s{i}", wait=0, count=2, name="x") for i in range(50)]
    assert [process.communicate()[0] for process in running] == [b"1\n2\n"] * 50


@pytest.mark.parametrize("told", [1, 2, 3, 5, 8, 13])
def test_what_was_told_survives_sigkill(store: str, told: int) -> None:
    """A real process, killed with -9 after it said that an entry is safe: the entry is there, and the lock free."""
    Session.create(store, META, id="a").close()
    process = appender(store, "a", wait=0, count=10**6, name="x")
    assert process.stdout is not None
    numbers = [int(process.stdout.readline()) for _ in range(told)]
    process.kill()
    process.communicate()
    with Session.open(store, "a") as session:
        assert [e["n"] for e in session.entries][: len(numbers)] == numbers
        session.append(user("after the kill"))
    with Session.open(store, "a") as session:
        assert (texts(session)[-1], session.notices) == ("after the kill", [])


def test_errors_are_of_the_tree() -> None:
    """Whatever a session raises for a user is an AgentError, with an exit code."""
    assert all(issubclass(e, AgentError) for e in (SessionBusy, SessionCorrupt, SessionNotFound, StorageError))
