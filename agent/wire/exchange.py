"""One HTTP exchange: a request's bytes out, the events of its answer in, until it ends or breaks off.

Three timers, in seconds: `first` to the first event, `stall` from one event to the next (heartbeats are not events),
and a short one after the finish reason, for servers that hold the line open. The end mark ends the reading at once.
What the server says went wrong is raised as a `Refusal`, not yet judged; what goes wrong on the line is an error of
`agent.wire.faults`.

Does not know: retries, dialects, windows, keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agent.errors import AgentError, APIError, TemporaryError
from agent.messages import Delta
from agent.wire.sse import Event, EventReader
from agent.wire.stream import Assembled, Assembler
from agent.wire.transport import Deadline, Transport

AFTER_FINISH_SECONDS = 2.0
DRAIN_SECONDS = 0.05


class Refusal(Exception):
    """The server's own words in place of an answer: status (200 for an error inside one), headers, body."""

    def __init__(self, status: int, headers: Mapping[str, str], body: Any) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body


class Exchange:
    """Run it once. `assembler` holds what has come, also when `run` raises; `debug` gets the wire as text."""

    def __init__(
        self,
        transport: Transport,
        first: float,
        stall: float,
        on_delta: Callable[[Delta], None],
        debug: Callable[[str], None] | None,
    ) -> None:
        self.assembler = Assembler()
        self._transport = transport
        self._first, self._stall = first, stall
        self._on_delta = on_delta
        self._debug = debug
        self._reader = EventReader()
        self._headers: Mapping[str, str] = {}

    def run(self, body: bytes, meanwhile: Callable[[], object] = lambda: None) -> Assembled:
        """Send and read; `meanwhile` is called in between. Raises: `Refusal`, `TemporaryError` (timeout, connection,
        nothing came), `ConfigError`."""
        if self._debug:
            self._debug(f"> POST /chat/completions ({len(body)} bytes)\n{body.decode()}")
        response, deadline = self._transport.post("/chat/completions", body, self._first, meanwhile)
        if self._debug:
            self._debug(f"< HTTP {response.status_code} {dict(response.headers)}")
        try:
            if not 200 <= response.status_code < 300:
                raise self._refused(response)
            return self._read(response, deadline)
        finally:
            response.close()

    def _refused(self, response: Any) -> Exception:
        body = self._transport.whole(response)
        if self._debug:
            self._debug(body.decode("utf-8", "replace"))
        headers = _lower(response.headers)
        if 300 <= response.status_code < 400:
            where = headers.get("location", "").rpartition("@")[2]
            said = f"The server redirects to {where}"
            return APIError(said, "Set the base URL to that address", kind="not_found", status=response.status_code)
        return Refusal(response.status_code, headers, body)

    def _read(self, response: Any, deadline: Deadline) -> Assembled:
        """Read the stream to its end, showing fragments as they come."""
        assembler = self.assembler
        self._headers = _lower(response.headers)
        pieces = self._transport.read(response)
        try:
            self._follow(pieces, deadline)
        except TemporaryError as error:
            if not assembler.ended:
                raise self._refused_in_words() or (self._stalled() if error.kind == "timeout" else error) from None
        if not assembler.done:
            events = self._reader.close()
            for event in events:
                self._take(event)
            if self._reader.body and len(events) == 1 and assembler.whole:
                assembler.ended = True  # one JSON value is all there is, whatever its finish reason
        elif assembler.calling:
            self._drain(pieces, deadline)
        if assembler.fault is not None:
            raise Refusal(200, self._headers, assembler.fault)
        refused = self._refused_in_words()
        if refused:
            raise refused
        if not assembler.ended:
            raise self._unfinished()
        return assembler.finish()

    def _follow(self, pieces: Iterator[bytes], deadline: Deadline) -> None:
        """Take pieces until the end mark, an error, or the end. Raises: `TemporaryError` (a break, a stall)."""
        reader, assembler, show = self._reader, self.assembler, self._on_delta
        for piece in pieces:
            value = None if self._debug else reader.whole(piece)
            if value is not None and (text := assembler.plain(value)):
                show(Delta("text", text))
                deadline.extend(AFTER_FINISH_SECONDS if assembler.ended else self._stall)
                continue
            events = reader.feed(piece) if value is None else [Event("", piece[6:-2], value)]
            for event in events:
                self._take(event)
            if events:
                deadline.extend(AFTER_FINISH_SECONDS if assembler.ended else self._stall)
            if assembler.done or assembler.fault is not None:
                return
            if not events and deadline.passed:
                raise self._stalled()

    def _take(self, event: Event) -> None:
        if self._debug:
            self._debug("< " + event.data.decode("utf-8", "replace"))
        for delta in self.assembler.take(event):
            self._on_delta(delta)

    def _drain(self, pieces: Iterator[bytes], deadline: Deadline) -> None:
        """Read the few bytes after the end mark, so that the connection serves the step that will follow the calls."""
        deadline.extend(DRAIN_SECONDS)
        try:
            for _ in pieces:
                if deadline.passed:
                    break
        except AgentError:
            pass

    def _stalled(self) -> APIError:
        from agent.wire.faults import fault

        if self.assembler.started or self._reader.damaged or self.assembler.usage:
            hint = "Run the command again; AGENT_STALL_TIMEOUT sets how long to wait"
            return fault("timeout", f"nothing came for {self._stall:g} s", hint=hint)
        beats = " (only heartbeats)" if self._reader.comments else ""
        return fault("timeout", f"no answer within {self._first:g} s{beats}")

    def _refused_in_words(self) -> Refusal | None:
        """What the server said, in no form of an error, where nothing of an answer came."""
        said = self._reader.words or self.assembler.aside
        return Refusal(200, self._headers, said) if said and not self.assembler.started else None

    def _unfinished(self) -> Exception:
        """Why a stream that ended without an end mark is no answer."""
        from agent.wire.faults import fault

        reader, started = self._reader, self.assembler.started
        if reader.html:
            return Refusal(200, self._headers, reader.body)
        if reader.stray and not started:
            return Refusal(200, self._headers, reader.stray)
        if started or reader.damaged:
            return fault("connection", "the answer broke off before its end")
        error = fault("empty", "the server sent no data" + (", only heartbeats" if reader.comments else ""))
        error.retries = 1
        return error


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
