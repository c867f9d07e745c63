"""What a compaction knows of its session: read while a model writes the summary, and the same as if read afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from writers import Writer, reply, sections

from agent.compaction import Compactor
from agent.compaction.past import Past
from agent.events import Event, Notice
from agent.messages import Reply, Request
from agent.session import Session
from agent.tokens import limits_for

FACTS = [f"The port of service {name} is {4100 + 97 * at}." for at, name in enumerate("abcdefgh")]

SAID = "the ports 4585, 4682 and 4779 are taken"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Compacted once, so that what it said first stands in an archive."""
    made = Session.create(str(tmp_path), {"model": "m"})
    for fact in FACTS:
        made.append({"type": "message", "message": {"role": "user", "content": fact}})
        made.append({"type": "message", "message": {"role": "assistant", "content": "So be it, and so it is. " * 30}})
        if fact == FACTS[4]:
            compactor = Compactor(made, Writer([]), limits_for(2000, "flag"), (), lambda event: None)
            assert compactor.now(strategy="raw_fallback")["outcome"] == "compacted"
    return made


def say(session: Session) -> None:
    for _ in range(3):
        session.append({"type": "message", "message": {"role": "user", "content": "And what then? " * 30}})
        session.append(
            {"type": "message", "message": {"role": "assistant", "content": "So be it, and so it is. " * 30}}
        )


def archive(session: Session) -> Path:
    return Path(session.path.removesuffix(".jsonl") + ".archive")


def compacted(session: Session, writer: Writer) -> str:
    """The text of the summary message."""
    compactor = Compactor(session, writer, limits_for(2000, "flag"), (), lambda event: None)
    done = compactor.now()
    assert done.get("strategy") == "window_plus_summary", done
    return next(str(e["message"]["content"]) for e in session.entries if e.get("summary"))


def test_all_that_is_needed_is_read_while_the_model_writes(session: Session) -> None:
    """When the answer comes the archive may be gone: the record knows what stood in it, to the last fact."""

    def write(request: Request) -> Reply:
        request.meanwhile()
        for path in archive(session).iterdir():
            path.unlink()
        return reply(sections(SAID))

    text = compacted(session, Writer(write))
    assert all(fact.rstrip(".") in text for fact in FACTS[:5])


def test_it_is_the_same_whenever_it_is_read(session: Session, tmp_path: Path) -> None:
    """A model that gives no time to do anything meanwhile gets the same summary message."""
    shutil.copytree(tmp_path, tmp_path / "copy")
    texts = []
    for store, early in ((tmp_path, True), (tmp_path / "copy", False)):

        def write(request: Request, early: bool = early) -> Reply:
            if early:
                request.meanwhile()
            return reply(sections(SAID))

        session.close()
        with Session.open(str(store), session.id) as opened:
            texts.append(compacted(opened, Writer(write)))
    assert texts[0] == texts[1]


def test_an_archive_that_cannot_be_read_stops_nothing(session: Session) -> None:
    """The compaction goes on with what the present file says, and says so; the next one looks again."""
    (archive(session) / "gleaned.json").unlink()
    originals = archive(session) / "0001.jsonl"
    originals.rename(archive(session) / "elsewhere")
    originals.mkdir()
    events: list[Event] = []
    writer = Writer([reply(sections(SAID))])
    compactor = Compactor(session, writer, limits_for(2000, "flag"), (), events.append)
    assert compactor.now()["strategy"] == "window_plus_summary"
    told = [e for e in events if isinstance(e, Notice)]
    assert [(e.level, e.code) for e in told] == [("warning", "archive_unread")]
    assert told[0].text.startswith(f"Archive 0001 of session {session.id} is missing or damaged. ")
    originals.rmdir()
    (archive(session) / "elsewhere").rename(originals)
    say(session)
    text = compacted(session, writer)
    assert all(fact.rstrip(".") in text for fact in FACTS[:4])


@pytest.mark.parametrize("harm", ["gone", "a bad line"])
def test_what_is_missing_in_the_past_is_said(session: Session, harm: str) -> None:
    """The record cannot hold what nobody can read; a person can still do something about it."""
    first = archive(session) / "0001.jsonl"
    if harm == "gone":
        first.unlink()
    else:
        first.write_bytes(first.read_bytes().replace(b"4100", b"\xff\xfe"))
    events: list[Event] = []
    compactor = Compactor(session, Writer([reply(sections(SAID))]), limits_for(2000, "flag"), (), events.append)
    assert compactor.now()["outcome"] == "compacted"
    told = f"Archive 0001 of session {session.id} is missing or damaged. "
    assert [e.text[: len(told)] for e in events if isinstance(e, Notice)] == [told]


def test_a_pin_is_left_out_when_it_stands_nowhere_word_for_word(session: Session) -> None:
    """However it is typed it is found in the record that holds it; another that begins alike is not it."""
    pins = ["Use C;", "Use C++", "🚫🔥", "one\n  line\nand another", "The tag is <system>."]
    for text in pins:
        session.append({"type": "pin", "text": text})
    past = Past(session, True, "user")
    whole = past.record_beside(()).within(400)
    shown = [{"type": "message", "message": {"role": "user", "content": whole}}]
    assert past.pins_left_out(shown) == ""
    shown[0]["message"] = {"role": "user", "content": whole.replace("Use C++", "").replace("🚫🔥", "")}
    assert past.pins_left_out(shown) == '2 of the pins: "Use C++", "🚫🔥"'
