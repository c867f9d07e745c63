"""The exported page in a real browser: it reads well, light and dark, wide and narrow; nothing stored in it acts.

A script is put behind the page's own; it uses the page as a person would and leaves what it saw for `--dump-dom`. The
browser has no network and a profile of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from disks import Quick
from lives import META, answer, ask, call, compact, result, user

from agent.log import archive
from agent.session import Session
from agent.views.chart import Lines
from agent.views.export import export

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
EVIL = "<script>hacked = 1</script><img src=x onerror='hacked = 2'><svg onload='hacked = 3'></pre></details>"
LONG = "https://example.org/" + "long" * 200

PROBE = """<script>
const seen = { errors: [], hacked: typeof hacked };
addEventListener("error", e => seen.errors.push(e.message));
addEventListener("securitypolicyviolation", e => seen.errors.push(e.blockedURI));
const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b };
const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
  if (!c.endsWith(", 0)") && c !== "transparent") return c } return "rgb(255, 255, 255)" };
const contrast = e => { const [a, b] = [getComputedStyle(e).color, ground(e)].map(light).sort((x, y) => y - x);
  return (a + .05) / (b + .05) };
const visible = () => [...document.querySelectorAll("section")].filter(s => s.offsetHeight).map(s => s.id);
const type = words => { find.value = words; find.dispatchEvent(new Event("input")) };
seen.dark = light(getComputedStyle(document.body).backgroundColor) < .2;
seen.contrast = Math.min(...[...document.querySelectorAll("h1, .facts, pre, h2 a, summary, .event, .compaction p, a, figcaption")].map(contrast));
seen.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
seen.all = visible();
seen.open = [...document.querySelectorAll("details")].filter(d => d.open).length;
seen.folded = [...document.querySelectorAll("section.tool pre, section.system pre")].map(p => p.checkVisibility());
type("  the HIDDEN word "); seen.found = visible(); seen.count = count.textContent;
seen.opened = [...document.querySelectorAll("section:not([hidden]) details")].map(d => d.open);
type("no such words"); seen.none = visible(); type(""); seen.back = visible();
seen.bars = document.querySelectorAll("svg rect.bar").length;
const box = document.querySelector("svg.chart").getBoundingClientRect();
seen.outside = [...document.querySelectorAll("svg text, svg rect")].map(e => e.getBoundingClientRect())
  .filter(r => r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1).length;
seen.dangling = [...document.querySelectorAll("a")].map(a => a.getAttribute("href")).filter(h => h[0] !== "#" || !document.getElementById(h.slice(1)));
seen.fetched = performance.getEntriesByType("resource").length;
document.querySelector("svg a").dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
setTimeout(() => {
  const there = document.querySelector(":target");
  seen.target = there && there.id; seen.unfolded = there ? [...there.querySelectorAll("details")].map(d => d.open) : [];
  const told = document.createElement("pre"); told.id = "probe"; told.textContent = JSON.stringify(seen); document.body.append(told);
}, 50);
</script>"""


def browser() -> str:
    """A browser that can run without a screen. A machine that has none cannot run these tests; CI must have one
    (AGENT_TEST_BROWSER=required), and there they fail.
    """
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        missing = "the page is tested in a real browser and there is none: apt-get install chromium"
        pytest.fail(missing) if os.environ.get("AGENT_TEST_BROWSER") == "required" else pytest.skip(missing)
    return found


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A life with tools, hostile and very long text, a compaction and an undo."""
    with Session.create(str(tmp_path / "store"), META | {"name": "解析器"}, id="a", disk=Quick()) as session:
        session.append({"type": "message", "message": {"role": "system", "content": "Be careful. " * 40}})
        ask(session, "the first prompt")
        session.append(user(EVIL))
        session.append(call("x", name=EVIL))
        session.append(result("x", "line one\nthe hidden word " + EVIL))
        session.append(answer(f"done, see {LONG}"))
        compact(session)
        ask(session, "later", LONG)
        archive.undo(session)
        ask(session, "last")
    path = tmp_path / "page.html"
    session = Session.read(str(tmp_path / "store"), "a")
    path.write_text("".join(export(session, "html", Lines(200, 150, "flag"))) + PROBE)
    return path


def look(page: Path, *options: str) -> dict[str, Any]:
    """What the probe saw."""
    argv = [browser(), "--headless", "--disable-gpu", "--no-first-run", f"--user-data-dir={page.parent / 'profile'}"]
    argv += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=2000", "--dump-dom", *options]
    argv += ["--no-sandbox"] if os.geteuid() == 0 else []  # root has no sandbox of its own to enter
    done = subprocess.run([*argv, page.as_uri()], capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    seen: dict[str, Any] = json.loads(unescape(found[1]))
    return seen


@pytest.mark.parametrize(("scheme", "dark"), [("1", False), ("0", True)], ids=["light", "dark"])
@pytest.mark.parametrize("size", ["1200,900", "500,900"], ids=["wide", "narrow"])
def test_the_page_in_a_browser(page: Path, scheme: str, dark: bool, size: str) -> None:
    """Readable in both schemes at both widths; folded; searched; linked; nothing fetched, nothing run but ours."""
    seen = look(page, f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={size}")
    assert seen["dark"] is dark
    assert seen.pop("contrast") >= 4.5  # WCAG 2, level AA
    every = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n9", "n10", "n11", "n13", "n14"]
    assert seen == {
        "errors": [], "hacked": "undefined", "dark": dark, "wide": 0, "all": every, "open": 0, "folded": [False, False],
        "found": ["n6"], "count": "1 of 12", "opened": [True], "none": [], "back": every, "bars": 5, "outside": 0,
        "dangling": [], "fetched": 0, "target": "e8", "unfolded": [True, True],
    }  # fmt: skip
