"""The store: where it is, which session is meant, what a list says, and what is removed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from disks import Quick
from lives import META, ask, compact, user

from agent.errors import ConfigError, SessionBusy, SessionError, SessionNotFound, UsageError
from agent.log import library
from agent.log.entries import encode
from agent.log.search import Hit, excerpt, search
from agent.session import Session


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def make(store: str, id: str, cwd: str = "/work", written: int = 0, **meta: object) -> None:
    """A session with one turn, last written `written` seconds after the epoch."""
    with Session.create(store, {"cwd": cwd, "model": "m", **meta}, id=id, disk=Quick()) as session:
        ask(session, f"the first words of {id}")
    if written:
        os.utime(session.path, (written, written))


# ---- where -----------------------------------------------------------------------------------------------------------


def test_the_places_a_store_can_be_in_order_of_precedence(tmp_path: Path) -> None:
    """Flag, variable, configuration, a marked ./sessions, the state home; never an unmarked ./sessions."""
    cwd = str(tmp_path)
    home = {"HOME": "/home/u"}
    local = tmp_path / "sessions"
    local.mkdir()
    assert library.find_store(None, home, cwd, None) == "/home/u/.local/state/agent/sessions"
    assert library.find_store(None, home | {"XDG_STATE_HOME": "/state"}, cwd, None) == "/state/agent/sessions"
    (local / library.MARKER).write_text("")
    os.chmod(local, 0o755)
    assert library.find_store(None, home, cwd, None) == str(local)
    assert stat.S_IMODE(local.stat().st_mode) == 0o700
    assert library.find_store(None, home, cwd, "conf") == f"{cwd}/conf"
    assert library.find_store(None, home | {"AGENT_SESSION_DIR": "/env"}, cwd, "conf") == "/env"
    assert library.find_store("../flag", home | {"AGENT_SESSION_DIR": "/env"}, cwd, "conf") == f"{tmp_path.parent}/flag"


def test_a_marker_that_is_a_link_or_a_sessions_that_is_one_does_not_count(tmp_path: Path) -> None:
    """A foreign checkout cannot lead conversations out of the directory."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / library.MARKER).write_text("")
    (tmp_path / "sessions").symlink_to(elsewhere)
    environ = {"HOME": "/home/u"}
    assert library.find_store(None, environ, str(tmp_path), None) == "/home/u/.local/state/agent/sessions"
    (tmp_path / "sessions").unlink()
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / library.MARKER).symlink_to(elsewhere / library.MARKER)
    assert library.find_store(None, environ, str(tmp_path), None) == "/home/u/.local/state/agent/sessions"


def test_without_a_home_a_place_must_be_named(tmp_path: Path) -> None:
    """Exit 3, and what to type."""
    with pytest.raises(ConfigError, match="HOME is not set") as caught:
        library.find_store(None, {}, str(tmp_path), None)
    assert "--session-dir" in caught.value.hint


# ---- which -----------------------------------------------------------------------------------------------------------

A, B, C = "20260101-100000-abc12345", "20260101-110000-abd99999", "20260202-100000-12345678"


@pytest.fixture
def three(store: str) -> str:
    make(store, A, "/work", 100)
    make(store, B, "/work", 300, name="fix-login")
    make(store, C, "/other", 200)
    return store


@pytest.mark.parametrize(
    ("wanted", "found"),
    [(A, A), ("20260101-10", A), ("202602", C), ("abc", A), ("abd9", B), ("123", C), ("fix-login", B), ("last", B)],
)
def test_what_means_a_session(three: str, wanted: str, found: str) -> None:
    """A full id, a prefix of the id or of its random part, a name, or `last`."""
    assert library.resolve(three, wanted, "/work") == found


def test_what_could_be_several_is_an_error_that_lists_them(three: str) -> None:
    """Never a silent pick."""
    with pytest.raises(SessionError, match=f"'20260101' could be any of 2 sessions: {B}, {A}") as caught:
        library.resolve(three, "20260101", "/work")
    assert caught.value.exit_code == 4
    with pytest.raises(SessionError, match="could be any of 3 sessions"):
        library.resolve(three, "2026", "/work")


@pytest.mark.parametrize(
    "wanted", ["nosuch", "ab", "20", "zzz", "fix", "FIX-LOGIN", "abc12346", "", "../x", A + "0", "é"]
)
def test_what_means_none_is_an_error(three: str, wanted: str) -> None:
    """Exit 4 and no new session; two characters are too few for a prefix."""
    before = sorted(os.listdir(three))
    with pytest.raises(SessionNotFound) as caught:
        library.resolve(three, wanted, "/work")
    assert (caught.value.exit_code, sorted(os.listdir(three))) == (4, before)


def test_a_value_with_a_space_is_the_habit_of_another_tool(three: str) -> None:
    """It says what to type instead."""
    with pytest.raises(SessionNotFound, match="no session matches 'fix the bug'") as caught:
        library.resolve(three, "fix the bug", "/work")
    assert caught.value.hint.endswith('agent --last "fix the bug"')


def test_last_is_the_session_of_this_directory_last_written_to(three: str) -> None:
    """A, B, then A again: A. Another directory has its own; a directory without any is an error."""
    with Session.open(three, A) as session:
        ask(session, "again")
    assert library.resolve(three, "last", "/work") == A
    assert library.resolve(three, "last", "/other") == C
    with pytest.raises(SessionNotFound, match="no session was made in /nowhere"):
        library.resolve(three, "last", "/nowhere")


@pytest.mark.parametrize("name", ["", "a b", "last", "-x", "abc", "2026", "a/b", "a\x1bb", "a\nb", "x" * 65, "\u202e"])
def test_what_cannot_be_a_name(name: str) -> None:
    """Nothing that could be taken for an id, a flag or a path, or that a terminal would act on."""
    with pytest.raises(UsageError, match=r"cannot be the name|is empty|is reserved"):
        library.check_name(name)


def test_a_name_belongs_to_one_session(three: str) -> None:
    """Taken: an error. Renaming keeps every entry and every number; naming it the same again changes nothing."""
    with pytest.raises(SessionError, match=f"the name 'fix-login' is taken by session {B}"):
        library.rename(three, A, "fix-login")
    before = Session.read(three, A).entries
    library.rename(three, A, "größe-1")
    library.rename(three, A, "größe-1")
    session = Session.read(three, A)
    assert (library.resolve(three, "größe-1", "/"), session.entries) == (A, before)
    assert session.meta["counts"] == {"n": 0, "requests": 0, "generation": 1, "compactions": 0}


def test_a_name_is_no_activity(three: str) -> None:
    """An old session that gets a name stays where it was in a list; `last` is still the one last talked to, and a
    prompt after the name counts."""
    before = library.listing(three)
    library.rename(three, A, "the-old-one")
    assert [row[:2] for row in library.listing(three)] == [row[:2] for row in before]
    assert library.resolve(three, "last", "/work") == B
    with Session.open(three, A, disk=Quick()) as session:
        session.rename("once-more")
        ask(session, "a word")
    assert library.resolve(three, "last", "/work") == A


# ---- lists -----------------------------------------------------------------------------------------------------------


def test_a_list_is_newest_first_and_of_this_directory(three: str) -> None:
    """Rows with everything a list shows; None stands for each session of another directory."""
    rows = list(library.summaries(three, "/work"))
    assert [row and row.id for row in rows] == [B, None, A]
    first = rows[0]
    assert first is not None
    assert first._replace(created_at="", bytes=0) == library.Summary(
        B, "fix-login", "/work", "m", "", 300.0, 0, 2, 107, 0, f"the first words of {B}"
    )
    assert [row.id for row in library.summaries(three) if row] == [B, C, A]


def test_a_row_tells_of_the_last_answer_and_not_of_a_summary_in_vain(store: str) -> None:
    with Session.create(store, META, id="a") as session:
        ask(session, "hello")
        usage = {"prompt_tokens": 9000, "completion_tokens": 1}
        session.append(
            {"type": "attempt", "reason": "manual", "outcome": "no_summary", "model": "cheap", "usage": usage}
        )
    [row] = [row for row in library.summaries(store) if row]
    assert (row.model, row.tokens) == ("m", 107)


def test_a_list_reads_only_the_ends_of_a_large_session(store: str) -> None:
    """After compactions and megabytes: the last usage, the count, and the first words of the whole life."""
    with Session.create(store, META, id="big", disk=Quick()) as session:
        ask(session, "how it all began")
        ask(session, "two")
        compact(session)
        for number in range(40):
            ask(session, f"turn {number}", "y" * 100_000)
    size = os.path.getsize(session.path)
    [row] = [row for row in library.summaries(store) if row]
    assert (row.messages, row.tokens, row.compactions, row.first_words) == (86, 107, 1, "how it all began")
    ends = library.read_ends(session.path)
    assert (ends.whole, size > 4_000_000) == (False, True)


def test_a_list_survives_everything_that_may_lie_in_a_store(three: str, tmp_path: Path) -> None:
    """Damaged, empty and foreign files, directories, links, pipes, a 3 MB line: a row or nothing, no error."""
    store = Path(three)
    (store / "empty.jsonl").write_bytes(b"")
    (store / "nul.jsonl").write_bytes(bytes(5000))
    (store / "noise.jsonl").write_bytes(os.urandom(200_000))
    (store / "wide.jsonl").write_bytes(b'{"type":"meta","x":"' + b"y" * 3_000_000 + b'"}\n' + b'{"type":"x","n":5}\n')
    (store / "crlf.jsonl").write_bytes(b'{"type":"meta","id":"crlf","name":"dos"}\r\n' * 2)
    (store / "notes.txt").write_bytes(b"")
    (store / "x y.jsonl").write_bytes(b"")
    (store / "dir.jsonl").mkdir()
    (store / "link.jsonl").symlink_to(store / f"{A}.jsonl")
    os.mkfifo(store / "pipe.jsonl")
    found = {row.id: row for row in library.summaries(three) if row}
    assert set(found) == {A, B, C, "empty", "nul", "noise", "wide", "crlf"}
    assert (found["crlf"].name, found["wide"].messages) == ("dos", 5)
    assert library.listing(str(tmp_path / "nowhere")) == []


# ---- search ----------------------------------------------------------------------------------------------------------


def test_search_finds_what_was_said_also_in_the_archive(store: str) -> None:
    """Any case, current and archived, a tool's arguments too; each once, with its id and n."""
    with Session.create(store, META, id="a") as session:
        ask(session, "the Launch Code is 0000")
        arguments = {"name": "bash", "arguments": '{"command": "grep launch code.txt"}'}
        call = {"id": "x", "type": "function", "function": arguments}
        session.append({"type": "message", "message": {"role": "assistant", "content": None, "tool_calls": [call]}})
        ask(session, "something else")
        compact(session)
        session.append(user('say "LAUNCH CODE" again'))
    hits = list(search(store, "launch code"))
    assert [(h.id, h.n, h.role) for h in hits] == [
        ("a", 1, "user"), ("a", 2, "assistant"), ("a", 3, "assistant"), ("a", 8, "user")
    ]  # fmt: skip
    assert hits[0].text == "the Launch Code is 0000"
    assert [h[:3] for h in search(store, '"LAUNCH')] == [("a", 8, "user")]
    assert list(search(store, "straße")) == []


def test_search_goes_past_damage_and_beyond_ascii(store: str) -> None:
    """A bad line hides itself and nothing else; other scripts are found."""
    make(store, "a")
    with open(f"{store}/a.jsonl", "ab") as file:
        file.write(b"junk\n" + encode(user("部署在哪里 Straße", n=9)))
    assert list(search(store, "在哪")) == [Hit("a", 9, "user", "", "部署在哪里 Straße")]
    assert [h.n for h in search(store, "STRAßE")] == [9]
    assert excerpt("x" * 200 + "needle" + "y" * 200, "NEEDLE") == "x" * 60 + "needle" + "y" * 60


# ---- removal ---------------------------------------------------------------------------------------------------------


def test_removing_takes_everything_and_follows_no_link(store: str, tmp_path: Path) -> None:
    """Archive, side files, lock; a link inside is removed and what it points to stays."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("stays")
    with Session.create(store, META, id="a") as session:
        ask(session, "one")
        ask(session, "two")
        compact(session)
        (Path(session.files_dir()) / "link").symlink_to(outside)
        (Path(session.files_dir()) / "spill").write_text("x")
    make(store, "b")
    (Path(store) / "b.files").symlink_to(outside)
    (Path(store) / "c.jsonl").symlink_to(outside / "precious")
    for id in ("a", "b", "c"):
        library.remove(store, id)
    assert (os.listdir(store), os.listdir(outside)) == ([], ["precious"])
    with pytest.raises(SessionNotFound):
        library.remove(store, "a")
    for id in ("../outside", "/etc", ".", ""):
        with pytest.raises(SessionNotFound, match="is not a session id"):
            library.remove(store, id)


def test_a_busy_session_is_not_removed(store: str) -> None:
    with Session.create(store, META, id="a"), pytest.raises(SessionBusy):
        library.remove(store, "a")
    assert library.listing(store)[0][1] == "a"


def test_pruning_removes_only_what_is_old_and_free(store: str) -> None:
    """Dry run first: the same ids, nothing removed."""
    make(store, "old", written=1000)
    make(store, "busy", written=2000)
    make(store, "new")
    with Session.open(store, "busy") as session:
        os.utime(session.path, (2000, 2000))
        assert list(library.prune(store, 3600, dry_run=True)) == [
            ("busy", "would be removed"), ("old", "would be removed")
        ]  # fmt: skip
        assert list(library.prune(store, 3600)) == [("busy", "busy"), ("old", "removed")]
    assert sorted(id for _, id, _ in library.listing(store)) == ["busy", "new"]


@pytest.mark.parametrize(("text", "seconds"), [("30d", 2592000), ("12h", 43200), ("2w", 1209600), (" 5 M ", 300)])
def test_spans_of_time(text: str, seconds: int) -> None:
    assert library.parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5h", "1y", "١d"])
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(UsageError, match="is not a span of time"):
        library.parse_span(text)
