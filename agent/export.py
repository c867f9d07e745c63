"""A session as something to read elsewhere: JSON Lines, JSON, Markdown, or one HTML page.

    jsonl   the log itself, ready to be continued somewhere else
    json    {"meta", "messages": what the model sees now, "history": every message of the life, "events": [...]}
    md      the whole life, in order, with each compaction where it happened: what it folded, and the summary
    html    the same as one page that needs nothing else: search box, folded tool output, dark or light

The life is a *story*: messages in order of `n`, and between them the compactions and undos. Everything that came from
a model, a tool or a file is escaped for where it goes; nothing is fetched, and the page's script adds no text as HTML.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

from agent.entries import Entry, encode
from agent.errors import UsageError
from agent.messages import text_of, tool_calls
from agent.session import Session
from agent.wire import clean

FORMATS = ("jsonl", "json", "md", "html")
_PICTURES = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {127: 0x2421}
"""In a form for reading, a control character is shown by its picture: ESC is U+241B."""


def story(session: Session) -> Iterator[Entry]:
    """Every message of the life in order of `n`, un-shortened, and each compaction and undo in its place, once."""
    events: dict[int, Entry] = {}
    for _, _, entries in session.generations():
        events |= {e["n"]: e for e in entries if e["type"] in ("compaction", "undo", "failed")}
    waiting = sorted(events.items(), reverse=True)
    for entry in session.originals():
        while waiting and waiting[-1][0] < entry["n"]:
            yield waiting.pop()[1]
        yield entry
    while waiting:
        yield waiting.pop()[1]


def title_of(session: Session) -> str:
    return str(session.meta.get("name") or session.id)


def event_line(entry: Entry) -> str:
    """A compaction, undo or failure in one sentence."""
    if entry["type"] == "undo":
        word = "undo taken back" if entry.get("redo") else "compaction undone"
        return f"{word} (entry {entry.get('undid')})"
    if entry["type"] == "failed":
        error = entry.get("error")
        return f"the turn failed: {error.get('text') if isinstance(error, dict) else error}"
    tokens = entry.get("tokens")
    tokens = tokens if isinstance(tokens, dict) else {}
    sizes = f", {tokens.get('before')} -> {tokens.get('after_estimate')} tokens" if tokens else ""
    folded = entry.get("folded")
    span = f", messages {folded[0]} to {folded[-1]} folded" if isinstance(folded, list) and folded else ""
    span += f", {entry['kept']} kept" if isinstance(entry.get("kept"), int) else ""
    why = f"{entry.get('reason', 'compaction')}, {entry.get('strategy', '?')}"
    return f"compacted ({why}{span}{sizes}, original in archive {entry.get('archive')})"


def fence(text: str) -> str:
    """A Markdown code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    bar = "`" * max(3, longest + 1)
    return f"{bar}\n{text}\n{bar}"


# ---- the forms -------------------------------------------------------------------------------------------------------


def export(session: Session, form: str) -> Iterator[str]:
    """The session in one of FORMATS, in pieces. Raises UsageError for another form."""
    forms = {"jsonl": as_jsonl, "json": as_json, "md": as_markdown, "html": as_html}
    if form not in forms:
        raise UsageError(f"there is no export format {form!r}", f"Use one of: {', '.join(FORMATS)}")
    pieces = forms[form](session)
    return pieces if form in ("jsonl", "json") else (clean(piece.translate(_PICTURES)) for piece in pieces)


def as_jsonl(session: Session) -> Iterator[str]:
    for entry in (session.meta, *session.entries):
        yield encode(entry).decode()


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


def as_html(session: Session) -> Iterator[str]:
    title = html.escape(title_of(session))
    facts = " · ".join(html.escape(str(session.meta[k])) for k in ("created_at", "model", "cwd") if session.meta.get(k))
    yield "".join({"TITLE": title, "FACTS": facts}.get(part, part) for part in re.split("(TITLE|FACTS)", _HEAD))
    for entry in story(session):
        if entry["type"] == "message":
            yield _block(entry)
        else:
            yield f'<hr><p class="event" id="e{entry["n"]}">{html.escape(event_line(entry))}{_links(entry)}</p>\n'
    yield _FOOT


def _links(entry: Entry) -> str:
    """Where the page shows what a compaction folded."""
    folded = entry.get("folded")
    if not (isinstance(folded, list) and folded and all(isinstance(n, int) for n in folded)):
        return ""
    return f' <a href="#n{folded[0]}">before</a> <a href="#n{entry["n"] + 1}">after</a>'


def _block(entry: Entry) -> str:
    """One message as HTML. Tool output is folded; a summary says that it is one."""
    message = entry["message"]
    role = html.escape(str(message["role"]))
    kind = "summary" if entry.get("summary") else re.sub(r"[^a-z]", "", role)
    label = html.escape(f"{'summary' if entry.get('summary') else message['role']} · {entry['n']}")
    at = html.escape(str(entry.get("at", "")))
    text = text_of(message)
    body = f"<pre>{html.escape(text)}</pre>" if text else ""
    if kind in ("tool", "system", "summary"):
        lines = text.count("\n") + 1
        body = f"<details><summary>{html.escape(_one_line(text[:120]))} ({lines} lines)</summary>{body}</details>"
    for call in tool_calls(message):
        shown = html.escape(f"{call.name} {_one_line(call.arguments[:120])}")
        body += f"<details><summary>{shown}</summary><pre>{html.escape(call.arguments)}</pre></details>"
    return f'<section class="{kind}" id="n{entry["n"]}"><h2>{label} <time>{at}</time></h2>{body}</section>\n'


_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>TITLE</title><style>
:root { color-scheme: light dark; --line: #d0d7de; --dim: #656d76; --user: #ddf4ff; --sum: #fff8c5 }
@media (prefers-color-scheme: dark) { :root { --line: #30363d; --dim: #8d96a0; --user: #121d2f; --sum: #272115 } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 0; font: inherit }
.tool pre, details pre { font: 13px/1.45 ui-monospace, monospace; max-height: 30rem; overflow: auto }
section { border-top: 1px solid var(--line); padding: .5rem .75rem } .user { background: var(--user) }
.summary { background: var(--sum) } h2 { font-size: .8rem; margin: 0; color: var(--dim) } time { font-weight: 400 }
details summary { cursor: pointer; color: var(--dim); overflow-wrap: anywhere }
.event { color: var(--dim); font-style: italic } input { font: inherit; width: 100%; box-sizing: border-box }
</style></head><body><h1>TITLE</h1><p>FACTS</p>
<p><input type="search" id="find" placeholder="Search" aria-label="Search"> <small id="count"></small></p>
"""
_FOOT = """<script>
const find = document.getElementById("find"), count = document.getElementById("count");
const all = [...document.querySelectorAll("section")].map(s => [s, s.textContent.toLowerCase()]);
find.addEventListener("input", () => {
  const wanted = find.value.toLowerCase(); let shown = 0;
  for (const [section, text] of all) { section.hidden = !text.includes(wanted); shown += !section.hidden }
  for (const d of document.querySelectorAll("section:not([hidden]) details")) d.open = wanted !== "";
  count.textContent = wanted ? shown + " of " + all.length : "";
});
</script></body></html>
"""
