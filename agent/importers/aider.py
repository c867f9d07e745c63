"""aider's chat history: `.aider.chat.history.md`, in the directory it ran in.

Lines that start with "#### " are the person's, "> " the program's, the rest is the answer; "# aider chat started at
TIME" (local time) begins a run. All runs of a file are one conversation, as `aider --restore-chat-history` has it. The
program's lines are left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from agent.importers.conversation import Conversation, local_moment
from agent.importers.source import Source

NAME = ".aider.chat.history.md"
START = "# aider chat started at "
_STARTED = re.compile(re.escape(START) + r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


def read(source: Source) -> Iterator[Conversation]:
    """The one conversation of a history file."""
    conversation = Conversation("aider", cwd=os.path.dirname(os.path.abspath(source.path)))
    at, who, said = "", "", list[str]()
    for line in source.text().split("\n"):
        started = _STARTED.match(line)
        speaker = "start" if started else _speaker(line, who)
        if speaker != who:
            _said(conversation, who, said, at)
            who, said = speaker, []
        if started:
            at = local_moment(started[1])
            conversation.started = conversation.started or at
        said.append(line[5:] if speaker == "user" else line)
    _said(conversation, who, said, at)
    yield conversation.finish()


def _speaker(line: str, before: str) -> str:
    """Whose line this is. An empty line belongs to whoever spoke."""
    if line.startswith("#### ") or line.rstrip() == "####":
        return "user"
    if line.startswith(">"):
        return "program"
    return before if not line.strip() else "answer"


def _said(conversation: Conversation, who: str, said: list[str], at: str) -> None:
    text = "\n".join(said).strip("\n\r ")
    if who == "user":
        conversation.user(text, at)
    elif who == "answer":
        conversation.assistant(text, at)
    elif who == "program" and text:
        conversation.drop("lines of the program", len(text.split("\n")))
