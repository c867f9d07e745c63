"""Numbers in overflow answers: right for any numbers, not only for those of the examples."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.wire.overflow import Numbers, is_overflow, read_numbers, unit_of

SENTENCES = [
    "this model's maximum context length is {limit} tokens. however, your messages resulted in {have} tokens.",
    "prompt is too long: {have} tokens > {limit} maximum",
    "the input token count ({have}) exceeds the maximum number of tokens allowed ({limit}).",
    "input token count is {have} but the model only supports up to {limit}",
    "prompt contains {have} tokens and 0 draft tokens, too large for model with {limit} maximum context length",
    "the prompt is too long: {have}, model maximum context length: {limit}",
    "request ({have} tokens) exceeds the available context size ({limit} tokens), try increasing it",
    "too many input tokens. max input tokens: {limit}, request input token count: {have}",
    "requested tokens ({have}) exceed context window of {limit}",
    "prompt token count of {have} exceeds the limit of {limit}",
    "input length {have} exceeds context length {limit}",
    "the number of input tokens {have} cannot exceed the total tokens limit {limit} for this model",
    "请求上下文超长：当前 {have} tokens 超出模型最大限制 {limit}",
    "`inputs` must have less than {limit} tokens. given: {have}",
    "cannot truncate prompt with n_keep ({have}) >= n_ctx ({limit})",
    "this model's maximum prompt length is {limit} but the request contains {have} tokens.",
]


@given(st.sampled_from(SENTENCES), st.integers(512, 2_000_000), st.integers(1, 3_000_000), st.booleans())
@settings(max_examples=400, deadline=None)
def test_any_numbers_in_a_known_kind_of_sentence(sentence: str, limit: int, more: int, commas: bool) -> None:
    """With and without thousands separators."""
    have = limit + more
    said = sentence.format(have=f"{have:,}" if commas else have, limit=f"{limit:,}" if commas else limit)
    assert is_overflow(said, "")
    assert unit_of(said) == "tokens"
    assert read_numbers(said, {})[:2] == (have, limit)


@given(st.integers(300, 100_000), st.integers(1, 200_000), st.integers(100_000, 200_000))
@settings(max_examples=100, deadline=None)
def test_prompt_and_completion_are_told_apart(limit: int, prompt: int, completion: int) -> None:
    said = (
        f"this model's maximum context length is {limit} tokens. however, you requested {prompt + completion} tokens "
        f"({prompt} in the messages, {completion} in the completion). please reduce the length of the messages or completion."
    )
    assert read_numbers(said, {}) == Numbers(prompt + completion, limit, prompt, completion, False)


def test_typed_numbers_are_believed_before_words() -> None:
    assert read_numbers("request (1 tokens) exceeds 2", {"n_ctx": 2048, "n_prompt_tokens": 4024})[:2] == (4024, 2048)


def test_a_lower_bound_and_an_excess_are_not_sizes() -> None:
    bound = "maximum context length is 8192 tokens. however, you requested 8000 output tokens and your prompt contains at least 193 input tokens"
    assert read_numbers(bound, {}) == Numbers(None, 8192, None, 8000, False)
    assert read_numbers("size limit exceeded by 5000 tokens. the limit for this model is 8000 tokens", {})[:2] == (
        13000,
        8000,
    )


@pytest.mark.parametrize("text, unit", [
    ("request payload size exceeds the limit: 20971520 bytes", "bytes"), ("request entity too large", "bytes"),
    ("expected maxlength: 50000, actual: 52611", "chars"), ("the max input characters is 516096", "chars"),
    ("request body too large for gpt-4o model. max size: 8000 tokens.", "tokens"), ("prompt too long", "tokens"),
])  # fmt: skip
def test_the_unit_is_known(text: str, unit: str) -> None:
    assert unit_of(text) == unit


@given(st.text(max_size=200), st.dictionaries(st.text(max_size=10), st.integers(), max_size=3))
def test_reading_is_total(text: str, typed: dict[str, int]) -> None:
    found = read_numbers(text.lower(), typed)
    assert found.have is None or found.have > 0
