"""Tool calls that a server left in the text of an answer: taken where it says that there are some, else told.

A call in text is run only when the server's own finish reason says that a tool is called, it is written in one known form,
and the text is nothing else. What else looks like a call, in the marks of some model or as JSON, is remarked on and never
run. Code, in a fence or in backticks, shows calls and makes none; a fence that is the whole answer shows nothing to anybody.

Does not know: streams, notices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from agent.wire.sse import loads
from agent.wire.toolcalls import CallsBeingWritten

CALLED = {"tool_calls", "tool_call", "function_call", "tool_use"}
"""Finish reasons of an answer that calls tools."""
_TEXT_CALL = r"(?s)<tool_call>\s*(\{.*?\})\s*</tool_call>"
_MARKS = (
    r"<tool_call>\s*(?:\{|<function=|[\w.-]{1,64}\s*<arg_key>)|"  # Hermes, Qwen, GLM
    r"<function=[\w.-]+>\s*(?:\{|<parameter=|</function>)|"  # Llama 3, Qwen coder
    r"<[｜|](?:tool[▁_ ]calls?[▁_ ]begin|DSML[｜|]\w+)|"  # DeepSeek
    r"\[TOOL_CALLS\]\s*(?:[\[{]|[\w.-]{1,64}\s*(?:\{|\[(?:ARGS|CALL_ID)\]))|"  # Mistral
    r"<\|python_tag\|>\s*(?:\{|\w+\.call\()|"  # Llama 3.1
    r"<\|tool_calls?(?:_section)?_begin\|>|<tool_calls_section_begin>|"  # Kimi
    r"<minimax:tool_call>|<function_calls>\s*<invoke|<invoke name=\"[\w.-]+\">\s*<parameter|"  # MiniMax, Claude
    r"<\|channel\|>\s*\w+\s+to=|\bto=functions\.[\w.-]{1,64}\s*(?:<\||\w{0,9}\s*\{)"  # gpt-oss
)
_FENCE = r"[ \t>]{0,20}(`{3,}(?=[^`]*$)|~{3,})"
_FIRST = r"""(?:["'](?:type|id)["']\s*:\s*["'][^"']*["'],\s*)*"""
_NAME, _ARGUMENTS = (
    r"""["'](?:name|tool|tool_name|function)["']\s*:\s*""",
    r"""["'](?:arguments|parameters|args|input)["']\s*:""",
)


def calls_in(text: str) -> tuple[str, list[dict[str, Any]]]:
    """The calls of a text that is nothing but calls, and no text; otherwise the text and no calls."""
    if not text.strip() or re.sub(_TEXT_CALL, "", text).strip():
        return text, []
    writing = CallsBeingWritten()
    for at, written in enumerate(re.findall(_TEXT_CALL, text)):
        call = loads(written.encode())
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return text, []
        arguments = call.get("arguments", call.get("parameters"))
        writing.add({"index": at, "function": {"name": call["name"], "arguments": arguments}})
    return "", writing.finish()


def remark_on(message: Mapping[str, Any], reason: str | None, tools: Iterable[Mapping[str, Any]]) -> str:
    """What to say of an answer that was offered these tools, meant to call one and calls none; "" for any other. A verb
    phrase: the model is its subject."""
    text = message.get("content")
    if not isinstance(text, str) or not text.strip() or message.get("tool_calls"):
        return ""
    names = [tool["function"]["name"] for tool in tools]
    if names and _is_left(text, names):
        return "wrote tool calls as plain text, so they were not run; start its server with a chat template that supports tools"
    if names and (reason or "").lower() in CALLED:
        return "stopped as if to call a tool but sent no call; nothing was run"
    return ""


def _is_left(text: str, names: list[str]) -> bool:
    """Whether the text has a call in it, or is one."""
    if not re.search(r"[<\[{]", text):
        return False
    bare = _uncoded(text)
    named = "|".join(re.escape(name) for name in names)
    stated = re.search(rf"""[{{,]\s*{_NAME}["'](?:{named})["']""", bare)
    if (re.search(_MARKS, bare) and re.search(rf"\b(?:{named})\b", bare)) or (stated and re.search(_ARGUMENTS, bare)):
        return True
    whole = re.sub(r"^```\w*\s*", "", text.strip()).removesuffix("```")
    called = re.match(rf"""\[?\s*\{{\s*{_FIRST}{_NAME}["'](?P<known>{named})?""", whole)
    given = _ARGUMENTS if called and called["known"] else r"""["']arguments["']\s*:\s*["']?\{"""
    return "```" not in whole and bool(called and re.search(given, whole))


def _uncoded(text: str) -> str:
    """The text without its code: fences, the last perhaps never closed, and a backtick for each span in backticks."""
    kept: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = re.match(_FENCE, line)
        if mark and not fence:
            fence = mark[1]
        elif fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
        else:
            kept.append(_unspanned(line) if "`" in line else line)
    return "\n".join(kept)


def _unspanned(line: str) -> str:
    """A run of backticks begins a span that ends with the next run of the same length, or nothing."""
    parts = re.split("(`+)", line)
    kept: list[str] = []
    at = 0
    while at < len(parts):
        kept.append(parts[at][:1] if at % 2 else parts[at])
        if at % 2:
            try:
                at = parts.index(parts[at], at + 1)
            except ValueError:
                pass
        at += 1
    return "".join(kept)
