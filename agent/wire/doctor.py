"""Does it work, and if not, what next: a list of checks, each done against the real server.

    configured -> answers -> streams -> usage -> tools -> response_format -> window -> which `agent` is first on PATH

Each check is a `Check`: ok, warning or failed, one line of what was found, and the next step. Three short requests are
made at most (a few tokens each), none of them when the server cannot be reached. The lines show no key: its variable
only. Printing is the caller's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from agent.client import ChatClient
from agent.errors import AgentError, AuthError
from agent.events import Event, Notice
from agent.messages import Delta, Reply, Request, tool_calls
from agent.redact import redact
from agent.wire import probes, providers, windows
from agent.wire.memory import Memory
from agent.wire.transport import Transport

OK, WARNING, FAILED = "ok", "warning", "failed"
_TOOL = {
    "type": "function",
    "function": {
        "name": "report",
        "description": "Report a word.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}


@dataclass(frozen=True)
class Check:
    """`state` is "ok", "warning" or "failed"; `next` what to do about it, or ""."""

    name: str
    state: str
    text: str
    next: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def examine(
    target: providers.Target,
    environ: Mapping[str, str],
    *,
    memory: Memory | None = None,
    timeout: float = 30.0,
    client: ChatClient | None = None,
    stated: tuple[int, str] | None = None,
) -> Iterator[Check]:
    """The checks, one by one as they are done; what needs a server that does not answer is left out. Never raises
    `AgentError`: a failure is a check. `stated` is the window the user states, as `windows.window_for` takes it."""
    memory = memory or Memory()
    yield configured(target)
    events: list[Event] = []
    client = client or ChatClient(
        target, emit=events.append, memory=memory, environ=environ, first_byte_timeout=timeout, stall_timeout=timeout
    )
    try:
        yield from _server_checks(client, target, environ, events)
        yield window_check(client, memory, stated)
    finally:
        client.close()


def configured(target: providers.Target) -> Check:
    """Which model, which server, and where each came from."""
    origin = f" (from {target.source})" if target.source else ""
    key = f"key from {target.key_variable}" if target.key_variable else "no key"
    found = f"{target.model} at {target.base_url}{origin}, {key}"
    if not target.api_key and not target.loopback:
        return Check("configuration", WARNING, found, "Most servers want a key: set OPENAI_API_KEY")
    return Check("configuration", OK, found)


def first_on_path(environ: Mapping[str, str], ours: str | None = None) -> Check:
    """Whether typing `agent` runs this program: other programs have that name too."""
    ours = ours or os.path.dirname(sys.executable)
    found = [
        path
        for folder in environ.get("PATH", "").split(os.pathsep)
        if folder and os.access(path := os.path.join(folder, "agent"), os.X_OK) and os.path.isfile(path)
    ]
    if not found:
        return Check("command", WARNING, "no `agent` on PATH", "Run it as python -m agent, or add its folder to PATH")
    first = found[0]
    if os.path.realpath(os.path.dirname(first)) == os.path.realpath(ours):
        return Check("command", OK, f"`agent` is {first}")
    return Check("command", WARNING, f"`agent` is {first}, not this program", f"Use oneshot-agent, or put {ours} first")


def _listed(names: list[str] | None, model: str) -> Check:
    """Whether the server lists the model."""
    if names is None:
        return Check("models", WARNING, "the server lists none, or refuses to", "")
    if model in names or any(n.removesuffix(":latest") == model for n in names):
        return Check("models", OK, f"{model} is one of {len(names)}")
    shown = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
    return Check(
        "models", WARNING, f"{model} is not listed; there are: {shown}", "Choose one with -m, if this fails below"
    )


# ---- effects ----


def _server_checks(
    client: ChatClient, target: providers.Target, environ: Mapping[str, str], events: list[Event]
) -> Iterator[Check]:
    transport = Transport(target, environ)
    try:
        yield _listed(probes.list_models(transport, target), target.model)
    finally:
        transport.close()
    deltas: list[Delta] = []
    try:
        reply = _ask(client, "Count from one to five in words.", deltas)
    except AgentError as error:
        yield Check("answer", FAILED, error.text, error.hint)
        return
    yield _answered(reply)
    yield _streamed(deltas)
    yield _counted(reply)
    yield _tools(client)
    yield _response_format(client)
    changed = [e.text for e in events if isinstance(e, Notice) and e.code == "adapted"]
    if changed:
        yield Check("dialect", OK, f"learned and remembered: {client.dialect.as_json()}")


def _ask(client: ChatClient, prompt: str, deltas: list[Delta], **more: Any) -> Reply:
    """One short request. Raises: `AgentError`, also for one that broke off."""
    more.setdefault("max_tokens", 64)
    reply = client.complete(Request([{"role": "user", "content": prompt}], purpose="doctor", **more), deltas.append)
    if isinstance(reply.error, AgentError):
        raise reply.error
    return reply


def _answered(reply: Reply) -> Check:
    said = redact(" ".join(str(reply.message.get("content") or "").split()))[:40]
    if not said:
        return Check(
            "answer", WARNING, f"an empty answer in {reply.seconds:.1f} s", "A reasoning model may need more tokens"
        )
    return Check("answer", OK, f"{said!r} in {reply.seconds:.1f} s")


def _streamed(deltas: list[Delta]) -> Check:
    if len(deltas) > 1:
        return Check("stream", OK, f"{len(deltas)} fragments")
    return Check("stream", WARNING, "the answer came in one piece", "A proxy may hold it back; nothing else is wrong")


def _counted(reply: Reply) -> Check:
    if reply.usage is None:
        return Check(
            "usage", WARNING, "not reported", "Sizes are estimated; set --window if compaction comes at the wrong time"
        )
    cached = "" if reply.usage.cached is None else f", {reply.usage.cached} from the cache"
    return Check("usage", OK, f"{reply.usage.prompt} tokens in{cached}, {reply.usage.completion} out")


def _tools(client: ChatClient) -> Check:
    advice = "Use a model with tools, or --no-tools"
    try:
        reply = _ask(
            client, 'Call the tool report with the word "ready". Say nothing else.', [], tools=[_TOOL], max_tokens=256
        )
    except AgentError as error:
        return Check("tools", WARNING, error.text, advice)
    if not client.takes_tools:
        return Check("tools", WARNING, "the server refuses tools; the model is offered none", advice)
    called = tool_calls(reply.message)
    if called:
        return Check("tools", OK, f"called {called[0].name} {redact(called[0].arguments)[:60]}")
    return Check("tools", WARNING, "accepted, but the model called none", advice)


def _response_format(client: ChatClient) -> Check:
    try:
        _ask(client, 'Answer with the JSON {"ok": true}.', [], response_format={"type": "json_object"})
    except AuthError as error:
        return Check("response_format", FAILED, error.text, error.hint)
    except AgentError as error:
        return Check("response_format", WARNING, error.text)
    if "response_format" in client.dialect.drop:
        return Check("response_format", WARNING, "refused; it is left out")
    return Check("response_format", OK, "json_object is taken")


def window_check(client: ChatClient, memory: Memory, stated: tuple[int, str] | None = None) -> Check:
    """The window in use and who says so; a guess is a warning."""
    target = client.target
    known = memory.of(target.base_url, target.model)
    found = windows.window_for(target, stated=stated, learned=known, ask=client.ask_window)
    sources = {
        "flag": "stated with --window", "CONTEXT_WINDOW": "stated with CONTEXT_WINDOW", "config": "stated in a configuration",
        "learned": "learned from this server", "server": "stated by the server", "table": "from the offline table",
        "family": "guessed from the model's name", "default": "unknown; a careful default",
    }  # fmt: skip
    text = f"{found.tokens} tokens, {sources.get(found.source, found.source)}"
    if found.source in ("family", "default"):
        return Check("window", WARNING, text, "Set --window, or context_window in the configuration")
    return Check("window", OK, text)
