"""The model over HTTP: one request in, one reply out, and every failure named.

    complete -> (attempt -> adapt or wait)* -> Reply

An attempt sends the request and reads the stream; nothing is retried once a fragment was shown, but for reasoning that
no answer followed. A refusal that a change of the request can mend is mended once and remembered (`agent.wire.adapt`,
`agent.wire.memory`); a temporary one is waited for (`agent.wire.retry`), within limits of count and time. One HTTP
exchange is `agent.wire.exchange`'s. The key is never shown: all text that leaves goes through `redact`. What only a
refusal needs is imported where it is used.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from agent.errors import AgentError, APIError, ContextOverflow, OutputCapTooLarge
from agent.events import Emit, Notice, Waiting
from agent.messages import Delta, Reply, Request, Sent, text_of
from agent.redact import redact, secret_values
from agent.wire import FILTERED, Dialect
from agent.wire.body import encode_request, output_cap
from agent.wire.exchange import Exchange, Refusal
from agent.wire.leaked import remark_on
from agent.wire.memory import Memory
from agent.wire.providers import Target, structured
from agent.wire.stream import Assembled, Assembler
from agent.wire.transport import Transport
from agent.wire.truncation import outgrown, read_in_part

FIRST_BYTE_SECONDS = 300.0
STALL_SECONDS = 120.0
_LEAST_OUTPUT = 256
"""Tokens: an answer with less room than this is not worth a smaller output limit."""


class ChatClient:
    """A `messages.Model` on a chat-completions server.

    `window` (tokens, may be set later) lets it tell an empty answer from a full context. `summary_format` is the
    setting of that name. Timeouts are seconds.
    """

    def __init__(
        self,
        target: Target,
        *,
        emit: Emit | None = None,
        debug: Callable[[str], None] | None = None,
        first_byte_timeout: float = FIRST_BYTE_SECONDS,
        stall_timeout: float = STALL_SECONDS,
        max_output: int | None = None,
        window: int | None = None,
        summary_format: str = "auto",
        memory: Memory | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.target = target
        self.name = target.model
        self.window = window
        self._summary_format = summary_format
        self.memory = memory or Memory()
        self._emit = emit or (lambda event: None)
        self._debug_sink = debug
        self._first, self._stall = first_byte_timeout, stall_timeout
        self._clock, self._sleep, self._dice = clock, sleep, dice
        environ = os.environ if environ is None else environ
        self._secrets = [target.api_key, *secret_values(target.headers), *secret_values(environ)]
        self._transport = Transport(target, environ, clock)
        known = self.memory.of(target.base_url, target.model)
        self.dialect = self._lasting = Dialect.from_json({**target.dialect.as_json(), **_dict(known.get("dialect"))})
        stated = [n for n in (max_output, known.get("max_output")) if isinstance(n, int) and n > 0]
        self._cap: int | None = None
        self._most_read = 0
        self._cap_ceiling = min(stated, default=None)

    @property
    def takes_tools(self) -> bool:
        """Whether tools may be offered to this model."""
        return self.dialect.tools

    @property
    def structured(self) -> str:
        """See `messages.Model.structured`; what the user says of it (`summary_format`) comes before what is known."""
        if "response_format" in self.dialect.drop or self._summary_format == "text":
            return ""
        return structured(self.target) or ("sampling" if self._summary_format == "json" else "")

    def complete(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        """See `messages.Model.complete`. Raises also `ConfigError` (TLS, proxy, address)."""
        return _Completion(self, request, on_delta).run()

    def ask_window(self) -> int | None:
        """The window in tokens, asked of this server in every way that is known; None otherwise. Never raises."""
        from agent.wire.probes import ask_window

        return ask_window(self._transport, self.target)

    def ask_once(self, question: str) -> int | None:
        """The same by one question of `agent.wire.probes`. Raises: `AgentError` when the server cannot answer now."""
        from agent.wire.probes import ask

        return ask(self._transport, self.target, question)

    def close(self) -> None:
        """Drop the connections."""
        self._transport.close()

    def _debug_line(self) -> Callable[[str], None] | None:
        """Where the wire is shown, with what must not be seen taken out; None when it is not."""
        sink = self._debug_sink
        return None if sink is None else lambda text: sink(redact(text, self._secrets))

    def _notice(self, level: str, code: str, text: str) -> None:
        self._emit(Notice(level, code, redact(text, self._secrets)))

    def _learn(self, **facts: Any) -> None:
        self.memory.learn(self.target.base_url, self.target.model, **facts)


class _Completion:
    """One call of `complete`: what was tried, when it began."""

    def __init__(self, client: ChatClient, request: Request, on_delta: Callable[[Delta], None]) -> None:
        self.client, self.request, self.on_delta = client, request, on_delta
        self.began = client._clock()
        self.retries = 0
        self.changes: set[str] = set()
        self.cap = self._first_cap()
        self.asked_again = False
        self.size = 0

    def run(self) -> Reply:
        while True:
            try:
                return self._attempt()
            except APIError as error:
                if not self._mend(error):
                    self._wait(error)

    def _first_cap(self) -> int | None:
        """The ceiling matters only where the request asks for more than it."""
        ceiling, wanted = self.client._cap_ceiling, self.request.max_tokens
        return ceiling if ceiling is not None and wanted is not None and wanted > ceiling else None

    # one attempt

    def _attempt(self) -> Reply:
        client = self.client
        began = client._clock()
        body, sent = encode_request(self.request, client.target.model, client.dialect, self.cap)
        self.size = len(body)
        exchange = Exchange(client._transport, client._first, client._stall, self.on_delta, client._debug_line())
        assembler = exchange.assembler
        try:
            try:
                return self._reply(exchange.run(body, lambda: (sent.sha256, self.request.meanwhile())), sent, began)
            except Refusal as refusal:
                raise self._classified(refusal) from None
        except BaseException as error:
            reasoned = not assembler.answering and isinstance(error, APIError) and error.kind in ("empty", "overflow")
            if not assembler.started or reasoned:
                raise
            if isinstance(error, APIError):
                error.retryable = False
            return self._interrupted(assembler, error, sent, began)

    def _classified(self, refusal: Refusal) -> AgentError:
        from agent.wire.faults import Answer, classify

        client = self.client
        near = None if client.window is None else self._estimate() >= 0.9 * client.window
        error = classify(
            Answer(
                refusal.status,
                refusal.headers,
                refusal.body,
                client.target.provider,
                client._secrets,
                near,
                time.time(),
            )
        )
        if error.kind == "auth" and not client.target.api_key:
            error.hint = "No key was sent: set OPENAI_API_KEY, or the variable that `agent models` names"
        return error

    # the reply

    def _reply(self, answer: Assembled, sent: Sent, began: float) -> Reply:
        """A reply, or what an answer that is none stands for."""
        word = (answer.finish_reason or "").lower()
        if answer.failed:
            from agent.wire.faults import fault

            raise fault("server", f"the answer ended with {answer.finish_reason}")
        if answer.empty and not answer.cut_calls and not any(mark in word for mark in FILTERED):
            self._doubt_the_empty(answer, word)
        self._remark(answer)
        return self._made(answer, sent, began)

    def _doubt_the_empty(self, answer: Assembled, word: str) -> None:
        """An answer of nothing: the window is full, or it is asked for once more, or it is believed."""
        client, usage = self.client, answer.usage
        full = answer.overflowed or (word in ("length", "max_tokens") and usage is not None and not usage.completion)
        near = client.window is not None and self._size(answer) >= 0.9 * client.window
        if full or near:
            raise ContextOverflow(
                "The conversation fills the model's window: the answer was empty",
                "Compact it: agent sessions compact ID",
                status=200,
            )
        if not self.asked_again and not answer.truncated:
            from agent.wire.faults import fault

            self.asked_again = True
            error = fault("empty", "an answer without text")
            error.retries = 1
            raise error
        client._notice("warning", "empty_answer", "the model returned an empty answer")

    def _made(self, answer: Assembled, sent: Sent, began: float, error: BaseException | None = None) -> Reply:
        return Reply(
            answer.message, answer.finish_reason, answer.usage, answer.model or self.client.name, sent,
            complete=error is None and answer.complete, truncated=answer.truncated, cut_calls=answer.cut_calls,
            error=error, seconds=self.client._clock() - began,
        )  # fmt: skip

    def _interrupted(self, assembler: Assembler, error: BaseException, sent: Sent, began: float) -> Reply:
        """What had come when it broke off. Its calls are never given out."""
        assembler.ended = False
        return self._made(assembler.finish(), sent, began, error)

    def _remark(self, answer: Assembled) -> None:
        """Notices about an answer that is complete but not as it should be."""
        client, usage = self.client, answer.usage
        offers = self.request.call_tools and client.dialect.tools and self.request.response_format is None
        offered = self.request.tools if offers else ()
        meant = remark_on(answer.message, answer.finish_reason, offered)
        if meant:
            client._notice("warning", "call_in_text", f"{client.name} {meant}")
        if usage is None:
            return
        if answer.truncated and usage.prompt < (client.window or 0) <= 1.02 * (usage.prompt + usage.completion):
            client._notice("warning", "context_full", "the answer was cut because the context is full")
        self._check_truncation(usage.prompt)

    def _check_truncation(self, prompt: int) -> None:
        """Notice a server that read far less than was sent, and learn its real window; forget one that it outgrew.

        Bytes only raise the question (a token is hardly ever more than eight), the estimate, which errs high, drops it
        for what is short; the tokenizer, which takes 150 ms to load, decides it. No window is below 512.
        """
        client = self.client
        known = client.memory.of(client.target.base_url, client.target.model)
        client._most_read = max(client._most_read, prompt, known.get("most") or 0)
        if wrong := outgrown(prompt, known):
            client._learn(**wrong)
        if self.size < prompt * 8 or prompt < 512 or self._estimate() < 2048:
            return
        from agent.tokens import count, estimate_messages

        told = ({**m, "content": text_of(m)} for m in self.request.messages)  # an image is the server's to count
        counted = estimate_messages(told, self.request.tools, count)
        if counted < 2048 or prompt * 2 > counted:
            return
        stated = client.ask_window() if client.target.loopback else None
        learnt, text = read_in_part(prompt, counted, stated, known | {"most": client._most_read})
        client._learn(**learnt)
        if window := learnt.get("window"):
            client.window = min(window, client.window or window)
            text += " (for Ollama, raise num_ctx)"
        client._notice("warning", "silent_truncation", text)

    def _estimate(self) -> int:
        from agent.tokens import estimate_messages

        return estimate_messages(self.request.messages, self.request.tools)

    def _size(self, answer: Assembled) -> int:
        return answer.usage.prompt if answer.usage else self._estimate()

    # another attempt

    def _mend(self, error: APIError) -> bool:
        """Change what the refusal asks to change; True when it is worth sending again."""
        client = self.client
        if isinstance(error, OutputCapTooLarge):
            return self._lower_cap(error.limit, remember=True)
        if isinstance(error, ContextOverflow):
            return self._overflowed(error)
        from agent.wire.adapt import adapted

        change = adapted(error, client.dialect, self._sent_parameters())
        if change is None or change.words in self.changes:
            return False
        changed = {k: v for k, v in change.dialect._asdict().items() if v != getattr(client.dialect, k)}
        client.dialect = change.dialect
        self.changes.add(change.words)
        base = client.target.dialect.as_json()
        if change.lasting:
            client._lasting = client._lasting._replace(**changed)
            known = client._lasting.as_json()
            reset = {k: getattr(Dialect(), k) for k in base if k not in known}
            client._learn(dialect={**{k: v for k, v in known.items() if base.get(k) != v}, **reset})
        why = f" ({error.text})" if not client.dialect.tools else ""
        client._notice("info", "adapted", f"the server refused the request{why}; from now on: {change.words}")
        return True

    def _sent_parameters(self) -> dict[str, Any]:
        parsed: dict[str, Any] = orjson.loads(
            encode_request(self.request, self.client.name, self.client.dialect, self.cap)[0]
        )
        return parsed

    def _lower_cap(self, limit: int | None, remember: bool) -> bool:
        """Ask for less output; False when that was tried or makes no sense."""
        wanted = output_cap(self.request, self.cap)
        if limit is None or (wanted is not None and limit >= wanted):
            limit, remember = (wanted or 0) // 2, False
        key = f"cap {limit}"
        if limit < 16 or key in self.changes or sum(c.startswith("cap ") for c in self.changes) >= 3:
            return False
        self.changes.add(key)
        self.cap = limit
        if remember:
            self.client._cap_ceiling = limit
            self.client._learn(max_output=limit)
        self.client._notice("info", "output_clamped", f"the output limit is lowered to {limit} tokens")
        return True

    def _overflowed(self, error: ContextOverflow) -> bool:
        """Learn the window; and where only the output asked for is too large, ask for less. False: compact."""
        client = self.client
        wanted = error.completion or output_cap(self.request, self.cap) or 0
        if error.limit is not None and error.limit >= 512 and self._is_borne_out(error, error.limit, wanted):
            client._learn(**{"max_input" if error.limit_is_input else "window": error.limit})
        if error.limit is None or error.limit_is_input:
            return False
        room = self._room_for_output(error, error.limit, wanted)
        if wanted <= room or room < _LEAST_OUTPUT or "room" in self.changes:
            return False
        self.changes.add("room")
        return self._lower_cap(room, remember=False)

    def _room_for_output(self, error: ContextOverflow, limit: int, wanted: int) -> int:
        """Tokens that the prompt leaves for an answer, as far as the refusal tells; less than nothing where it does not."""
        prompt = error.prompt
        if prompt is None and error.have and wanted:
            prompt = error.have - wanted
        if prompt is None and wanted:  # only a bound was stated: our estimate, which the server contradicts
            return min(limit - self._estimate() - 8, wanted // 2)
        return limit - (prompt or limit) - 8

    def _is_borne_out(self, error: ContextOverflow, limit: int, wanted: int) -> bool:
        """Whether another number says the same as the stated limit: what is learned holds for all runs to come."""
        if error.have is not None:
            return error.have > limit
        return error.completion is not None or self._estimate() + wanted >= limit

    def _wait(self, error: APIError) -> None:
        """Wait before the next attempt, or raise the error when there is none."""
        from agent.wire.retry import ATTEMPTS, LONGEST_WAIT, TOTAL_WAIT, ladder

        client = self.client
        self.retries += 1
        allowed = ATTEMPTS if error.retries is None else error.retries
        if error.retry_after is not None and error.retry_after > LONGEST_WAIT:
            error.hint = f"Come back in {_spoken(error.retry_after)}, or use another model with -m"
            raise error
        if not error.retryable or self.retries > allowed:
            raise error
        delay = ladder(self.retries, client._dice())
        if error.retry_after:
            delay = error.retry_after + 0.1 * client._dice()
        if client._clock() - self.began + delay > TOTAL_WAIT:
            raise error
        client._emit(Waiting(delay, self.retries, allowed, redact(error.text, client._secrets)))
        client._sleep(delay)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _spoken(seconds: float) -> str:
    """A delay for people: "90 s", "12 min", "3 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
