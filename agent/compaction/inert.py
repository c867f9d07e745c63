"""Text that must not act: what looks like a role tag is made harmless, what gives orders to the reader is told.

A summary and a record are made of what others wrote, tools and web pages among them. Pure.
"""

from __future__ import annotations

import re

ROLE_TAGS = re.compile(
    r"<(?=\|[^|\n]{1,40}\|>)|<(?=/?(?:system|assistant|user|human|developer|tool_call|tool_response|function_calls?|s)>)"
    r"|\[(?=/?INST\])|^(?=(?:system|assistant|human|user|developer)\s*:)",
    re.IGNORECASE | re.MULTILINE,
)
_ORDERS = re.compile(
    r"(?:ignore|disregard|forget|override)\b.{0,30}\b(?:previous|prior|above|earlier|all|your)\b.{0,20}"
    r"(?:instruction|prompt|rule|message|context)|system prompt|you (?:are|must) now|new instructions?:"
    r"|<\|[^|\n]{1,40}\|>|</?(?:system|assistant|user|human)>|\[/?INST\]"
    r"|(?:忽略|无视|忘记|忘掉).{0,8}(?:之前|以上|上面|先前|所有|前面).{0,8}(?:指令|指示|提示|规则|要求|内容)|系统提示词",
    re.IGNORECASE,
)


_ORDER_MARKS = (
    *("ignore", "disregard", "forget", "override", "system prompt", "you are now", "you must now", "new instruction"),
    *("<|", "system>", "assistant>", "user>", "human>", "inst]", "忽略", "无视", "忘记", "忘掉", "系统提示词"),
)


def defused(text: str) -> str:
    """The text with role tags and chat-template marks made harmless; everything else verbatim."""
    return ROLE_TAGS.sub(lambda match: {"<": "‹", "[": "〔"}.get(match.group(), "· "), text)


def may_order(text: str) -> bool:
    """Whether a text can hold a line that gives orders: quick, and true of all that do."""
    folded = text.casefold() if text.isascii() else text.casefold().replace("ı", "i").replace("\u0307", "")
    return any(mark in folded for mark in _ORDER_MARKS)


def orders(line: str) -> bool:
    """Whether a line tells its reader what to do: ignore what was said, take another role."""
    return bool(_ORDERS.search(line))
