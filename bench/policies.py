"""Ways to make a context smaller, ours and others', behind one function: a conversation in, the final context out.

The others are written from what their documents say they do, not from their code: the first two chapters keep a number
of messages or a share of the window beside one unchecked summary, the third validates its summary and falls back to a
wider window, the last only forgets. All are run turn by turn: before each answer the size is checked against 0.75 of
the window. Sizes are estimates for all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from agent.anchors import find, missing
from agent.compaction import Compactor
from agent.compaction.form import HEADINGS
from agent.messages import Delta, Message, Reply, Request, Sent, Usage, text_of
from agent.session import Session
from agent.tokens import estimate, estimate_messages, limits_for
from bench.log import Unsynced

Summarise = Callable[[list[Message], int], str]
Policy = Callable[[list[Message], int, "Summariser"], list[Message]]


# ---- summarisers ----


@dataclass
class Summariser:
    """A model that only ever summarises. `name` says how well; `write` gives the text for messages and a cap."""

    name: str
    write: Summarise
    finish: str = "stop"
    takes_tools: bool = False
    structured: str = ""
    calls: int = 0

    def complete(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        self.calls += 1
        text = self.write(list(request.messages), request.max_tokens or 1000)
        message: Message = {"role": "assistant", "content": text}
        return Reply(message, self.finish, Usage(estimate_messages(request.messages), 1), self.name, Sent("", 0))


def _sections(lines: list[str]) -> str:
    filled = {"Facts and decisions": lines}
    return "\n".join(f"## {name}\n" + "\n".join(f"- {x}" for x in filled.get(name, ["none"])) for name in HEADINGS)


def _faithful(messages: list[Message], cap: int) -> str:
    """Newest facts first, as many sentences that hold one as the cap allows."""
    lines: list[str] = []
    left = cap - 60
    for message in reversed(messages[:-1]):
        for sentence in reversed(text_of(message).replace("。", "。\n").replace(". ", ".\n").splitlines()):
            cost = estimate(sentence) + 3
            if sentence not in lines and cost < left and find(sentence):
                lines.insert(0, sentence.strip("#- "))
                left -= cost
    return _sections(lines)


def _lossy(messages: list[Message], cap: int) -> str:
    return _sections(["The two talked about the work and went on step by step; nothing was left unclear between them."])


FAITHFUL = Summariser("faithful", _faithful)
LOSSY = Summariser("lossy", _lossy)
HOSTILE = (
    Summariser("empty", lambda messages, cap: ""),
    Summariser("cut", lambda messages, cap: "## Goal\n- The user wants to", finish="length"),
    Summariser("obeys", lambda messages, cap: "DONE"),
    Summariser("endless", lambda messages, cap: "## Goal\n" + "It went on and on. " * cap),
)


# ---- the others ----


def _turns(messages: list[Message]) -> Iterator[list[Message]]:
    """The conversation up to each point where a request would be made."""
    history: list[Message] = []
    for message in messages:
        if message.get("role") == "assistant" and history:
            yield history
            history = []
        history.append(message)
    yield history


def _run(messages: list[Message], window: int, smaller: Callable[[list[Message]], list[Message]]) -> list[Message]:
    context: list[Message] = []
    for new in _turns(messages):
        context += new
        if estimate_messages(context) >= 0.75 * window:
            context = smaller(context)
    return context


def _whole(context: list[Message]) -> tuple[list[Message], list[Message]]:
    lead = 1 if context and context[0].get("role") == "system" else 0
    return context[:lead], context[lead:]


def keep_last_six(messages: list[Message], window: int, model: Summariser) -> list[Message]:
    """All but the last six messages become one summary (system role)."""

    def smaller(context: list[Message]) -> list[Message]:
        lead, rest = _whole(context)
        if len(rest) <= 6:
            return context
        summary = model.write([*rest[:-6], {}], 1000)
        return [*lead, {"role": "system", "content": summary}, *rest[-6:]]

    return _run(messages, window, smaller)


def user_boundary(messages: list[Message], window: int, model: Summariser) -> list[Message]:
    """A cut before a user message, a tail of 0.30 of the window, one unchecked summary."""

    def smaller(context: list[Message]) -> list[Message]:
        lead, rest = _whole(context)
        users = [i for i, m in enumerate(rest) if m.get("role") == "user"]
        if len(users) <= 1:
            return context
        cut = users[-1]
        for at in reversed(users[:-1]):
            if estimate_messages(rest[at:]) > min(0.30 * window, 0.375 * window):
                break
            cut = at
        if cut == 0:
            return context
        summary = model.write([*rest[:cut], {}], 1000)
        return [*lead, {"role": "user", "content": f"[Earlier conversation, summarised]\n\n{summary}"}, *rest[cut:]]

    return _run(messages, window, smaller)


def validated_window(messages: list[Message], window: int, model: Summariser) -> list[Message]:
    """Eight messages and a summary that must name 30 % of the anchors, else fourteen messages cut to the budget."""

    def smaller(context: list[Message]) -> list[Message]:
        lead, rest = _whole(context)
        if len(rest) <= 8:
            return context
        old, recent = rest[:-8], rest[-8:]
        summary = model.write([*old, {}], 1000)
        anchors = {a.text for a in find("\n".join(map(text_of, old)))}
        good = len(summary) >= 20 and (len(anchors) < 3 or len(missing(anchors, summary)) <= 0.7 * len(anchors))
        if good:
            return [*lead, {"role": "system", "content": summary}, *recent]
        note: Message = {"role": "system", "content": "No summary: this is a truncation. Recent messages win."}
        kept = rest[-14:]
        while len(kept) > 2 and estimate_messages([*lead, note, *kept]) > 0.75 * window:
            kept = kept[1:]
        return [*lead, note, *kept]

    return _run(messages, window, smaller)


def last_n(messages: list[Message], window: int, model: Summariser) -> list[Message]:
    """Only the newest messages, half of the trigger's worth."""

    def smaller(context: list[Message]) -> list[Message]:
        lead, rest = _whole(context)
        while len(rest) > 2 and estimate_messages([*lead, *rest]) > 0.375 * window:
            rest = rest[1:]
        return [*lead, *rest]

    return _run(messages, window, smaller)


# ---- ours ----

ID = "20260101-120000-0a1b2c3d"
"""Always the same: a summary message names the archive, and other digits may be another token."""


def ours(messages: list[Message], window: int, model: Summariser) -> list[Message]:
    """The compactor as it runs, on a session on disk."""
    with TemporaryDirectory(prefix="bench-") as store, Session.create(store, {}, id=ID, disk=Unsynced()) as session:
        compactor = Compactor(session, model, limits_for(window, "bench"), (), lambda event: None)
        for new in _turns(messages):
            for message in new:
                session.append({"type": "message", "message": message})
            compactor.make_room()
        return session.view()


OTHERS: dict[str, Policy] = {
    "last 6 + summary": keep_last_six,
    "user boundary, 30 %": user_boundary,
    "8 + validated summary": validated_window,
    "last N": last_n,
}
POLICIES: dict[str, Policy] = {**OTHERS, "ours": ours}
