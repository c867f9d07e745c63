"""Failures through the real client: every row of the corpora, and variants of each kind that no row holds."""

from __future__ import annotations

from typing import Any

import pytest
from server import ScriptedServer, raw, status, text
from wiring import KEY, asking, body_of, rows

from agent.errors import AgentError, APIError, AuthError, ContextOverflow, OutputCapTooLarge, TemporaryError
from agent.events import Notice
from agent.wire.faults import KINDS, Answer, classify
from agent.wire.memory import Memory

OVERFLOWS = rows("overflow")
LOOKALIKES = rows("lookalikes")


def named(row: dict[str, Any]) -> str:
    return f"{row['id']}-{row['provider']}"


def reply_of(row: dict[str, Any]) -> Any:
    content_type = "text/event-stream" if row.get("in_stream") else "application/json"
    headers = {k: v for k, v in row.get("headers", {}).items() if k.lower() not in ("content-length", "content-type")}
    content_type = {k.lower(): v for k, v in row.get("headers", {}).items()}.get("content-type", content_type)
    return raw(body_of(row), content_type, row["status"], headers)


def room(row: dict[str, Any]) -> int:
    """Output tokens that fit beside the stated prompt."""
    return row["max"] - row["prompt"] - 8 if row.get("prompt") and row.get("max") and row.get("completion") else 0


LOUD = [r for r in OVERFLOWS if not r.get("silent")]


def bounded(row: dict[str, Any]) -> bool:
    """Whether only a bound of the prompt's size is stated, and the output asked for is large."""
    return not row.get("prompt") and row.get("completion", 0) >= 512


@pytest.mark.parametrize("row", [r for r in LOUD if room(r) < 256 and not bounded(r)], ids=named)
def test_an_overflow_is_raised_with_its_numbers(row: dict[str, Any]) -> None:
    """ContextOverflow after one request, with the tokens that were stated and none that were bytes or characters."""
    with ScriptedServer([reply_of(row)]) as server:
        asked = asking(server, provider=row["provider"])
        with pytest.raises(ContextOverflow) as caught:
            asked.ask()
    stated = (row["have"], row["max"]) if row["unit"] == "tokens" else (None, None)
    assert (caught.value.have, caught.value.limit) == stated
    assert (caught.value.exit_code, caught.value.kind, asked.slept) == (6, "overflow", [])


@pytest.mark.parametrize("row", [r for r in LOUD if room(r) >= 256], ids=named)
def test_an_overflow_by_the_output_alone_lowers_the_output(row: dict[str, Any]) -> None:
    """Where the prompt fits, history is not touched: the same messages go again with a smaller output limit."""
    with ScriptedServer([reply_of(row), text("fits now")]) as server:
        asked = asking(server, provider=row["provider"])
        assert asked.ask().message["content"] == "fits now"
    first, second = server.requests
    assert second["messages"] == first["messages"]
    assert second["max_tokens"] == room(row)


@pytest.mark.parametrize("row", [r for r in LOUD if bounded(r)], ids=named)
def test_where_the_prompt_is_not_stated_a_smaller_output_is_tried_once(row: dict[str, Any]) -> None:
    """A lower bound or a number of characters is no size: one smaller output is tried, then it is an overflow."""
    with ScriptedServer([reply_of(row)], repeat_last=True) as server:
        asked = asking(server)
        with pytest.raises(ContextOverflow) as caught:
            asked.ask(max_tokens=row["completion"])
    assert [r["max_tokens"] for r in server.requests] == [row["completion"], row["completion"] // 2]
    assert (caught.value.have, caught.value.limit) == (None, row["max"])


@pytest.mark.parametrize("row", [r for r in OVERFLOWS if r.get("silent")], ids=named)
def test_a_silent_overflow_is_noticed(row: dict[str, Any]) -> None:
    """An empty answer near the window is an overflow; a prompt read only in part is said and the window learned."""
    prompt = "".join(f"line {n}: the quick brown fox jumps over the lazy dog\n" for n in range(1500))
    with ScriptedServer([reply_of(row)], repeat_last=True) as server:
        asked = asking(server, window=16000)
        try:
            reply = asked.ask(prompt)
        except ContextOverflow as error:
            assert error.exit_code == 6
            return
        known = asked.client.memory.of(server.url, "scripted")
    assert reply.usage is not None and reply.usage.prompt == 4096
    assert asked.codes() == ["silent_truncation"]
    assert (known["window"], asked.client.window) == (4096, 4096)


def test_an_image_is_not_read_in_part() -> None:
    """Its bytes are many and its tokens few: that says nothing of a window."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 12_000}}
    memory = Memory()
    with ScriptedServer([text("Two screenshots.", usage=(1966, 9))], repeat_last=True) as server:
        for _ in range(3):
            asked = asking(server, memory=memory)
            content = [{"type": "text", "text": "what is wrong in these?"}, picture, picture]
            asked.ask(messages=[{"role": "user", "content": content}])
            assert asked.codes() == []
        assert memory.of(server.url, "scripted").get("window") is None


@pytest.mark.parametrize("row", LOOKALIKES, ids=named)
def test_what_only_looks_like_an_overflow_keeps_its_own_class(row: dict[str, Any]) -> None:
    """Kind, retryability, stated delay and limits; it is never compacted, and retried only where that helps."""
    with ScriptedServer([reply_of(row)], repeat_last=True) as server:
        asked = asking(server, provider=row["provider"])
        with pytest.raises(AgentError) as caught:
            asked.ask(max_tokens=100000, temperature=0.2)
    error = caught.value
    assert not isinstance(error, ContextOverflow)
    assert error.kind == {"max_output": "output_cap"}.get(row["kind"], row["kind"])
    assert error.kind in KINDS
    assert bool(getattr(error, "retryable", False)) == row.get("retryable", False)
    assert bool(asked.slept) == row.get("retryable", False)
    if row.get("retry_after_s"):
        assert error.retry_after == row["retry_after_s"]  # type: ignore[attr-defined]
    if isinstance(error, OutputCapTooLarge):
        assert error.limit == row["max"]


@pytest.mark.parametrize("row", [r for r in LOOKALIKES if r.get("retryable")], ids=named)
def test_what_is_worth_a_retry_is_retried(row: dict[str, Any]) -> None:
    """The second answer is taken, after at least the stated delay."""
    with ScriptedServer([reply_of(row), text("second time")]) as server:
        asked = asking(server, provider=row["provider"])
        assert asked.ask().message["content"] == "second time"
    assert len(asked.slept) == 1
    assert asked.slept[0] >= row.get("retry_after_s", 0)


def test_a_key_is_never_repeated() -> None:
    """Neither the error, nor a notice, nor the debug text holds the key, even when the server sends it back."""
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}
    with ScriptedServer([status(401, echo, {"x-echo": KEY})]) as server:
        asked = asking(server)
        with pytest.raises(AuthError) as caught:
            asked.ask()
    everything = repr((str(caught.value), vars(caught.value), asked.events, asked.debug))
    assert KEY not in everything
    assert "[redacted]" in everything
    assert caught.value.exit_code == 3


def test_a_page_shows_its_title_and_not_its_markup() -> None:
    page = "<html><head><title>502 Bad\n Gateway</title></head><body><p>long</p></body></html>"
    error = classify(Answer(502, {"content-type": "text/html"}, page.encode()))
    assert error.text == "A web page came instead of an answer (HTTP 502): 502 Bad Gateway"
    assert isinstance(error, TemporaryError) and error.retryable


def test_a_refused_redirect_names_the_address() -> None:
    moved = status(308, "", {"location": "https://elsewhere/v1"})
    with ScriptedServer([moved]) as server, pytest.raises(APIError) as caught:
        asking(server).ask()
    assert (caught.value.text, caught.value.kind) == (
        "The server redirects to https://elsewhere/v1",
        "not_found",
    )


def test_notices_name_what_changed() -> None:
    refusal = {"error": {"message": "Unknown parameter: 'stream_options'.", "param": "stream_options"}}
    with ScriptedServer([status(400, refusal), text("ok")]) as server:
        asked = asking(server)
        assert asked.ask().message["content"] == "ok"
    said = [e.text for e in asked.events if isinstance(e, Notice)]
    assert said == ["the server refused the request; from now on: stream_options is left out"]
