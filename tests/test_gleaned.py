"""What is kept between compactions: it changes nothing but the time, and may be lost, torn or foreign at any moment."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from writers import Writer

from agent.compaction import Compactor, gleaned
from agent.log.archive import redo, undo
from agent.session import Session
from agent.tokens import limits_for

FACTS = [f"The port of service {name} is {4100 + 97 * at}." for at, name in enumerate("abcdefgh")]


def kept(session: Session) -> Path:
    return Path(session.path.removesuffix(".jsonl") + ".archive/gleaned.json")


def say(session: Session, *texts: str) -> None:
    for text in texts:
        session.append({"type": "message", "message": {"role": "user", "content": text}})
        session.append(
            {"type": "message", "message": {"role": "assistant", "content": "So it is, and so be it. " * 30}}
        )


def compact(session: Session) -> str:
    """Compact without a summary; the text of the message that stands in its place."""
    compactor = Compactor(session, Writer([]), limits_for(2000, "flag"), (), lambda event: None)
    assert compactor.now(strategy="raw_fallback")["outcome"] == "compacted"
    return next(str(e["message"]["content"]) for e in session.entries if e.get("summary"))


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = Session.create(str(tmp_path), {"model": "m"})
    say(made, *FACTS[:4], "Well?")
    compact(made)
    say(made, *FACTS[4:], "And?")
    return made


def test_the_next_compaction_reads_only_what_is_new(session: Session) -> None:
    """The archives are not opened: it knows what they said where nothing can be read in them any more."""
    for path in kept(session).parent.glob("*.jsonl"):
        about = path.stat()
        path.write_bytes(b"?" * about.st_size)
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    text = compact(session)
    assert [fact for fact in FACTS if fact.rstrip(".") not in text] == []


def test_what_was_taken_out_of_an_archive_does_not_come_back(session: Session) -> None:
    """Somebody removed a password by hand: what was read before is not used."""
    for path in kept(session).parent.glob("*.jsonl"):
        path.write_bytes(path.read_bytes().replace(b"4100", b"gone"))
    text = compact(session)
    assert "4100" not in text and "The port of service b is 4197" in text


def torn(session: Session) -> None:
    path = kept(session)
    path.write_bytes(path.read_bytes()[:-7])


def gone(session: Session) -> None:
    kept(session).unlink()


def of_another_kind(session: Session) -> None:
    kept(session).write_text('{"version": 1, "archive": 7, "statements": [[1]]}')


def altered(session: Session) -> None:
    """A word in a statement, with everything else as it was."""
    path = kept(session)
    path.write_bytes(path.read_bytes().replace(b"4100", b"5100"))


def of_the_future(session: Session) -> None:
    """It says to have read messages that are not there yet."""
    head, statements = kept(session).read_bytes().split(b"\n", 1)
    kept(session).write_bytes(json.dumps({**json.loads(head), "last": 10**6}).encode() + b"\n" + statements)


def wrong_types(session: Session) -> None:
    head, statements = kept(session).read_bytes().split(b"\n", 1)
    told = json.loads(statements)["statements"]
    wrong = [[None, {}, 3, [], "x", {}] for _ in told]
    kept(session).write_bytes(head + b"\n" + json.dumps({"statements": wrong}).encode() + b"\n")


def too_large(session: Session) -> None:
    os.truncate(kept(session), 1 << 40)


def a_pipe(session: Session) -> None:
    kept(session).unlink()
    os.mkfifo(kept(session))


def a_link(session: Session) -> None:
    """To a copy of itself elsewhere."""
    elsewhere = Path(session.path).parent / "elsewhere"
    kept(session).rename(elsewhere)
    kept(session).symlink_to(elsewhere)


def of_another_session(session: Session) -> None:
    with Session.create(os.path.dirname(session.path), {"model": "m"}) as other:
        say(other, "The port of service a is 1.", "Well?")
        compact(other)
        shutil.copy(kept(other), kept(session))


HARMS = [
    torn, gone, of_another_kind, of_another_session, altered, of_the_future, wrong_types, too_large, a_pipe, a_link,
]  # fmt: skip


@pytest.mark.parametrize("harm", HARMS)
def test_without_it_everything_is_read_again(harm: Callable[[Session], None], session: Session) -> None:
    harm(session)
    text = compact(session)
    assert [fact for fact in FACTS if fact.rstrip(".") not in text] == []
    assert "service a is 1" not in text.replace("service a is 4100", "")
    assert kept(session).stat().st_mode & 0o777 == 0o600


def test_it_is_not_believed_after_an_undo(session: Session) -> None:
    """What was taken back is a generation of its own; nothing is lost and nothing doubled."""
    undo(session)
    redo(session)
    undo(session)
    text = compact(session)
    assert [text.count(fact.rstrip(".")) for fact in FACTS] == [1] * len(FACTS)


def test_an_older_copy_of_the_session_knows_nothing_of_later_messages(session: Session) -> None:
    """Put back by hand: the file that is kept is of an archive that this log does not know."""
    before = Path(session.path).read_bytes()
    say(session, "The secret word is xylophone.", "Well?")
    compact(session)
    session.close()
    Path(session.path).write_bytes(before)
    (kept(session).parent / "0002.jsonl").unlink()
    with Session.open(os.path.dirname(session.path), session.id) as again:
        text = compact(again)
    assert "xylophone" not in text
    assert [fact for fact in FACTS if fact.rstrip(".") not in text] == []


def test_where_it_cannot_be_written_nothing_fails(session: Session) -> None:
    kept(session).unlink()
    (kept(session).parent / "gleaned.json.tmp").mkdir()
    assert "service h" in compact(session)
    assert not kept(session).exists()


@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to])
def test_what_stands_in_its_way_is_replaced_and_never_written_through(
    make: Callable[[Path, Path], None], session: Session, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    make(kept(session).parent / "gleaned.json.tmp", precious)
    compact(session)
    assert precious.read_text() == "precious"
    assert not kept(session).is_symlink() and kept(session).stat().st_nlink == 1
    assert sorted(p.name for p in kept(session).parent.iterdir()) == ["0001.jsonl", "0002.jsonl", "gleaned.json"]


TEXTS = st.one_of(
    st.sampled_from(FACTS),
    st.text(max_size=60),
    st.sampled_from(
        ["Never touch legacy/.", "端口是 8080。", "see src/a.py and https://example.org/x", "half a \ud83d pair"]
    ),
)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(TEXTS, min_size=1, max_size=5), min_size=2, max_size=5))
def test_what_is_gathered_is_the_same_with_and_without_it(
    tmp_path_factory: pytest.TempPathFactory, lives: list[list[str]]
) -> None:
    with Session.create(str(tmp_path_factory.mktemp("s")), {"model": "m"}) as session:
        for texts in lives:
            say(session, *texts, "Well?")
            with_it = gleaned.gather(session)
            kept(session).unlink(missing_ok=True)
            assert gleaned.gather(session) == with_it
            compact(session)


def test_what_a_user_corrects_in_the_file_is_what_was_said(tmp_path: Path) -> None:
    """A message that a compaction kept word for word, then edited by hand: the next record has it as it is now."""
    with Session.create(str(tmp_path), {"model": "m"}) as session:
        say(session, *FACTS[:4], "The database port is 8080.")
        compact(session)
        path = Path(session.path)
    assert b"port is 8080." in path.read_bytes().splitlines()[-2]
    path.write_bytes(path.read_bytes().replace(b"port is 8080.", b"port is 9090."))
    with Session.open(str(tmp_path), path.stem) as session:
        say(session, *FACTS[4:], "And?")
        text = compact(session)
        assert ("9090" in text, "8080" in text) == (True, False)
        assert [fact for fact in FACTS if fact.rstrip(".") not in text] == []
        say(session, "More?", "And more?")
        text = compact(session)
    assert ("9090" in text, "8080" in text) == (True, False)
