"""A session as one HTML page that needs nothing else: readable, searchable, dark or light.

At the top the picture of its context; then its life in order. Tool output, system prompts and summaries are folded.
Each compaction stands where it happened, with what it folded and what stood instead. Everything that came from a
model, a tool or a file is escaped; nothing is fetched, and the script adds no text as HTML.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from agent.log.entries import Entry
from agent.messages import text_of, tool_calls
from agent.session import Session
from agent.views.chart import Lines, svg
from agent.views.stats import Life, life
from agent.views.story import event_line, story, title_of

FOLDED = ("tool", "system", "summary")


def as_html(session: Session, lines: Lines | None = None) -> Iterator[str]:
    """The page, in pieces; `lines` are the levels drawn in the picture."""
    told = list(story(session))
    facts = (session.meta.get(key) for key in ("id", "created_at", "model", "cwd"))
    shown = {
        "TITLE": html.escape(title_of(session)),
        "FACTS": " · ".join(html.escape(str(fact)) for fact in facts if fact),
        "PICTURE": picture(life(told), lines or Lines()),
    }
    yield "".join(shown.get(part, part) for part in re.split("(TITLE|FACTS|PICTURE)", _HEAD))
    before = {e["n"]: e for e in told if e["type"] == "message"}
    for at, entry in enumerate(told):
        if entry["type"] == "message":
            yield _block(entry)
        else:
            after = told[at + 1] if at + 1 < len(told) else {}
            yield _event(entry, before, after)
    yield _FOOT


def picture(figures: Life, lines: Lines) -> str:
    """The context step by step with its legend and totals; nothing for a session without answers."""
    if not figures.steps:
        return ""
    totals = figures.totals
    made = sum(fold.kind == "compacted" for fold in figures.folds)
    words = [f"{len(figures.steps)} answers", f"{made} compaction{'s' * (made != 1)}" if made else ""]
    if totals.prompt:
        share = f", {100 * totals.cached // totals.prompt} % cached" if totals.cached else ""
        words.append(f"{totals.prompt:,} tokens in{share}, {totals.completion:,} out")
    if lines.window:
        words.append(f"window {lines.window:,} ({lines.source})" if lines.source else f"window {lines.window:,}")
    legend = '<span class="key bar"></span> new <span class="key cached"></span> cached <b class="fold">▼</b> compacted'
    if any(fold.kind == "undone" for fold in figures.folds):
        legend += ' <b class="undone">▲</b> undone'
    caption = f"<figcaption>{html.escape(' · '.join(filter(None, words)))}<br>{legend}</figcaption>"
    return f"<figure>{svg(figures.steps, figures.folds, lines)}{caption}</figure>"


def _block(entry: Entry) -> str:
    """One message. What is folded shows its first line; an answer shows the calls it made."""
    message = entry["message"]
    kind = "summary" if entry.get("summary") else re.sub(r"[^a-z]", "", str(message["role"]))
    tool = entry.get("tool")
    about = f" · {tool.get('name')}" if isinstance(tool, dict) and tool.get("name") else ""
    about += "" if not isinstance(tool, dict) or tool.get("ok", True) else " · failed"
    label = html.escape(f"{'summary' if entry.get('summary') else message['role']} · {entry['n']}{about}")
    at = html.escape(str(entry.get("at", ""))[:19].replace("T", " "))
    text = text_of(message)
    body = f"<pre>{html.escape(text)}</pre>" if text else ""
    if kind in FOLDED:
        count = text.count("\n") + 1
        lines = f"{count} line{'s' * (count != 1)}"
        body = f"<details><summary>{html.escape(one_line(text[:120]))} <i>{lines}</i></summary>{body}</details>"
    pictures = _pictures(message)
    body += f"<p class=event>{pictures} picture{'s' * (pictures != 1)}</p>" if pictures else ""
    for call in tool_calls(message):
        shown = html.escape(one_line(call.arguments[:120]))
        head = f"<summary><code>{html.escape(call.name)}</code> {shown}</summary>"
        body += f'<details class="call">{head}<pre>{html.escape(call.arguments)}</pre></details>'
    return (
        f'<section class="{kind}" id="n{entry["n"]}"><h2><a href="#n{entry["n"]}">{label}</a> <time>{at}</time></h2>'
        f"{body}</section>\n"
    )


def _pictures(message: Entry) -> int:
    content = message.get("content")
    return (
        sum(isinstance(p, dict) and p.get("type") == "image_url" for p in content) if isinstance(content, list) else 0
    )


def _event(entry: Entry, before: dict[int, Entry], after: Entry) -> str:
    """A compaction with its before and after; an undo or a failure as one line."""
    line = html.escape(event_line(entry))
    folded = entry.get("folded")
    if not (entry["type"] == "compaction" and isinstance(folded, list) and len(folded) == 2):
        return f'<p class="event" id="e{entry["n"]}">{line}</p>\n'
    span = all(isinstance(n, int) for n in folded)
    gone = [before[n] for n in sorted(before) if span and folded[0] <= n <= folded[-1]]
    items = "".join(_item(e) for e in gone if not e.get("summary"))
    tokens = entry.get("tokens")
    tokens = tokens if isinstance(tokens, dict) else {}
    sizes = [f"{t:,} tokens" if isinstance(t := tokens.get(key), int) else "" for key in ("before", "after_estimate")]
    instead = "old tool results replaced by stubs" if entry.get("strategy") == "pruned" else "no summary"
    instead = html.escape(text_of(after["message"])) if after.get("summary") else instead
    kept = entry.get("kept")
    more = f", {kept} kept word for word" if isinstance(kept, int) else ""
    return (
        f'<div class="compaction" id="e{entry["n"]}"><p>{line}</p><div class="sides">'
        f"<details><summary>before: {len(gone)} messages, {sizes[0]}</summary><ul>{items}</ul></details>"
        f"<details><summary>after: about {sizes[1]}{more}</summary><pre>{instead}</pre></details></div></div>\n"
    )


def _item(entry: Entry) -> str:
    """A message in one line, linked."""
    text = one_line(text_of(entry["message"])[:90]) or ", ".join(call.name for call in tool_calls(entry["message"]))
    role = "summary" if entry.get("summary") else str(entry["message"]["role"])
    return f'<li><a href="#n{entry["n"]}">{html.escape(role)} · {entry["n"]}</a> {html.escape(text)}</li>'


def one_line(text: str) -> str:
    return " ".join(text.split())


_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>TITLE</title><style>
:root { color-scheme: light dark; --line: #d0d7de; --dim: #59636e; --user: #ddf4ff; --sum: #fff8c5; --code: #f6f8fa;
  --bar: #0969da; --cached: #b6d7fb; --trigger: #9a6700; --window: #cf222e; --back: #fff; --text: #1f2328 }
@media (prefers-color-scheme: dark) { :root { --line: #30363d; --dim: #9198a1; --user: #121d2f; --sum: #272115;
  --code: #151b23; --bar: #4493f8; --cached: #1f3a5f; --trigger: #d29922; --window: #f85149; --back: #0d1117;
  --text: #e6edf3 } }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--back); color: var(--text) }
h1 { font-size: 1.5rem; margin: 0 } .facts { color: var(--dim); margin: .25rem 0 1rem; overflow-wrap: anywhere }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 0; font: inherit }
details pre { font: 13px/1.45 ui-monospace, monospace; max-height: 30rem; overflow: auto; background: var(--code);
  padding: .5rem .75rem; border-radius: 6px } code { font: 13px ui-monospace, monospace }
section { border-top: 1px solid var(--line); padding: .6rem .75rem; content-visibility: auto;
  contain-intrinsic-size: auto 6rem } .user { background: var(--user) }
.summary { background: var(--sum) } h2 { font-size: .8rem; margin: 0; color: var(--dim); display: flex; gap: 1rem }
h2 a { color: inherit; text-decoration: none } h2 time { font-weight: 400; margin-left: auto }
section:target, .compaction:target { outline: 2px solid var(--bar) }
details summary { cursor: pointer; color: var(--dim); overflow-wrap: anywhere } details i { opacity: .7 }
.event { color: var(--dim); font-style: italic; padding: 0 .75rem }
.compaction { border: 1px solid var(--trigger); border-radius: 6px; margin: 1rem 0; padding: .5rem .75rem }
.compaction p { margin: 0 0 .5rem; color: var(--trigger) } .compaction ul { margin: .25rem 0; padding-left: 1.2rem }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; font-size: .85rem; overflow-wrap: anywhere }
@media (max-width: 40rem) { .sides { grid-template-columns: 1fr } }
.sides ul { max-height: 20rem; overflow: auto } a { color: var(--bar) }
input { font: inherit; width: 100%; box-sizing: border-box; padding: .4rem .6rem; background: var(--back);
  color: inherit; border: 1px solid var(--line); border-radius: 6px }
.find { position: sticky; top: 0; background: var(--back); padding: .5rem 0; z-index: 1; display: flex; gap: 1rem;
  align-items: center } .find small { white-space: nowrap; color: var(--dim) }
figure { margin: 1rem 0 } figcaption { font-size: .8rem; color: var(--dim) } .chart { width: 100%; height: auto }
.chart text { font: 11px system-ui, sans-serif; fill: var(--dim) } .chart .bar, .key.bar { fill: var(--bar) }
.chart .cached { fill: var(--cached) } .chart line { stroke-width: 1.5 } .chart text.fold, b.fold { fill: var(--trigger);
  color: var(--trigger) } .chart text.undone, b.undone { fill: var(--bar);
  color: var(--bar) } .chart text.fold, .chart text.undone {
  text-anchor: middle } .chart path { stroke: var(--trigger); stroke-dasharray: 2 3 } .chart path.undone {
  stroke: var(--bar) } .chart line.trigger { stroke: var(--trigger); stroke-dasharray: 6 4 }
.chart line.window { stroke: var(--window) } .key { display: inline-block; width: .8em; height: .8em;
  background: var(--bar) } .key.cached { background: var(--cached) } [hidden] { display: none }
@media print { .find { display: none } details pre { max-height: none } }
</style></head><body><h1>TITLE</h1><p class="facts">FACTS</p>
PICTURE
<p class="find"><input type="search" id="find" placeholder="Search" aria-label="Search"> <small id="count"></small></p>
"""
_FOOT = """<script>
const find = document.getElementById("find"), count = document.getElementById("count");
const all = [...document.querySelectorAll("section")].map(s => [s, s.textContent.toLowerCase()]);
const events = document.querySelectorAll(".event, .compaction");
find.addEventListener("input", () => {
  const wanted = find.value.trim().toLowerCase(); let shown = 0;
  for (const [section, text] of all) { section.hidden = !text.includes(wanted); shown += !section.hidden }
  for (const event of events) event.hidden = wanted !== "";
  for (const d of document.querySelectorAll("section:not([hidden]) details"))
    d.open = wanted !== "" && d.textContent.toLowerCase().includes(wanted);
  count.textContent = wanted ? shown + " of " + all.length : "";
});
const unfold = () => {
  const there = document.getElementById(location.hash.slice(1));
  if (there) for (const d of there.querySelectorAll("details:not(.call)")) d.open = true;
};
addEventListener("hashchange", unfold); unfold();
</script></body></html>
"""
