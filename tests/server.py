"""A scripted chat-completions server on loopback, strict about the protocol.

    with ScriptedServer([calls([("ls", {"path": "."})]), text("done")]) as server:
        ...  base URL: server.url, for instance "http://127.0.0.1:40123/v1"
    assert server.violations == []
    server.requests   parsed bodies, in order    server.bodies   raw bytes    server.headers   dicts, lower-case names
    server.asked      other requests             server.peers    the client's port for each POST

A script is a list of replies used in order (an exhausted one answers 500 and records a violation; `repeat_last=True`
repeats its last reply) or a function `(request: dict, index: int) -> Reply`. Replies: `text`, `calls`, `status`, `raw`,
`hang`, `cut`, `overflow`. Each request is checked by `check_request`; a violation is recorded and answered with a 400.

`tokens=` a function `request -> prompt tokens` (default: a quarter of the body's bytes) fills the usage of replies that
state none; `window=` tokens: larger prompts (with max_tokens) get an overflow answer. `routes=` maps "GET /v1/models"
to a JSON value, a `(status, value)` pair, or a function that returns one; anything unknown is a JSON 404. Functions in `at_exit` are called at the
end (a client's `close`).
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

AUTO = "auto"
MESSAGE_KEYS = {
    "system": {"role", "content"},
    "developer": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "reasoning_content", "reasoning", "reasoning_details"},
    "tool": {"role", "content", "tool_call_id"},
}


# ---- the strict reading of a request ----


def check_request(body: bytes) -> str | None:
    """The first thing a strict server would refuse in a request body, as a sentence; None when there is nothing."""
    try:
        request = json.loads(body.decode("utf-8"))
    except ValueError as error:
        return f"the body is not UTF-8 JSON: {error}"
    if not isinstance(request, dict) or not isinstance(request.get("messages"), list) or not request["messages"]:
        return "messages must be a non-empty array"
    if not isinstance(request.get("model"), str) or not request["model"]:
        return "model must be a string"
    return check_messages(request["messages"])


def check_messages(messages: list[Any]) -> str | None:
    """The first violation among the messages, or None."""
    waiting: list[str] = []
    seen: set[str] = set()
    for at, message in enumerate(messages):
        fault = _shape(message) or _content(message)
        if fault:
            return f"messages[{at}]: {fault}"
        role = message["role"]
        if role in ("system", "developer") and at > 0:
            return f"messages[{at}]: the system message must be the first"
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                return f"messages[{at}]: a tool result without its call"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return f"messages[{at}]: calls without a result: {waiting}"
        if role == "assistant":
            fault = _calls(message, seen)
            if fault:
                return f"messages[{at}]: {fault}"
            waiting = [call["id"] for call in message.get("tool_calls", [])]
    if waiting:
        return f"calls without a result: {waiting}"
    roles = [m["role"] for m in messages if m["role"] not in ("system", "developer")]
    if not roles or roles[0] != "user":
        return "the first message after the system message must be from the user"
    if roles[-1] == "assistant":
        return "the conversation must end with a user or tool message"
    return None


def check_alternation(messages: list[Any]) -> str | None:
    """What a template that skips the tool flow says of roles that do not alternate."""
    plain = [m["role"] for m in messages if m["role"] in ("user", "assistant") and not m.get("tool_calls")]
    for at, role in enumerate(plain):
        if role != ("user", "assistant")[at % 2]:
            return "Conversation roles must alternate user/assistant/user/assistant/..."
    return None


def _shape(message: Any) -> str | None:
    if not isinstance(message, dict) or message.get("role") not in MESSAGE_KEYS:
        return "unknown role"
    extra = set(message) - MESSAGE_KEYS[message["role"]]
    if extra:
        return f"unknown keys {sorted(extra)}"
    if re.search("[\ud800-\udfff]", json.dumps(message, ensure_ascii=False)):
        return "a lone surrogate"
    return None


def _content(message: dict[str, Any]) -> str | None:
    content = message.get("content")
    if message["role"] == "assistant" and message.get("tool_calls"):
        if content is not None and not isinstance(content, str):
            return "content must be a string or null"
        return None
    if isinstance(content, list) and message["role"] == "user":
        return None if content else "content is empty"
    if not isinstance(content, str) or not content.strip():
        return "content is empty"
    return None


def _calls(message: dict[str, Any], seen: set[str]) -> str | None:
    calls = message.get("tool_calls")
    if calls is None:
        return None
    if not isinstance(calls, list) or not calls:
        return "tool_calls must be a non-empty array"
    for call in calls:
        if not isinstance(call, dict) or call.get("type") != "function" or not isinstance(call.get("function"), dict):
            return "a tool call must be of type function"
        if set(call) - {"id", "type", "function", "extra_content"} or set(call["function"]) - {"name", "arguments"}:
            return "unknown keys in a tool call"
        if not isinstance(call.get("id"), str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", call["id"]):
            return f"bad call id {call.get('id')!r}"
        if call["id"] in seen:
            return f"call id {call['id']!r} is used twice"
        seen.add(call["id"])
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", str(call["function"].get("name"))):
            return "bad function name"
        try:
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                return "arguments must be a JSON object"
        except (ValueError, TypeError, KeyError):
            return "arguments are not JSON"
    return None


# ---- replies ----


@dataclass
class Wire:
    """Bytes to send: `chunks` may hold threading.Event gates, waited for before going on. `ending` is "end" (a
    proper end), "cut" (the connection is dropped) or "hang" (silence until the server closes)."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes | threading.Event] = field(default_factory=list)
    ending: str = "end"


Reply = Callable[[dict[str, Any], int], Wire]
"""(request, prompt tokens) -> what to send"""


def text(
    content: str, *, usage: Any = AUTO, finish: str | None = "stop", reasoning: str = "", pieces: int = 3
) -> Reply:
    """An answer of plain text, streamed in `pieces` deltas when the request asks for a stream."""
    return _message({"content": content, "reasoning_content": reasoning}, [], usage, finish, pieces)


def calls(wanted: Sequence[tuple[Any, ...]], text: str = "", *, usage: Any = AUTO, finish: str = "tool_calls") -> Reply:
    """An answer that asks for tools: `(name, args)` or `(id, name, args)`; args a dict, or a string sent as it is."""
    made = []
    for at, call in enumerate(wanted):
        name, arguments = call[-2:]
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        made.append((call[0] if len(call) == 3 else None, name, written, at))
    return _message({"content": text}, made, usage, finish, 2)


def status(code: int, body: Any = "", headers: dict[str, str] | None = None) -> Reply:
    """A plain HTTP answer; a body that is not text or bytes is sent as JSON."""

    def reply(request: dict[str, Any], tokens: int) -> Wire:
        found = dict(headers or {})
        data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        if not isinstance(body, (str, bytes)):
            found.setdefault("Content-Type", "application/json")
        found["Content-Length"] = str(len(data))
        return Wire(code, found, [data])

    return reply


def raw(
    body: bytes | str | Iterable[bytes | threading.Event],
    content_type: str = "text/event-stream",
    status: int = 200,
    headers: dict[str, str] | None = None,
    ending: str = "end",
) -> Reply:
    """Exactly these bytes, one HTTP chunk per element; an Event in the list is a gate."""

    def reply(request: dict[str, Any], tokens: int) -> Wire:
        chunks = [body.encode()] if isinstance(body, str) else [body] if isinstance(body, bytes) else list(body)
        return Wire(status, {"Content-Type": content_type, **(headers or {})}, chunks, ending)

    return reply


def hang(after: bytes = b"") -> Reply:
    """Accept and say nothing (or `after`, and then nothing) until the server closes."""
    return lambda request, tokens: Wire(200 if after else 0, {"Content-Type": "text/event-stream"}, [after], "hang")


def cut(after: str | int = "Hel", of: Reply | None = None) -> Reply:
    """A stream that is dropped: after the text `after`, or after that many bytes of the reply `of`."""

    def reply(request: dict[str, Any], tokens: int) -> Wire:
        if isinstance(after, str):
            return Wire(200, {"Content-Type": "text/event-stream"}, [sse(chunk({"content": after}))], "cut")
        wire = (of or text("Hello, world"))(request, tokens)
        data = b"".join(c for c in wire.chunks if isinstance(c, bytes))
        return Wire(wire.status, wire.headers, [data[:after]], "cut")

    return reply


def overflow(have: int, window: int) -> Reply:
    """The classic overflow answer: `have` tokens for a window of `window`."""
    said = (
        f"This model's maximum context length is {window} tokens. However, your messages resulted in {have} tokens. "
        "Please reduce the length of the messages."
    )
    error = {"message": said, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
    return status(400, {"error": error})


def sse(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode() + b"\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chat.completion.chunk."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "model": "scripted", "choices": [choice], **more}


def _message(
    said: dict[str, str], made: list[tuple[Any, str, str, int]], usage: Any, finish: str | None, pieces: int
) -> Reply:
    def reply(request: dict[str, Any], tokens: int) -> Wire:
        counted = _usage(usage, tokens, sum(map(len, said.values())) // 4 + 1)
        stem = f"call_{len(request.get('messages', ()))}"
        listed = [
            {"id": call_id or f"{stem}_{at}", "type": "function", "function": {"name": name, "arguments": written}}
            for call_id, name, written, at in made
        ]
        if not request.get("stream"):
            message: dict[str, Any] = {"role": "assistant", **{k: v for k, v in said.items() if v or k == "content"}}
            if listed:
                message["tool_calls"] = listed
            choice = {"index": 0, "message": message, "finish_reason": finish}
            whole = {"id": "c", "object": "chat.completion", "model": "scripted", "choices": [choice], "usage": counted}
            return status(200, whole)(request, tokens)
        chunks = [chunk({"role": "assistant", "content": ""})]
        for key in ("reasoning_content", "content"):
            chunks += [chunk({key: part}) for part in _split(said.get(key, ""), pieces)]
        for at, call in enumerate(listed):
            opened = {**call, "index": at, "function": {"name": call["function"]["name"], "arguments": ""}}
            chunks.append(chunk({"tool_calls": [opened]}))
            for part in _split(call["function"]["arguments"], pieces):
                chunks.append(chunk({"tool_calls": [{"index": at, "function": {"arguments": part}}]}))
        if finish is not None:
            chunks.append(chunk({}, finish))
        if counted and (request.get("stream_options") or {}).get("include_usage"):
            chunks.append({"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": counted})
        events = [sse(c) for c in chunks] + [sse("[DONE]")] * (finish is not None)
        return Wire(200, {"Content-Type": "text/event-stream"}, list(events))

    return reply


def _split(whole: str, pieces: int) -> list[str]:
    size = max(1, -(-len(whole) // pieces))
    return [whole[at : at + size] for at in range(0, len(whole), size)]


def _usage(usage: Any, prompt: int, completion: int) -> dict[str, Any] | None:
    if usage is None:
        return None
    prompt, completion, cached = (prompt, completion, None) if usage == AUTO else (*usage, None)[:3]
    counted: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    counted["total_tokens"] = prompt + completion
    if cached is not None:
        counted["prompt_tokens_details"] = {"cached_tokens": cached}
    return counted


# ---- effects ----


class ScriptedServer:
    """The server, on a free port of 127.0.0.1, in threads; see the module."""

    def __init__(
        self,
        script: Sequence[Reply] | Callable[[dict[str, Any], int], Reply] = (),
        *,
        repeat_last: bool = False,
        strict: bool = True,
        alternate: bool = False,
        tokens: Callable[[dict[str, Any]], int] | None = None,
        window: int | None = None,
        routes: dict[str, Any] | None = None,
    ) -> None:
        self.script, self.repeat_last, self.strict, self.alternate = script, repeat_last, strict, alternate
        self.tokens, self.window = tokens, window
        self.routes = {"GET /v1/models": {"object": "list", "data": [{"id": "scripted"}]}, **(routes or {})}
        self.requests: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.violations: list[str] = []
        self.asked: list[str] = []
        self.peers: list[int] = []
        self.at_exit: list[Callable[[], None]] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> ScriptedServer:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        for close in self.at_exit:
            close()
        self.closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        """The base URL, ending in /v1."""
        return f"http://127.0.0.1:{self.port}/v1"

    def answer(self, body: bytes, headers: dict[str, str]) -> Wire:
        """Record one chat request and choose what to send."""
        fault = check_request(body) if self.strict else None
        request = json.loads(body) if not fault or body.lstrip()[:1] == b"{" else {}
        if not fault and self.alternate:
            fault = check_alternation(request["messages"])
        prompt = self.tokens(request) if self.tokens else len(body) // 4
        with self._lock:
            index = len(self.requests)
            self.requests.append(request)
            self.bodies.append(body)
            self.headers.append(headers)
            if fault:
                self.violations.append(fault)
                return status(400, {"error": {"message": fault, "type": "invalid_request_error"}})(request, prompt)
            if self.window and prompt + (request.get("max_tokens") or 0) > self.window:
                return overflow(prompt, self.window)(request, prompt)
            return self._next(request, index)(request, prompt)

    def _next(self, request: dict[str, Any], index: int) -> Reply:
        if callable(self.script):
            return self.script(request, index)
        if index < len(self.script):
            return self.script[index]
        if self.repeat_last and self.script:
            return self.script[-1]
        self.violations.append(f"request {index + 1}: the script has only {len(self.script)} replies")
        return status(500, {"error": {"message": "the script is exhausted"}}, {"x-should-retry": "false"})


def _handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 0
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                pass  # the client went away

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            server.peers.append(self.client_address[1])
            if self.path.endswith("/chat/completions"):
                self._send(server.answer(body, {k.lower(): v for k, v in self.headers.items()}))
            else:
                self._route("POST")

        def do_GET(self) -> None:
            self._route("GET")

        def _route(self, method: str) -> None:
            server.asked.append(f"{method} {self.path}")
            missing = (404, {"error": {"message": f"no route {self.path}", "type": "not_found_error"}})
            found = server.routes.get(f"{method} {self.path}", missing)
            found = found() if callable(found) else found
            code, value = found if isinstance(found, tuple) else (200, found)
            self._send(status(code, value)({}, 0))

        def _send(self, wire: Wire) -> None:
            chunked = "Content-Length" not in wire.headers
            if wire.status:
                self.send_response(wire.status)
                for name, value in wire.headers.items():
                    self.send_header(name, value)
                if chunked:
                    self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
            for piece in wire.chunks:
                if isinstance(piece, threading.Event):
                    piece.wait(30)
                elif piece:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if wire.ending == "hang":
                server.closing.wait(60)
            if wire.ending == "end":
                if chunked:
                    self.wfile.write(b"0\r\n\r\n")
            else:
                self.close_connection = True

    return Handler
