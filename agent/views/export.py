"""A session as something to read elsewhere: JSON Lines, JSON, Markdown, or one HTML page.

    jsonl   the log itself, ready to be continued somewhere else
    json    {"meta", "messages": what the model sees now, "history": every message of the life, "events": [...]}
    md      the whole life, in order, with each compaction where it happened: what it folded, and the summary
    html    the same as one page that needs nothing else (`agent.views.page`)

Everything that came from a model, a tool or a file is escaped for where it goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agent.errors import UsageError
from agent.log.entries import encode
from agent.log.logfile import counts_of
from agent.messages import text_of, tool_calls
from agent.session import Session
from agent.views.chart import Lines
from agent.views.page import as_html
from agent.views.story import event_line, story, title_of
from agent.wire import clean

FORMATS = ("jsonl", "json", "md", "html")
_PICTURES = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {127: 0x2421}
"""In a form for reading, a control character is shown by its picture: ESC is U+241B."""


def fence(text: str) -> str:
    """A Markdown code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    bar = "`" * max(3, longest + 1)
    return f"{bar}\n{text}\n{bar}"


# ---- the forms -------------------------------------------------------------------------------------------------------


def export(session: Session, form: str, lines: Lines | None = None) -> Iterator[str]:
    """The session in one of FORMATS, in pieces; `lines` are for the page's picture.

    Raises: UsageError for another form.
    """
    forms = {"jsonl": as_jsonl, "json": as_json, "md": as_markdown, "html": as_html}
    if form not in forms:
        raise UsageError(f"there is no export format {form!r}", f"Use one of: {', '.join(FORMATS)}")
    pieces = as_html(session, lines) if form == "html" else forms[form](session)
    return pieces if form in ("jsonl", "json") else (clean(piece.translate(_PICTURES)) for piece in pieces)


def as_jsonl(session: Session) -> Iterator[str]:
    for entry in (session.meta, *session.entries):
        yield encode(entry).decode()


def only_archived(session: Session) -> int:
    """How many messages of the life stand, as they were said, in no line of `as_jsonl`."""
    if not counts_of(session.meta)["generation"]:
        return 0
    here = {entry["n"] for entry in session.entries if entry["type"] == "message" and not entry.get("pruned")}
    return sum(entry["n"] not in here and not entry.get("summary") for entry in session.originals())


def as_json(session: Session) -> Iterator[str]:
    yield '{"meta":' + _json(session.meta) + ',"messages":[' + ",".join(map(_json, session.view())) + '],"history":['
    first, events = True, []
    for entry in story(session):
        if entry["type"] == "message":
            yield ("" if first else ",") + _json(entry)
            first = False
        else:
            events.append(entry)
    yield '],"events":[' + ",".join(map(_json, events)) + "]}\n"


def _json(value: Any) -> str:
    return encode(value).decode().rstrip("\n")


def as_markdown(session: Session) -> Iterator[str]:
    yield f"# {_one_line(title_of(session))}\n\n"
    for key in ("id", "created_at", "model", "cwd"):
        if session.meta.get(key):
            yield f"- {key}: `{_one_line(str(session.meta[key]))}`\n"
    for entry in story(session):
        if entry["type"] != "message":
            yield f"\n---\n\n*{_one_line(event_line(entry))}*\n\n---\n"
            continue
        message = entry["message"]
        head = "summary" if entry.get("summary") else str(message["role"])
        yield f"\n## {_one_line(head)} · {entry['n']}\n\n"
        text = text_of(message)
        if text:
            yield (fence(text) if message["role"] == "tool" else text) + "\n"
        for call in tool_calls(message):
            yield f"\n**{_one_line(call.name)}**\n\n{fence(call.arguments)}\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())
