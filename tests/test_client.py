"""One request in, one reply out: retries, timers, what is mended once, interruption, and secrets."""

from __future__ import annotations

import threading
import time
from email.utils import formatdate
from typing import Any

import pytest
from server import ScriptedServer, calls, chunk, cut, hang, overflow, raw, sse, status, text
from wiring import KEY, asking

from agent.errors import AgentError, APIError, ContextOverflow, Interrupted, OutputCapTooLarge, TemporaryError
from agent.events import Notice
from agent.messages import Delta, Usage, tool_calls
from agent.wire import Dialect, digest, prepare_for_wire
from agent.wire.memory import Memory

SLOW = {"error": {"message": "Rate limit exceeded", "type": "rate_limit_error"}}
TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]


def test_an_answer_with_everything_known_about_it() -> None:
    with ScriptedServer([text("hello there", usage=(12, 3, 4))]) as server:
        asked = asking(server)
        reply = asked.ask("hi", max_tokens=50, temperature=0.0)
    assert reply.message == {"role": "assistant", "content": "hello there"}
    assert (reply.finish_reason, reply.usage, reply.model) == ("stop", Usage(12, 3, 4), "scripted")
    assert (reply.complete, reply.truncated, reply.cut_calls, reply.error) == (True, False, 0, None)
    assert reply.sent.sha256 == digest(prepare_for_wire([{"role": "user", "content": "hi"}]))
    assert asked.shown == "hello there"
    assert server.requests == [{
        "model": "scripted", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50, "temperature": 0.0,
        "stream": True, "stream_options": {"include_usage": True},
    }]  # fmt: skip
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert server.headers[0]["accept-encoding"] == "identity"


def test_tools_are_shown_but_not_to_be_called_in_a_summary() -> None:
    """The cached prefix stays: same tools, and a tool_choice of none."""
    with ScriptedServer([calls([("ls", {"p": "."})]), text("sum")]) as server:
        asked = asking(server)
        reply = asked.ask(tools=TOOLS)
        asked.ask(tools=TOOLS, call_tools=False)
    assert [(c.name, c.arguments) for c in tool_calls(reply.message)] == [("ls", '{"p": "."}')]
    assert "tool_choice" not in server.requests[0]
    assert (server.requests[1]["tools"], server.requests[1]["tool_choice"]) == (TOOLS, "none")


def test_what_is_done_meanwhile_is_done_before_the_answer_comes() -> None:
    """The server answers only once it was done, and the time it takes is not counted as the server's silence."""
    done = threading.Event()
    now = [0.0]

    def answered(request: dict[str, Any], index: int) -> Any:
        assert done.wait(20)
        return text("ok")

    def meanwhile() -> None:
        now[0] += 100
        done.set()

    with ScriptedServer(answered) as server:
        asked = asking(server, first_byte_timeout=30, clock=lambda: now[0])
        assert asked.ask(meanwhile=meanwhile).message["content"] == "ok"
    assert (len(server.requests), asked.slept) == (1, [])


# ---- retries ----


def test_temporary_failures_are_waited_for_with_growing_pauses() -> None:
    """Full jitter under 1, 2, 4, 8, 16 seconds, and then the failure itself: exit 75."""
    with ScriptedServer([status(500, "")], repeat_last=True) as server:
        asked = asking(server, dice=lambda: 1.0)
        with pytest.raises(TemporaryError) as caught:
            asked.ask()
    assert asked.slept == asked.waits() == [1, 2, 4, 8, 16]
    assert (int(caught.value.exit_code), len(server.requests)) == (75, 6)


@pytest.mark.parametrize("headers, least, most", [
    ({"retry-after": "2"}, 2, 2),
    ({"retry-after": "0.5"}, 0.5, 0.5),
    ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5, 1.5),
    ({"retry-after": formatdate(4102444800, usegmt=True)}, None, None),  # the year 2100
    ({"retry-after": "3600"}, None, None),
    ({"retry-after": "-5"}, 0, 0),
    ({"retry-after": "abc"}, 0, 0),
    ({"retry-after": formatdate(0, usegmt=True)}, 0, 0),
])  # fmt: skip
def test_a_stated_delay_is_kept_and_a_long_one_is_not_waited_for(
    headers: dict[str, str], least: float | None, most: float | None
) -> None:
    """Over a minute: fails at once, exit 75, and says when to come back."""
    with ScriptedServer([status(429, SLOW, headers), text("ok")]) as server:
        asked = asking(server)
        if least is None or most is None:
            with pytest.raises(APIError) as caught:
                asked.ask()
            assert (asked.slept, caught.value.hint[:13], int(caught.value.exit_code)) == ([], "Come back in ", 75)
            assert len(server.requests) == 1
        else:
            assert asked.ask().message["content"] == "ok"
            assert least <= asked.slept[0] <= most


def test_the_delay_may_stand_in_the_text() -> None:
    said = {"error": {"message": "Rate limit reached. Please try again in 1m0.5s", "code": "rate_limit_exceeded"}}
    soon = {"error": {"message": "Rate limit reached. Please try again in 350ms", "code": "rate_limit_exceeded"}}
    with ScriptedServer([status(429, soon), status(429, said)]) as server:
        asked = asking(server)
        with pytest.raises(TemporaryError) as caught:
            asked.ask()
    assert (asked.slept, caught.value.retry_after) == ([0.35], 60.5)


@pytest.mark.parametrize("code", [429, 200])
def test_a_delay_in_the_headers_that_a_gateway_quotes_is_kept(code: int) -> None:
    """They stand inside the error; those of the answer itself count too when the error stands in a 200."""
    error = {
        "code": 429,
        "message": "Rate limit exceeded: limit_rpm",
        "metadata": {"provider_name": "x", "headers": {}},
    }
    for given, quoted in (({}, {"Retry-After": "12"}), ({"retry-after": "12s"}, {})):
        error["metadata"] = {"headers": quoted}
        with ScriptedServer([status(code, {"error": error}, given), text("ok")]) as server:
            asked = asking(server)
            assert asked.ask().message["content"] == "ok"
        assert asked.slept == [12.0]
    soon = str(int((time.time() + 40) * 1000))
    error["metadata"] = {
        "headers": {"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": soon}
    }
    with ScriptedServer([status(code, {"error": error}), text("ok")]) as server:
        asked = asking(server)
        assert asked.ask().message["content"] == "ok"
    assert 20 < asked.slept[0] <= 40


def test_waiting_is_capped_in_total() -> None:
    """However often a server asks for a minute, not more than three are given."""
    now = [0.0]
    with ScriptedServer([status(429, SLOW, {"retry-after": "59"})], repeat_last=True) as server:
        asked = asking(server, clock=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
        with pytest.raises(TemporaryError):
            asked.ask()
    assert now[0] == 177.0


def test_nothing_is_sent_again_after_something_was_shown() -> None:
    with ScriptedServer([cut("Hello wor"), text("never")]) as server:
        asked = asking(server)
        reply = asked.ask()
    assert (reply.message, reply.complete, reply.finish_reason) == (
        {"role": "assistant", "content": "Hello wor"},
        False,
        None,
    )
    assert isinstance(reply.error, TemporaryError) and reply.error.kind == "connection"
    assert (len(server.requests), asked.slept, asked.shown) == (1, [], "Hello wor")


def test_a_stream_cut_before_anything_was_shown_is_tried_again() -> None:
    with ScriptedServer([cut(40), text("whole")]) as server:
        asked = asking(server)
        assert asked.ask().message["content"] == "whole"
    assert (len(server.requests), asked.shown) == (2, "whole")


def test_no_server_at_all_is_a_connection_failure() -> None:
    with ScriptedServer() as server:
        asked = asking(server)
    with pytest.raises(TemporaryError) as caught:
        asked.ask()
    assert (caught.value.kind, int(caught.value.exit_code), len(asked.slept)) == ("connection", 75, 2)


# ---- timers ----


def test_a_server_that_says_nothing_is_left_after_the_first_byte_limit() -> None:
    with ScriptedServer([hang()], repeat_last=True) as server:
        asked = asking(server, first_byte_timeout=0.05)
        with pytest.raises(TemporaryError) as caught:
            asked.ask()
    assert (caught.value.kind, "within 0.05 s" in caught.value.text) == ("timeout", True)


def test_headers_without_events_count_as_silence() -> None:
    with ScriptedServer([hang(b": ping\n\n")], repeat_last=True) as server:
        asked = asking(server, first_byte_timeout=0.05)
        with pytest.raises(TemporaryError) as caught:
            asked.ask()
    assert caught.value.text.endswith("no answer within 0.05 s (only heartbeats)")


def test_a_stream_that_stalls_keeps_what_came() -> None:
    with ScriptedServer([hang(sse(chunk({"content": "so far"})))]) as server:
        reply = asking(server, stall_timeout=0.05).ask()
    assert (reply.message["content"], reply.complete) == ("so far", False)
    assert isinstance(reply.error, TemporaryError) and reply.error.kind == "timeout"
    assert reply.error.text.endswith("nothing came for 0.05 s")


def test_heartbeats_do_not_reset_the_stall_timer() -> None:
    """Events set the limit anew, comments do not: with one heartbeat a second the end comes at the limit."""
    now = [0.0]

    def clock() -> float:
        now[0] += 0.25
        return now[0]

    beats = [sse(chunk({"content": "x"})), *[b": ping\n\n"] * 2000]
    with ScriptedServer([raw(beats, ending="hang")]) as server:
        reply = asking(server, stall_timeout=5, clock=clock).ask()
    assert (reply.message["content"], reply.complete) == ("x", False)
    assert now[0] < 20


def test_a_connection_held_open_after_the_end_does_not_hold_us() -> None:
    """After [DONE] at once; after a finish reason without [DONE] within two seconds."""
    done = b"".join([sse(chunk({"content": "x"}, "stop")), sse("[DONE]")])
    with ScriptedServer([hang(done)]) as server:
        assert asking(server, stall_timeout=30).ask().complete
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    with ScriptedServer([hang(sse(chunk({"content": "x"}, "stop")))]) as server:
        assert asking(server, stall_timeout=30, clock=clock).ask().complete


# ---- interruption ----


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted("stopped", 143)])
def test_an_interruption_keeps_what_was_streamed(error: BaseException) -> None:
    """Half calls are not among it; the error travels with the reply."""
    call = {"index": 0, "id": "a", "function": {"name": "bash", "arguments": "{}"}}
    gate = threading.Event()
    events = [sse(chunk({"content": "one "})), sse(chunk({"tool_calls": [call]})), sse(chunk({"content": "two"})), gate]
    with ScriptedServer([raw(events)]) as server:
        client = asking(server).client

        def interrupt(delta: Delta) -> None:
            if delta.text == "two":
                raise error

        from agent.messages import Request

        reply = client.complete(Request([{"role": "user", "content": "x"}]), interrupt)
        gate.set()
    assert (reply.message["content"], reply.complete, reply.error) == ("one two", False, error)
    assert (tool_calls(reply.message), reply.cut_calls) == ([], 1)


def test_an_interruption_before_anything_came_goes_on_up() -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with ScriptedServer([status(500, "")]) as server, pytest.raises(KeyboardInterrupt):
        asking(server, sleep=interrupt).ask()


# ---- what is mended once ----

REFUSALS: list[tuple[str, int, Any, dict[str, Any], dict[str, Any]]] = [
    ("stream_options", 422, {"message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"]}]}},
     {}, {"drop": ["stream_options"]}),
    ("temperature", 400, {"error": {"message": "Unsupported value: 'temperature' does not support 0.2 with this model.",
                                    "param": "temperature", "code": "unsupported_value"}}, {}, {"drop": ["temperature"]}),
    ("response_format", 400, {"error": "'response_format.type' must be 'json_schema' or 'text'"}, {},
     {"drop": ["response_format"]}),
    ("grammar", 400, {"error": {"code": 400, "message": "Failed to parse grammar", "type": "invalid_request_error"}}, {},
     {"drop": ["response_format"]}),
    ("guided decoding", 400, {"object": "error", "type": "BadRequestError", "code": 400,
                              "message": "The provided JSON schema contains features not supported by xgrammar."}, {},
     {"drop": ["response_format"]}),
    ("max_completion_tokens", 400, {"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model. "
                                              "Use 'max_completion_tokens' instead.", "param": "max_tokens",
                                              "code": "unsupported_parameter"}}, {}, {"output_cap": "max_completion_tokens"}),
    ("max_tokens", 400, {"error": {"message": "Unknown field: max_completion_tokens"}},
     {"output_cap": "max_completion_tokens"}, {"output_cap": "max_tokens"}),
    ("tools", 400, {"error": {"message": "llama2 does not support tools"}}, {}, {"tools": False}),
    ("alternate", 500, {"error": {"message": "Conversation roles must alternate user/assistant/user/assistant/..."}}, {},
     {"alternate": True}),
    ("reasoning wanted", 400, {"error": {"message": "The `reasoning_content` in the thinking mode must be passed back to the API."}},
     {}, {"reasoning": "calls"}),
    ("reasoning refused", 400, {"error": {"message": "Unknown field reasoning_content: extra inputs are not permitted"}},
     {"reasoning": "calls"}, {"reasoning": "drop"}),
    ("signatures", 400, [{"error": {"message": "Function call is missing a thought_signature in functionCall parts."}}], {},
     {"signatures": True}),
    ("ids", 400, {"message": "Tool call id was call_abc123 but must be a-z, A-Z, 0-9, with a length of 9."}, {},
     {"ids": "alnum9"}),
    ("system role", 400, {"error": {"message": "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
                                    "param": "messages[0].role", "code": "unsupported_value"}}, {}, {"system": "fold"}),
    ("null content", 400, {"error": {"message": "messages[1].content must be a string, got null"}}, {},
     {"silent_content": "empty"}),
]  # fmt: skip
HISTORY = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "list"},
    {"role": "assistant", "content": None, "reasoning_content": "hm",
     "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]},
    {"role": "tool", "content": "a", "tool_call_id": "c1"},
    {"role": "user", "content": "and?"},
]  # fmt: skip


MENDED = [
    *REFUSALS,
    ("structured outputs", 501, {"error": "structured outputs are not implemented"}, {}, {"drop": ["response_format"]}),
]


@pytest.mark.parametrize("name, code, body, dialect, changed", MENDED, ids=[r[0] for r in MENDED])
def test_a_refusal_that_names_its_reason_is_mended_once_and_remembered(
    name: str, code: int, body: Any, dialect: dict[str, Any], changed: dict[str, Any]
) -> None:
    """The same request goes again in the new form, and a new process starts with it."""
    spoken = Dialect.from_json(dialect)
    wanted = Dialect.from_json({**dialect, **changed})
    about = {
        "messages": HISTORY,
        "temperature": 0.2,
        "max_tokens": 9,
        "tools": TOOLS,
        "response_format": {"type": "json_object"},
    }
    memory = Memory()
    with ScriptedServer([status(code, body), text("ok"), text("again")]) as server:
        asked = asking(server, dialect=spoken, memory=memory)
        reply = asked.ask(**about)
        assert (reply.message["content"], Dialect.from_json(reply.sent.dialect)) == ("ok", wanted)
        assert asking(server, dialect=spoken, memory=memory).client.dialect == wanted
    assert (asked.codes(), server.violations) == (["adapted"], [])
    assert server.requests[1]["messages"] == prepare_for_wire(HISTORY, wanted)
    for dropped in wanted.drop:
        assert dropped in server.requests[0] and dropped not in server.requests[1]


def test_what_is_changed_for_one_run_is_not_remembered_with_what_lasts() -> None:
    """The image of the history is left out of both requests; only the parameter stays known."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    history = [
        {"role": "user", "content": [picture]},
        {"role": "assistant", "content": "a dot"},
        {"role": "user", "content": "and?"},
    ]
    bad = {"error": {"message": "Image size exceeds the maximum allowed size of 20 MB"}}
    unknown = {"error": {"message": "Unknown parameter: 'stream_options'.", "param": "stream_options"}}
    memory = Memory()
    with ScriptedServer([status(400, bad), status(400, unknown), text("ok")]) as server:
        asked = asking(server, memory=memory)
        assert asked.ask(messages=history).message["content"] == "ok"
        assert asked.client.dialect == Dialect(images=False, drop=("stream_options",))
        assert asking(server, memory=memory).client.dialect == Dialect(drop=("stream_options",))
    assert [e.text for e in asked.events if isinstance(e, Notice)] == [
        "the server refused the request; from now on: images of earlier prompts are replaced by a note (in this run)",
        "the server refused the request; from now on: stream_options is left out",
    ]


@pytest.mark.parametrize("name, code, body, dialect, changed", REFUSALS, ids=[r[0] for r in REFUSALS])
def test_a_refusal_that_stays_is_not_argued_with(
    name: str, code: int, body: Any, dialect: dict[str, Any], changed: dict[str, Any]
) -> None:
    with ScriptedServer([status(code, body)], repeat_last=True) as server:
        asked = asking(server, dialect=Dialect.from_json(dialect))
        with pytest.raises(APIError):
            asked.ask(messages=HISTORY, temperature=0.2, max_tokens=9, tools=TOOLS, response_format={"type": "text"})
    assert (len(server.requests), asked.slept) == (2, [])


def test_an_output_cap_is_lowered_and_remembered() -> None:
    refusal = {
        "error": {"message": "max_tokens: 9000 > 4096, which is the maximum allowed number of output tokens for x"}
    }
    memory = Memory()
    with ScriptedServer([status(400, refusal), text("ok"), text("ok")]) as server:
        asking(server, memory=memory).ask(max_tokens=9000)
        asking(server, memory=memory).ask(max_tokens=9000)
    assert [r["max_tokens"] for r in server.requests] == [9000, 4096, 4096]


def test_an_output_cap_that_no_number_mends_is_raised() -> None:
    refusal = {"error": {"message": "max_tokens must be at least 16 for sonar."}}
    with ScriptedServer([status(400, refusal)], repeat_last=True) as server, pytest.raises(OutputCapTooLarge):
        asking(server).ask(max_tokens=20)


def test_an_overflow_teaches_the_window() -> None:
    memory = Memory()
    with ScriptedServer([overflow(9000, 8192)]) as server:
        with pytest.raises(ContextOverflow) as caught:
            asking(server, memory=memory).ask()
        assert memory.of(server.url, "scripted")["window"] == 8192
    assert (caught.value.have, caught.value.limit, caught.value.limit_is_input) == (9000, 8192, False)


@pytest.mark.parametrize("code, said, prompt, learned", [
    (400, "The context window is 8192 tokens. Your input is too long", "hello " * 20_000, {"window": 8192}),
    (400, "The context window is 8192 tokens. Your input is too long", "hello", {}),
    (400, "max_tokens must be at least 1, got -46771.", "hello", {}),
    (402, "Prompt tokens limit exceeded: 64128 > 6964. To increase, upgrade to a paid account", "hello", {}),
])  # fmt: skip
def test_a_window_is_learned_where_a_second_number_bears_it_out(
    code: int, said: str, prompt: str, learned: dict[str, int]
) -> None:
    """A size that was sent, or our own estimate; a wrong window would stay for all runs to come."""
    memory = Memory()
    with ScriptedServer([status(code, {"error": {"message": said}})], repeat_last=True) as server:
        with pytest.raises(APIError):
            asking(server, memory=memory).ask(prompt)
        found = memory.of(server.url, "scripted")
    assert {k: v for k, v in found.items() if k != "at"} == learned


@pytest.mark.parametrize("code", [200, 201, 202, 203, 206, 207, 299])
def test_every_status_of_success_is_an_answer(code: int) -> None:
    """Streamed or whole; what it says went wrong is read as ever, and none without a body is an answer."""
    streamed = raw([sse(chunk({"content": "Hi"}, "stop")), sse("[DONE]")], status=code)
    whole = status(code, {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]})
    for reply in (streamed, whole):
        with ScriptedServer([reply]) as server:
            answer = asking(server).ask()
        assert (answer.message["content"], answer.complete, len(server.requests)) == ("Hi", True, 1)
    for body, kind in ((SLOW, "rate_limit"), ("<html><title>Sign in</title></html>", "html"), ("", "empty")):
        with ScriptedServer([status(code, body)], repeat_last=True) as server, pytest.raises(APIError) as caught:
            asking(server).ask()
        assert caught.value.kind == kind


def test_an_empty_answer_is_asked_for_once_more_and_then_taken() -> None:
    with ScriptedServer([text(""), text("")]) as server:
        asked = asking(server)
        reply = asked.ask()
    assert (reply.complete, reply.message["content"], asked.codes()) == (True, "", ["empty_answer"])


def test_a_refusal_to_speak_is_an_answer() -> None:
    with ScriptedServer([text("", finish="content_filter")]) as server:
        reply = asking(server).ask()
    assert (reply.complete, reply.finish_reason, len(server.requests)) == (True, "content_filter", 1)


# ---- connections and secrets ----


def test_steps_share_a_connection() -> None:
    """The end of a stream is read, so that the next step need not connect again."""
    with ScriptedServer(lambda request, index: calls([("ls", {})]) if index < 5 else text("done")) as server:
        asked = asking(server)
        for _ in range(6):
            asked.ask(tools=TOOLS)
    assert (len(server.peers), len(set(server.peers))) == (6, 1)


def test_debug_shows_the_wire_without_the_key() -> None:
    with ScriptedServer([text("hi")]) as server:
        asked = asking(server)
        asked.ask(f"my key is {KEY}")
    shown = "\n".join(asked.debug)
    assert KEY not in shown and "[redacted]" in shown
    assert '"stream":true' in shown and "[DONE]" in shown


def test_a_key_in_the_environment_is_secret_even_when_it_is_not_ours() -> None:
    other = "zz-other-provider-key"
    refusal = {"error": {"message": f"cannot use {other}"}}
    with ScriptedServer([status(400, refusal)]) as server, pytest.raises(AgentError) as caught:
        asking(server, environ={"OTHER_API_KEY": other}).ask()
    assert other not in str(caught.value)
