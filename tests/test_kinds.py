"""Which kind of failure a sentence is: wordings, languages and shapes that the corpora do not hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from wiring import body_of, rows

from agent.wire.faults import KINDS, Answer, classify
from agent.wire.kinds import kind_of
from agent.wire.refusal import read_body

VARIANTS: list[tuple[Any, int, str, int | None, int | None]] = [
    # body, status, kind, have, limit
    ("Your prompt has 12,345 tokens but this model accepts at most 8,192 tokens", 400, "overflow", 12345, 8192),
    ({"error": {"message": "prompt contains 9000 tokens, which exceeds the maximum of 4096"}}, 400, "overflow", 9000, 4096),
    ({"message": "Context window exceeded: 70000 > 65536"}, 500, "overflow", 70000, 65536),
    ({"detail": [{"msg": "the conversation is too long: 40,100 tokens (limit 32,768)"}]}, 422, "overflow", 40100, 32768),
    ({"error": "context length exceeded (n_ctx=4096, n_tokens=5000)"}, 500, "overflow", 5000, 4096),
    ({"error": {"message": "bad", "type": "exceed_context_size_error", "n_prompt_tokens": 900, "n_ctx": 512}}, 400,
     "overflow", 900, 512),
    ([{"error": {"message": "The input token count (40000) exceeds the maximum number of tokens allowed (32768)."}}], 400,
     "overflow", 40000, 32768),
    ({"fault": {"faultstring": "Input is too long for requested model"}}, 502, "overflow", None, None),
    ({"errors": [{"detail": "maximum context length of model X-7B-32k is 32768, your request needs 40000 tokens"}]}, 400,
     "overflow", 40000, 32768),
    ({"err": {"text": "Die Eingabe überschreitet das Kontextfenster von 8192 Tokens"}}, 400, "overflow", None, 8192),
    ({"error": {"message": "La entrada supera el límite de contexto del modelo"}}, 400, "overflow", None, None),
    ({"error": {"message": "L'entrée dépasse la longueur de contexte"}}, 400, "overflow", None, None),
    ({"error": {"message": "输入内容过长，超过模型最大上下文 32768 tokens，当前 45000 tokens"}}, 400, "overflow", 45000, 32768),
    ({"error": {"message": "トークン数が最大コンテキスト長を超えています"}}, 400, "overflow", None, None),
    ({"error": {"message": "입력이 컨텍스트 길이를 초과했습니다"}}, 400, "overflow", None, None),
    ({"error": {"message": "Превышен размер контекста модели"}}, 400, "overflow", None, None),
    ({"error": {"code": "prompt_too_long", "message": "nope"}}, 400, "overflow", None, None),
    ({"error": {"message": json.dumps({"error": {"message": json.dumps({"message": "prompt is too long: 5 tokens > 4 maximum"})}})}},
     400, "overflow", 5, 4),
    ({"error": {"message": "You requested 5000 completion tokens, but this model allows at most 4096 output tokens"}}, 400,
     "output_cap", None, 4096),
    ({"error": {"message": "max_completion_tokens is too large: 200000. This model supports at most 128000 completion tokens"}},
     400, "output_cap", None, 128000),
    ({"error": {"message": "Token rate limit exceeded: 90000 tokens per minute, try again in 2m3.5s"}}, 429, "rate_limit", None, None),
    ({"error": {"message": "Request too large for gpt-x on tokens per min (TPM): Limit 10000, Requested 12000"}}, 429,
     "rate_limit_size", None, None),
    ({"error": {"message": "Monthly quota exceeded for this key"}}, 429, "quota", None, None),
    ({"error": {"message": "您的余额不足"}}, 403, "billing", None, None),
    ({"error": {"message": "Payment required"}}, 402, "billing", None, None),
    ({"error": {"message": "Invalid API key"}}, 401, "auth", None, None),
    ({"message": "Forbidden for your region"}, 403, "permission", None, None),
    ({"error": {"message": "The model foo was not found"}}, 404, "not_found", None, None),
    ({"error": {"message": "Unrecognized request argument supplied: stream_options"}}, 400, "params", None, None),
    ({"detail": [{"type": "extra_forbidden", "loc": ["body", "temperature"], "msg": "Extra inputs are not permitted"}]}, 422,
     "params", None, None),
    ({"error": {"message": "Your request was flagged by our safety system"}}, 400, "content_filter", None, None),
    ({"error": {"message": "Service is at capacity"}}, 503, "overloaded", None, None),
    ("<html><head><title>504 Gateway Time-out</title></head></html>", 504, "html", None, None),
    ("upstream connect error or disconnect/reset before headers", 503, "overloaded", None, None),
    ({"error": {"message": "messages[1].content: image exceeds 20 MB"}}, 400, "media", None, None),
    ({"error": {"message": "request body exceeds 4194304 bytes"}}, 413, "overflow", None, None),
    ({"error": {"message": "something else entirely"}}, 400, "bad_request", None, None),
    (b"\xff\xfe\x00garbage", 500, "server", None, None),
]  # fmt: skip


@pytest.mark.parametrize("body, code, kind, have, limit", VARIANTS)
def test_variants_of_each_kind(body: Any, code: int, kind: str, have: int | None, limit: int | None) -> None:
    """Other wordings, languages and shapes than the corpus has."""
    data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    error = classify(Answer(code, {}, data))
    found = (error.kind, getattr(error, "have", None), getattr(error, "limit", None))
    assert found == (kind, have, limit)


@pytest.mark.parametrize("row", rows("variants"), ids=lambda row: f"{row['kind']}-{str(row['body'])[-40:]}")
def test_sentences_of_other_servers(row: dict[str, Any]) -> None:
    """Sentences known from elsewhere, that no row of the corpora holds."""
    error = classify(Answer(row["status"], {}, body_of(row)))
    found = (error.kind, getattr(error, "have", None), getattr(error, "limit", None))
    assert found == (row["kind"], row["have"], row["limit"])


TAIL = "Received Model Group=m\nAvailable Model Group Fallbacks=None LiteLLM Retried: 2 times, LiteLLM Max Retries: 2"
WRAPPERS: dict[str, Callable[[int, Any], tuple[int, Any]]] = {
    "a Python client's repr": lambda code, body: (code, {"detail": f"Error code: {code} - {body!r}"}),
    "the repr in LiteLLM's words": lambda code, body: (
        code, {"error": {"message": f"litellm.BadRequestError: OpenAIException - Error code: {code} - {body!r}. {TAIL}"}}
    ),
    "JSON in LiteLLM's words": lambda code, body: (
        code, {"error": {"message": f"litellm.BadRequestError: AnthropicException - {json.dumps(body)}. {TAIL}"}}
    ),
    "new-api": lambda code, body: (
        code, {"error": {"message": f"bad response status code {code}, body: {json.dumps(body)} (request id: 202506201539WqeN)",
                         "type": "new_api_error", "code": "bad_response_status_code"}}
    ),
    "Spring": lambda code, body: (
        max(code, 500), {"timestamp": "2025-06-20T15:39:55.894+00:00", "status": max(code, 500), "error": "Internal Server Error",
              "message": f"HTTP {code} - {json.dumps(body)}", "path": "/v1/chat/completions"}
    ),
    "bytes": lambda code, body: (code, {"error": {"message": f"AnthropicException - {json.dumps(body).encode()!r}"}}),
}  # fmt: skip


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapped_refusal_says_what_it_says_unwrapped(wrapper: str) -> None:
    """Every row of the corpora inside what gateways put around it: the same kind, the same numbers."""
    changed = []
    for row in (*rows("overflow"), *rows("lookalikes"), *rows("variants")):
        if row["status"] == 200 or row.get("in_stream") or not isinstance(row["body"], (dict, list)):
            continue
        code, body = WRAPPERS[wrapper](row["status"], row["body"])
        found = [
            classify(Answer(code, {}, json.dumps(each).encode()))
            for code, each in ((row["status"], row["body"]), (code, body))
        ]
        bare, wrapped = ((e.kind, getattr(e, "have", None), getattr(e, "limit", None)) for e in found)
        changed += [(row["body"], bare, wrapped)] if bare != wrapped else []
    assert changed == []


@pytest.mark.parametrize("status", [None, 200, 204, *range(400, 430), *range(500, 530)])
def test_every_status_without_a_word_is_a_kind(status: int | None) -> None:
    assert kind_of(status, read_body(b"")) in KINDS
    assert kind_of(status, read_body(b"something happened")) in KINDS
