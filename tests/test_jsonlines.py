"""What programs see: init first, result last, every line whole JSON in the envelope other tools parse."""

import json
import os
from typing import Any

import pytest
from test_render import A_RUN, OPENED, TURN

from agent.errors import AgentError, Interrupted, LimitError, TemporaryError
from agent.events import Event, Streamed
from agent.jsonlines import JsonLines, answered_line, encode_line
from agent.messages import Delta


def lines(
    events: list[Event], error: AgentError | None = None, *, partial: bool = False, once: bool = False
) -> list[Any]:
    reader, writer = os.pipe()
    silent = os.open(os.devnull, os.O_WRONLY)
    from agent.render import Output

    screen = JsonLines(Output(writer), Output(silent), partial=partial, once=once, resume="agent")
    for event in events:
        screen.emit(event)
    screen.finish(None if error else TURN, error, error.exit_code if error else 0)
    os.close(writer)
    os.close(silent)
    with os.fdopen(reader, "rb") as file:
        return [json.loads(line) for line in file]


def test_the_shape_of_a_run() -> None:
    told = lines(A_RUN)
    assert [(line["type"], line.get("subtype") or line.get("code")) for line in told] == [
        ("system", "init"),
        ("system", "notice"),
        ("assistant", None),
        ("system", "notice"),
        ("user", None),
        ("user", None),
        ("system", "notice"),
        ("system", "compact_boundary"),
        ("system", "notice"),
        ("system", "notice"),
        ("system", "notice"),
        ("system", "notice"),
        ("system", "notice"),
        ("result", "success"),
    ]
    assert [line["seq"] for line in told] == list(range(len(told)))
    assert {line["session_id"] for line in told} == {OPENED.id}


def test_the_result_has_what_a_script_needs() -> None:
    result = lines(A_RUN)[-1]
    assert {
        key: result[key] for key in ("is_error", "result", "num_turns", "exit_code", "error", "resume", "usage")
    } == {
        "is_error": False,
        "result": "Hi",
        "num_turns": 1,
        "exit_code": 0,
        "error": None,
        "resume": "agent -c 20260101-000000-0123abcd",
        "usage": {
            "input_tokens": 234,
            "cache_read_input_tokens": 896,
            "cache_creation_input_tokens": 0,
            "output_tokens": 45,
        },
    }
    assert result["context"] == {"used": 1130, "window": 700, "compactions": 1}


@pytest.mark.parametrize(
    ("error", "subtype", "code", "retryable"),
    [
        (TemporaryError("busy", status=503), "error_during_execution", 75, True),
        (LimitError("Stopped after 3 steps", kind="max_steps"), "error_max_turns", 6, False),
        (LimitError("3 answers in a row were cut off", kind="cut_answers"), "error_during_execution", 6, False),
        (LimitError("The context cannot be made to fit"), "error_context_overflow", 6, False),
        (Interrupted("Terminated", 143), "interrupted", 143, False),
    ],
)
def test_a_failed_run_ends_with_a_result_too(error: AgentError, subtype: str, code: int, retryable: bool) -> None:
    result = lines([OPENED], error)[-1]
    seen = (result["subtype"], result["is_error"], result["exit_code"], result["error"]["retryable"])
    assert seen == (subtype, True, code, retryable)


def test_fragments_only_when_asked_for() -> None:
    told = lines([OPENED, Streamed(Delta("text", "a"))], partial=True)
    assert told[1]["event"] == {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}
    assert len(lines([OPENED, Streamed(Delta("text", "a"))])) == 2


def test_once_is_the_result_alone() -> None:
    assert [line["type"] for line in lines(A_RUN, once=True)] == ["result"]


def test_calls_become_tool_use_and_broken_arguments_stay_readable() -> None:
    from agent.events import Answered

    calls = [{"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": "l'}}]
    line = answered_line(
        Answered({"role": "assistant", "content": None, "tool_calls": calls}, 3, None, None, True, "m")
    )
    assert line["message"]["content"] == [
        {"type": "tool_use", "id": "c", "name": "bash", "input": {"_raw": '{"command": "l'}}
    ]


def test_a_lone_surrogate_is_still_one_valid_line() -> None:
    assert json.loads(encode_line({"text": "a\ud83d"})) == {"text": "a?"}
