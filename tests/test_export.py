"""Exports: the same life in four forms, nothing that was stored can act where it is read."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from lives import META, answer, ask, call, compact, prune, result, texts, user

from agent.errors import UsageError
from agent.log import archive
from agent.session import Session
from agent.views.export import FORMATS, export, fence, story

EVIL = "<script>alert(1)</script>&amp;\"'\x1b[31mred\x00 </pre></style> \ud83d ``` `"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """A life with tools, hostile text, a pruning, a compaction and an undo."""
    with Session.create(str(tmp_path), META | {"name": "the-plan"}, id="a") as session:
        ask(session, "the first prompt")
        session.append(user(EVIL))
        session.append(call("x", name=EVIL))
        session.append(result("x", "line one\nline two " + EVIL))
        session.append(answer("done"))
        prune(session, 1)
        compact(session)
        ask(session, "later")
        archive.undo(session)
        ask(session, "last")
    return Session.read(str(tmp_path), "a")


def whole(session: Session, form: str) -> str:
    return "".join(export(session, form))


def test_the_story_is_every_message_once_with_its_events_in_place(session: Session) -> None:
    """Un-shortened, in order of n, a compaction before its summary, an undo before what came after."""
    assert [(e["n"], e["type"][:4], bool(e.get("summary"))) for e in story(session)] == [
        (1, "mess", False), (2, "mess", False), (3, "mess", False), (4, "mess", False), (5, "mess", False),
        (6, "mess", False), (7, "comp", False), (8, "comp", False), (9, "mess", True), (10, "mess", False),
        (11, "mess", False), (12, "undo", False), (13, "mess", False), (14, "mess", False),
    ]  # fmt: skip
    assert next(iter(story(session)))["message"]["content"] == "the first prompt"


def test_jsonl_is_the_log_and_can_be_continued(session: Session, tmp_path: Path) -> None:
    """Put into a store under another name, it opens to the same view."""
    (tmp_path / "copy.jsonl").write_text(whole(session, "jsonl"))
    with Session.open(str(tmp_path), "copy") as copy:
        assert (copy.view(), copy.notices) == (session.view(), [])


def test_json_has_the_view_and_the_whole_life(session: Session) -> None:
    found = json.loads(whole(session, "json"))
    assert list(found) == ["meta", "messages", "history", "events"]
    assert found["messages"] == session.view()
    assert [e["n"] for e in found["history"]] == [e["n"] for e in session.originals()]
    assert [e["type"] for e in found["events"]] == ["compaction", "compaction", "undo"]


def test_markdown_shows_the_life_and_fences_what_tools_said(session: Session) -> None:
    text = whole(session, "md")
    assert text.startswith("# the-plan\n\n- id: `a`\n")
    assert "\n## user · 1\n\nthe first prompt\n" in text
    assert "window_plus_summary, messages 1 to 4 folded, 2 kept, 900 -> 90 tokens, original in archive 0002" in text
    assert "\n````\nline one\nline two " in text
    assert "\x1b" not in text
    assert "\ufffd" in text


def test_a_fence_is_longer_than_what_it_holds() -> None:
    assert fence("a ```` b") == "`````\na ```` b\n`````"


class Tags(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_stands_alone_and_nothing_stored_acts_in_it(session: Session) -> None:
    """One script, ours; no address to fetch from; hostile text is text; dark and light; tool output folded."""
    page = whole(session, "html")
    parsed = Tags()
    parsed.feed(page)
    assert parsed.tags.count("script") == 1
    assert set(parsed.tags) <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "input", "small", "section", "time", "pre",
        "details", "summary", "a", "script", "i", "code", "div", "ul", "li",
        "figure", "figcaption", "svg", "g", "rect", "line", "path", "text", "span", "b", "br",
    }  # fmt: skip
    assert "<script>alert(1)</script>&amp;\"'␛[31mred␀ </pre></style> \ufffd" in parsed.text
    assert not any(word in page for word in ("http://", "https://", "src=", "@import", "url("))
    assert "prefers-color-scheme: dark" in page
    assert '<section class="tool" id="n5"><h2><a href="#n5">tool · 5</a>' in page
    assert '<summary>before: 4 messages, 900 tokens</summary><ul><li><a href="#n1">user · 1</a>' in page
    assert "<summary>after: about 90 tokens, 2 kept word for word</summary><pre>a summary</pre>" in page


def test_every_form_of_every_oddity(tmp_path: Path) -> None:
    """Damaged, meta-less, empty: something readable, never an error."""
    files = {
        "empty": b"",
        "bare": b'{"type":"message","message":{"role":"user","content":[{"type":"text","text":"parts"}]}}\n',
        "bad": b'{"type":"meta","id":"bad"}\njunk\n{"type":"message","n":2,"message":{"role":"user","content":null}}\n',
        "odd": b'{"type":"compaction","n":1,"folded":"x","tokens":3}\n{"type":"failed","n":2}\n{"type":"undo","n":3}\n',
    }
    for name, data in files.items():
        (tmp_path / f"{name}.jsonl").write_bytes(data)
        for form in FORMATS:
            assert whole(Session.read(str(tmp_path), name), form)
    with pytest.raises(UsageError, match="no export format 'pdf'"):
        whole(Session.read(str(tmp_path), "bare"), "pdf")
    assert texts(Session.read(str(tmp_path), "bad")) == ["None"]
