"""The first events of a run: what it is, and what about it a user may not expect.

Each remark is decided here and nowhere else, and said once, before the turn: a repaired file, a flag against what the
session froze, a toy in place of a model, tools that are not offered, another directory than the session's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from agent.cli.asked import Ask
from agent.cli.equipment import TOY, Equipment
from agent.config import Settings
from agent.errors import ConfigError
from agent.events import Emit, Notice, SessionOpened
from agent.messages import text_of
from agent.session import Session
from agent.wire.providers import resolve, unused_key

_OF_TOOLS = ("tools", "allow", "yolo", "sandbox", "strict")


def introduce(session: Session, settings: Settings, gear: Equipment, ask: Ask, emit: Emit) -> None:
    """Emit what this run is, and then each remark."""
    emit(
        SessionOpened(
            id=session.id,
            path=session.path,
            resumed=ask.resumes is not None,
            messages=len(session.view()),
            model=gear.client.name,
            cwd=os.getcwd(),
            tools=[schema["function"]["name"] for schema in gear.toolbox.schemas()],
            window=gear.limits.window,
            window_source=gear.limits.source,
            sandbox="" if ask.format == "text" else gear.confinement.mode,  # finding out takes 6 ms: where it is shown
            parent=(session.meta.get("parent") or {}).get("id"),
            forked=ask.fork,
        )
    )
    for remark in _remarks(session, settings, gear):
        emit(remark)
    for remark in _of_resuming(session, settings, gear) if ask.resumes else _of_beginning(settings, gear):
        emit(remark)


def _remarks(session: Session, settings: Settings, gear: Equipment) -> Iterator[Notice]:
    """What may be said of any run."""
    if gear.builtin and settings.origin.get("model") == "session" and (way := _real_model(settings, gear)):
        yield Notice("info", "toy_model", f"this session uses the built-in toy model; {way}")
    for text in session.notices:
        yield Notice("warning", "repaired", text)
    for text in settings.overrides:
        yield Notice("info", "override", text)
    if risk := _wide_root(gear):
        yield Notice("warning", "wide_root", risk)
    idle = ", ".join(f"--{name}" for name in _OF_TOOLS if settings.origin.get(name) == "flag")
    if idle and not gear.client.takes_tools:
        yield Notice("warning", "no_tools", f"{gear.client.name} is offered no tools: {idle} has no effect")


def _of_beginning(settings: Settings, gear: Equipment) -> Iterator[Notice]:
    """What is said of the model that a new session takes."""
    if text := unused_key(settings.model, gear.client.target, gear.environ):
        yield Notice("warning" if gear.builtin else "info", "unused_key", text)
    if gear.builtin:
        yield Notice("info", "toy_model", TOY)


def _of_resuming(session: Session, settings: Settings, gear: Equipment) -> Iterator[Notice]:
    """What is no longer as it was when the session began."""
    begun, here = session.meta.get("cwd"), os.getcwd()
    if isinstance(begun, str) and begun != here and gear.toolbox.names():
        yield Notice("info", "moved", f"the session began in {begun}; its tools now work in {here}")
    if settings.origin.get("system") == "flag":
        first = text_of(session.view()[0]) if session.view() else ""
        if not first.startswith(settings.system or ""):
            text = "-s has no effect here: a session keeps the system prompt it started with"
            yield Notice("warning", "system_frozen", text)


def _wide_root(gear: Equipment) -> str:
    """A warning for a run whose tools may write in the home directory itself; "" for any other."""
    context = gear.toolbox.context
    home = os.path.join(gear.environ.get("HOME", ""), "")
    if not gear.toolbox.names() or not any(home.startswith(os.path.join(root, "")) for root in context.roots):
        return ""
    from agent.tools.sandbox import warning

    return warning(context)


def _real_model(settings: Settings, gear: Equipment) -> str:
    """What to type for a real model in place of the toy, where a key or a server has been set; else ""."""
    try:
        target = resolve(None, gear.environ, settings.aliases, base_url=settings.stated_base_url)
    except ConfigError as error:
        named = "for a real one: -m NAME" if error.kind == "no_model" else ""
        return named or unused_key(None, gear.client.target, gear.environ)
    return f"for a real one: -m {'/'.join(filter(None, (target.provider, target.model)))}"
