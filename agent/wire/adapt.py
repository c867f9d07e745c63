"""What to change about a request that a server refused, so that the same request may pass: a pure table.

Each change is made once, and remembered for the server and the model (see `agent.wire.memory`): a parameter left out,
the other name for the output limit, roles merged, reasoning sent back or withheld, ids rewritten. A refusal that no
change can mend gets None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from agent.errors import APIError
from agent.wire import Dialect, with_images

_OTHER_CAP = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_NEVER_DROPPED = {"model", "messages", "stream"}


class Change(NamedTuple):
    """The dialect to try next, what was changed, in words, and whether it is to be remembered beyond this run."""

    dialect: Dialect
    words: str
    lasting: bool = True


def adapted(error: APIError, dialect: Dialect, sent: Mapping[str, Any]) -> Change | None:
    """What to change, or None; `sent` is the refused request's parameters."""
    if error.kind == "media":
        return _images(f"{error.text} {error.body}".lower(), dialect, sent)
    if error.kind not in ("params", "tool_history", "bad_request", "schema", "server", "not_found"):
        return None
    said = f"{error.text} {error.body}".lower()
    for change in (_schema, _roles, _reasoning, _identifiers, _cap, _content, _tools):
        found = change(said, dialect, sent)
        if found is not None and found.dialect != dialect:
            return found
    return _parameter(error, dialect, sent) if error.kind in ("params", "bad_request") else None


def _images(said: str, dialect: Dialect, sent: Mapping[str, Any]) -> Change | None:
    """An image that was taken by another model stays in the history; one in the last prompt is the user's to leave out.
    What is wrong with one image of the history holds for this run alone."""
    messages = sent.get("messages", ())
    earlier = with_images(messages)
    if not dialect.images or not earlier:
        return None
    told = Change(dialect._replace(images=False), "images of earlier prompts are replaced by a note")
    if _BLIND.search(said) and not _ONE_IMAGE.search(said):
        return told
    last = max((at for at, m in enumerate(messages) if m["role"] == "user"), default=0)
    if isinstance(messages[last].get("content"), list):
        return None
    return told._replace(words=f"{told.words} (in this run)", lasting=False)


_BLIND = re.compile(
    r"(?:not|n't|no) (?:support|accept|process|able|have|a vision|a multi)[^.]{0,60}(?:image|vision|multi.?modal)|"
    r"(?:image|vision|multi.?modal)[^.]{0,40}(?:not (?:supported|enabled|allowed|available)|unsupported)|"
    r"at most 0 image|only supports? text|text.only|not a (?:vision|multi|vlm)|mmproj|不支持.{0,8}(?:图|image|视觉|多模态)|"
    r"cannot process images|image_url is only supported|no endpoints found that support (?:image|vision)|"
    r"unknown variant \W?image|untagged enum \w*content|invalid type: sequence, expected a string"
)
"""The model, or its server, takes no image at all: content that is a list is what holds one."""
_ONE_IMAGE = re.compile(r"\bformats?\b|\bmime|\b(?:png|jpe?g|webp|gif|bmp|svg|tiff|heic|avif)\b")
"""The refusal is of one kind of image."""


def _schema(said: str, dialect: Dialect, sent: Mapping[str, Any]) -> Change | None:
    """A server that cannot hold an answer to this schema seldom names the parameter; it speaks of its machinery."""
    if "response_format" in sent and re.search(
        r"grammar|json.?schema|response.?format|guided.?(?:decoding|json)|structured.?output|outlines|json.?mode|"
        r"response mime.?type|schema produces a constraint",
        said,
    ):
        without = tuple(dict.fromkeys((*dialect.drop, "response_format")))
        return Change(dialect._replace(drop=without), "response_format is left out")
    return None


def _roles(said: str, dialect: Dialect, sent: Mapping[str, Any]) -> Change | None:
    if re.search(r"alternat|successive (?:user|assistant)|interleave|same role|consecutive", said):
        return Change(dialect._replace(alternate=True), "roles alternate")
    if re.search(
        r"(?:developer|system) (?:instruction|message|prompt)s?\b[^.]{0,30}(?:not (?:enabled|supported|allowed)|unsupported)|"
        r"role of (?:the )?first message must be user",
        said,
    ):
        return Change(dialect._replace(system="fold"), "the system message joins the first prompt")
    if "role" in said and re.search(r"does not support|not supported|unsupported|unknown|invalid", said):
        if re.search(r"['\"`]developer['\"`]", said):
            return Change(dialect._replace(system="system"), "the system message has the role system")
        if re.search(r"['\"`]system['\"`]|system (?:role|message)", said):
            return Change(dialect._replace(system="fold"), "the system message joins the first prompt")
    return None


def _reasoning(said: str, dialect: Dialect, sent: Mapping[str, Any]) -> Change | None:
    if "signature" in said and "thought" in said:
        return Change(dialect._replace(signatures=True), "thought signatures are sent back")
    if "reasoning_content" not in said and "reasoning" not in said:
        return None
    if re.search(r"must be (?:passed|provided|included|sent)|missing|required|pass(?:ed)? back", said):
        return Change(dialect._replace(reasoning="calls"), "reasoning is sent back")
    if re.search(
        r"not permitted|extra|unknown|unexpected|unrecognized|unsupported|not (?:allowed|supported)|should not|must not",
        said,
    ):
        return Change(dialect._replace(reasoning="drop"), "reasoning is withheld")
    return None


def _identifiers(said: str, dialect: Dialect, sent: Mapping[str, Any]) -> Change | None:
    if re.search(r"tool.?call.?id.*length of 9|length of 9.*tool.?call", said, re.DOTALL):
        return Change(dialect._replace(ids="alnum9"), "tool call ids have nine letters or digits")
    return None


def _cap(said: str, dialect: Dialect, sent: Mapping[str, Any]) -> Change | None:
    """Azure names no parameter as it is written."""
    if "max_tokens" in sent and re.search(r"use \W?max_?completion_?tokens", said):
        return Change(
            dialect._replace(output_cap="max_completion_tokens"), "max_completion_tokens in place of max_tokens"
        )
    return None


def _content(said: str, dialect: Dialect, sent: Mapping[str, Any]) -> Change | None:
    if not re.search(r"content", said) or "context" in said:
        return None
    if re.search(
        r"content.{0,40}(?:null|none|must be a (?:valid )?string|is required|missing|input should be a valid)", said
    ):
        return Change(dialect._replace(silent_content="empty"), "messages that only call tools have empty content")
    if re.search(r"text content is empty|content.{0,20}empty", said):
        return Change(dialect._replace(silent_content="omit"), "messages that only call tools have no content")
    return None


def _tools(said: str, dialect: Dialect, sent: Mapping[str, Any]) -> Change | None:
    without = re.search(
        r"(?:not|n't) support(?:ed)? (?:the )?(?:tools?|function)|"
        r"(?:tool|function)s?(?: use| calls?| calling)? (?:is|are) (?:not (?:supported|enabled|available|allowed)|unsupported)|"
        r"no endpoints found that support tool|expects? the `?tools=|tool.choice\S* requires|tools param requires|"
        r"unsupported param\w*:? \W*tools\b|不支持 ?(?:函数|工具|function|tool)",
        said,
    )
    return Change(dialect._replace(tools=False), "this model is offered no tools") if without else None


def _parameter(error: APIError, dialect: Dialect, sent: Mapping[str, Any]) -> Change | None:
    """Leave out the parameter that the refusal names, if it was sent at all."""
    name = error.parameter
    if name is None or name in dialect.drop or name in _NEVER_DROPPED or name not in sent:
        return None
    other = _OTHER_CAP.get(name)
    if other and name == dialect.output_cap:
        if error.kind == "params":
            return Change(dialect._replace(output_cap=other), f"{other} in place of {name}")
        return None
    if name == "tools":
        return Change(dialect._replace(tools=False), "this model is offered no tools")
    return Change(dialect._replace(drop=(*dialect.drop, name)), f"{name} is left out")
