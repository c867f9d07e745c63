"""Bytes to events: every framing, at every split."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.wire.sse import Event, EventReader


def read(*pieces: bytes) -> list[tuple[str, object]]:
    reader = EventReader()
    events = [e for p in pieces for e in reader.feed(p)] + reader.close()
    return [(e.name, e.value if e.value is not None else e.data) for e in events]


def test_line_ends_names_comments_and_several_data_lines() -> None:
    body = b"\xef\xbb\xbfevent: a\r\ndata: {\r\ndata:}\r\n\r\n: beat\n\ndata:1\r\rid: 7\nretry: 3\ndata: [DONE]\n\n"
    assert read(body) == [("a", {}), ("", 1), ("[DONE]", b"[DONE]")]


def test_only_line_feeds_end_a_line() -> None:
    """U+2028, U+0085, vertical tab and form feed are text."""
    text = "a\u2028b\u2029c\u0085d"
    assert read(f'data: "{text}"\n\n'.encode()) == [("", text)]


def test_an_unterminated_last_event_counts() -> None:
    assert read(b"data: 1\n\ndata: 2") == [("", 1), ("", 2)]


def test_json_bodies_are_events() -> None:
    assert read(b'\n\n{"a": 1}') == [("", {"a": 1})]
    assert read(b'{"a": 1}data: [DONE]\n\n') == [("", {"a": 1})]
    assert read(b'{"a": 1}\n{"b": 2}\n') == [("", {"a": 1}), ("", {"b": 2})]
    assert read(b'[{"a": 1},\n{"b": 2}]') == [("", {"a": 1}), ("", {"b": 2})]
    assert read(b'data: 1\n\n{"error": {"message": "x"}}\n') == [("", 1), ("", {"error": {"message": "x"}})]
    assert read(b'error: {"code": 500}\n\n') == [("error", {"code": 500})]


def test_events_without_a_blank_line_between_them() -> None:
    assert read(b'data: {"a": 1}\ndata: {"b": 2}\ndata: [DONE]\n\n') == [
        ("", {"a": 1}),
        ("", {"b": 2}),
        ("[DONE]", b"[DONE]"),
    ]
    assert read(b'data: {"a": 1}{"b": 2}\n\n') == [("", {"a": 1}), ("", {"b": 2})]
    assert read(b'data: data: {"a": 1}\n\ndata: [done]\n\n') == [("", {"a": 1}), ("[DONE]", b"[done]")]


def test_damage_is_counted() -> None:
    reader = EventReader()
    reader.feed(b'data: {"a\n\ndata: 1\n\ndata: {\n\n')
    assert reader.damaged == 2


def test_a_page_and_stray_text_are_told_apart() -> None:
    page, stray = EventReader(), EventReader()
    assert page.feed(b"<html>") + page.close() == []
    assert (page.html, page.body) == (True, b"<html>")
    assert stray.feed(b"upstream request timeout") + stray.close() == []
    assert stray.stray == b"upstream request timeout"


LINES = st.lists(
    st.sampled_from(
        [b"data: 1", b'data: "\xe4\xbd\xa0"', b"data:", b"", b"", b": c", b"event: x", b"junk", b"data: {", b"\xff"]
    ),
    max_size=8,
)


@given(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.integers(1, 7), st.booleans())
@settings(max_examples=300, deadline=None)
def test_splits_change_nothing(lines: list[bytes], end: bytes, size: int, bom: bool) -> None:
    body = (b"\xef\xbb\xbf" if bom else b"") + end.join(lines) + end
    assert read(*(body[at : at + size] for at in range(0, len(body), size))) == read(body)


@given(st.binary(max_size=200), st.integers(1, 50))
@settings(max_examples=300, deadline=None)
def test_reading_is_total(body: bytes, size: int) -> None:
    """Any bytes give events or nothing, never an exception."""
    reader = EventReader()
    events: list[Event] = []
    for at in range(0, len(body), size):
        events += reader.feed(body[at : at + size])
    assert all(isinstance(e, Event) for e in events + reader.close())
