"""What is changed after a refusal: once, only what was sent, and nothing for a refusal that names nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import APIError
from agent.wire import Dialect
from agent.wire.adapt import Change, adapted
from agent.wire.faults import Answer, classify

SENT = {"model": "m", "messages": [], "temperature": 0.2, "max_tokens": 9, "stream": True, "stream_options": {}}


def refusal(text: str, kind: str = "params", parameter: str | None = None) -> APIError:
    return APIError(text, kind=kind, status=400, parameter=parameter)


def test_a_parameter_that_was_not_sent_is_not_dropped() -> None:
    assert adapted(refusal("Unknown parameter: tool_choice", parameter="tool_choice"), Dialect(), SENT) is None


def test_a_parameter_is_dropped_once() -> None:
    error = refusal("Unknown parameter: temperature", parameter="temperature")
    first = adapted(error, Dialect(), SENT)
    assert first == Change(Dialect(drop=("temperature",)), "temperature is left out", lasting=True)
    assert adapted(error, first.dialect, SENT) is None


def test_the_model_the_messages_and_the_stream_stay() -> None:
    for name in ("model", "messages", "stream"):
        assert adapted(refusal(f"Unknown parameter: {name}", parameter=name), Dialect(), SENT) is None


def test_other_kinds_of_failure_change_nothing() -> None:
    for kind in ("auth", "billing", "rate_limit", "overloaded", "content_filter", "media"):
        assert adapted(refusal("roles must alternate; temperature", kind, "temperature"), Dialect(), SENT) is None


NO_TOOLS, FOLD, NO_FORMAT = {"tools": False}, {"system": "fold"}, {"drop": ("response_format",)}
SENTENCES: list[tuple[int, str, dict[str, Any]]] = [
    (500, "tools param requires --jinja flag", NO_TOOLS),
    (500, "Unsupported param: tools", NO_TOOLS),
    (400, "Function calling is not enabled for models/gemma-3-27b-it", NO_TOOLS),
    (400, "Function calling is not supported for this model", NO_TOOLS),
    (400, "Function call is not supported for this model.", NO_TOOLS),
    (400, "Tools are unsupported by this model", NO_TOOLS),
    (400, 'tool_choice="auto" requires --enable-auto-tool-choice', NO_TOOLS),
    (400, "该模型不支持函数调用", NO_TOOLS),
    (400, "当前模型不支持工具", NO_TOOLS),
    (400, "Developer instruction is not enabled for models/gemma-3-27b-it", FOLD),
    (400, "System messages are not supported by this model", FOLD),
    (400, "the role of first message must be user", FOLD),
    (400, "json mode cannot be combined with tool/function calling", NO_FORMAT),
    (400, "Function calling with a response mime type: 'application/json' is unsupported", NO_FORMAT),
    (400, "Json mode response is not supported when enable_thinking is true", NO_FORMAT),
    (400, "The specified schema produces a constraint that has too many states for serving.", NO_FORMAT),
    (400, "The model returned the following errors: `temperature` is deprecated for this model.", {"drop": ("temperature",)}),
    (400, "this model is not supported MaxTokens, please use MaxCompletionTokens", {"output_cap": "max_completion_tokens"}),
    (400, "The role 'tool' of message 3 comes too early", {}),
    (400, "The model `m` has been deprecated and does not answer", {}),
]  # fmt: skip


@pytest.mark.parametrize("code, said, changed", SENTENCES, ids=[said[:50] for _, said, _ in SENTENCES])
def test_a_refusal_that_a_change_would_mend_is_mended(code: int, said: str, changed: dict[str, Any]) -> None:
    """From the words as they come to the dialect that goes out; a look-alike changes nothing."""
    error = classify(Answer(code, {}, json.dumps({"error": {"message": said}}).encode()))
    assert isinstance(error, APIError)
    found = adapted(error, Dialect(), {**SENT, "tools": [], "response_format": {}})
    assert (found.dialect if found else Dialect()) == Dialect()._replace(**changed)


def test_reasoning_that_is_unsupported_is_withheld() -> None:
    error = refusal("'messages.2' : property 'reasoning_content' is unsupported", "tool_history")
    found = adapted(error, Dialect(reasoning="calls"), SENT)
    assert found == Change(Dialect(reasoning="drop"), "reasoning is withheld")


WORDS = ["roles", "must", "alternate", "system", "'system'", "developer", "reasoning_content", "missing", "not", "supported", "tools",
         "content", "null", "temperature", "tool", "call", "id", "length of 9", "does", "support", "unknown", "signature", "thought"]  # fmt: skip


@given(
    st.lists(st.sampled_from(WORDS), max_size=10), st.sampled_from(["params", "tool_history", "bad_request", "server"])
)
@settings(max_examples=300, deadline=None)
def test_changes_come_to_an_end(words: list[str], kind: str) -> None:
    """The same refusal over and over leads to a dialect that does not change any more, soon."""
    error, dialect, seen = refusal(" ".join(words), kind), Dialect(), set()
    for _ in range(12):
        found = adapted(error, dialect, SENT)
        if found is None or found.words in seen:
            return
        dialect = found.dialect
        seen.add(found.words)
    raise AssertionError(f"still changing: {seen}")


PICTURE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
SEEN = {"messages": [PICTURE, {"role": "assistant", "content": "a dot"}, {"role": "user", "content": "and?"}]}
TOLD = "images of earlier prompts are replaced by a note"
IMAGES: list[tuple[int, Any, bool]] = [
    # status, what is said, whether it is of all images
    (400, "This model does not support image input", True),
    (400, "This model does not support images. See https://x/information", True),
    (400, "At most 0 image(s) may be provided in one request.", True),
    (400, "messages[0]: unknown variant `image_url`, expected `text` at line 1 column 40", True),
    (400, "content type image_url is not supported by this model", True),
    (400, "Invalid content type. image_url is only supported by certain models.", True),
    (404, "No endpoints found that support image input", True),
    (400, "Model is not a VLM and cannot process images", True),
    (422, "data did not match any variant of untagged enum ChatCompletionRequestContent", True),
    (422, "messages[0].content: invalid type: sequence, expected a string at line 1 column 90", True),
    (400, "At most 3 images may be provided", False),
    (400, "Too many images in request: 12. Maximum is 10.", False),
    (400, "Image size exceeds the maximum allowed size of 20 MB", False),
    (400, "Failed to download image from https://x.y/z.png", False),
    (400, "Unsupported image format: webp", False),
    (400, "image/bmp is not supported", False),
    (400, "The image format is not supported", False),
]  # fmt: skip


@pytest.mark.parametrize("code, said, all_images", IMAGES, ids=[said[:50] for _, said, _ in IMAGES])
def test_images_that_are_refused_are_told(code: int, said: str, all_images: bool) -> None:
    """For good where the model sees none; a bad or surplus image of the history in this run, and one of the prompt itself
    is the user's."""
    error = classify(Answer(code, {}, json.dumps({"error": {"message": said}}).encode()))
    assert isinstance(error, APIError) and error.kind == "media"
    blind = Dialect(images=False)
    wanted = Change(blind, TOLD) if all_images else Change(blind, f"{TOLD} (in this run)", lasting=False)
    assert adapted(error, Dialect(), SEEN) == wanted
    assert adapted(error, blind, SEEN) is None
    assert adapted(error, Dialect(), {"messages": [PICTURE]}) is None
    assert adapted(error, Dialect(), {"messages": [PICTURE, PICTURE]}) == (wanted if all_images else None)
