"""What one command line asks for, besides settings, and whether it makes sense before anything is opened or paid
for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.cli import outfile, prompt
from agent.cli.options import INTRODUCTION
from agent.errors import SessionBusy, SessionError, UsageError
from agent.events import Emit, Notice
from agent.log import library
from agent.log.logfile import counts_of
from agent.messages import Message
from agent.session import Session

if TYPE_CHECKING:
    from agent.cli.structured import Shape

COMPACT = "/compact"
SYSTEM_LIMIT = 1 << 20
"""Bytes of a system prompt's file."""


class Ask(NamedTuple):
    """What one command line asks for, besides settings (`flags`)."""

    words: list[str]
    flags: Mapping[str, Any] = {}
    continue_id: str | None = None
    last: bool = False
    fork: bool = False
    name: str | None = None
    no_session: bool = False
    wait: str | None = None
    system_file: str | None = None
    file: Sequence[str] = ()
    cd: str | None = None
    no_stdin: bool = False
    no_input: bool = False
    pin: Sequence[str] = ()
    output: str | None = None
    schema: str | None = None
    format: str = "text"
    include_partial_messages: bool = False
    quiet: bool = False
    verbose: bool = False
    debug: bool = False

    @classmethod
    def of(cls, words: list[str], values: dict[str, Any]) -> Ask:
        """From the values of the command line; those that are not a field here are settings.

        Raises: UsageError for an unknown output format, or two sessions.
        """
        given = dict(values)
        asked_json, chosen, _ = given.pop("json"), given.pop("output_format"), given.pop("printed")
        form = chosen or ("stream-json" if asked_json else "text")
        if form not in ("text", "json", "stream-json"):
            raise UsageError(f"--output-format is {form!r}, but it takes text, json or stream-json")
        if given["last"] and given["continue_id"] is not None:
            raise UsageError("--last and -c cannot be combined", "Leave one out: -c last is the same as --last")
        if given.pop("no_tools"):
            given["tools"] = ""
        own = {name: given.pop(name) for name in list(given) if name in cls._fields}
        flags = {name: None if value is False else tuple(value) if isinstance(value, list) else value
                 for name, value in given.items()}  # fmt: skip
        return cls(words=list(map(_typed, words)), flags=flags, format=form, **own)

    @property
    def resumes(self) -> str | None:
        """What to continue, or None for a new session."""
        if self.continue_id is not None:
            return self.continue_id
        return "last" if self.last else None


# ---- pure ----


def with_block(message: Message, text: str) -> Message:
    """The message with one more paragraph."""
    content = message["content"]
    more = [*content, {"type": "text", "text": text}] if isinstance(content, list) else f"{content}\n\n{text}"
    return {**message, "content": more}


def is_compact_command(message: Message) -> bool:
    """Whether the whole prompt is `/compact [what to keep in mind]`."""
    content = message.get("content")
    return isinstance(content, str) and content.split(maxsplit=1)[:1] == [COMPACT]


def answered(session: Session) -> bool:
    """Whether a turn of it has come to its end: to an answer that is whole and calls no tool."""
    said = (e for e in session.entries if e["type"] == "message" and e["message"]["role"] == "assistant")
    whole = any(not e.get("interrupted") and not e["message"].get("tool_calls") for e in said)
    return whole or bool(counts_of(session.meta)["compactions"])


def taken(name: str, id: str) -> SessionError:
    return SessionError(f"The name {name!r} belongs to session {id}", f"Continue it: agent -c {name}")


# ---- effects ----


def _typed(word: str) -> str:
    """A word of the command line as UTF-8, whatever the locale took its bytes for."""
    try:
        return os.fsencode(word).decode("utf-8")
    except UnicodeError:
        return word


def check(ask: Ask, message: Message, id: str | None) -> Shape | None:
    """What can be wrong with an ask before anything is opened or paid for; the answer's shape. Raises: UsageError."""
    if ask.output:
        outfile.check(ask.output)
    if not all(text.strip() for text in ask.pin):
        raise UsageError("--pin is empty", "Give it the rule that no compaction may drop")
    if id and ask.no_session:
        raise UsageError("--no-session starts a session that leaves nothing on disk; it cannot continue one")
    if ask.name is not None and ask.no_session:
        raise UsageError("--no-session leaves nothing that could have a name", "Leave out -n, or --no-session")
    if not id and is_compact_command(message):
        raise UsageError("/compact needs an existing session", "Say which: agent -c ID /compact")
    if not id and ask.fork:
        raise UsageError("--fork continues a session in a copy", "Say which: agent -c ID --fork")
    if not ask.schema:
        return None
    from agent.cli.structured import Shape

    return Shape(ask.schema)


def namesake(ask: Ask, store: str) -> str | None:
    """The session that `-n NAME` goes on with: the one of that name where no turn has ended yet, as after an outage.
    None: a new one. Raises: as `free_name`."""
    if ask.name is None or ask.no_session or ask.resumes is not None or ask.fork:
        return None
    found = library.named(store, library.check_name(ask.name))
    if len(found) == 1 and not answered(Session.read(store, found[0])):
        return found[0]
    if found:
        raise taken(ask.name, found[0])
    return None


def go_on(store: str, id: str, name: str) -> Session:
    """Open a `namesake`. Raises: SessionError when another run has it, or has had its answer meanwhile."""
    try:
        session = Session.open(store, id)
    except SessionBusy:
        raise taken(name, id) from None
    if answered(session):
        session.close()
        raise taken(name, id)
    return session


def free_name(store: str, name: str) -> str:
    """`name`, if no session has it. Raises: UsageError for what is no name, SessionError when it is taken."""
    found = library.named(store, library.check_name(name))
    if found:
        raise taken(name, found[0])
    return name


def read_system(path: str) -> str:
    """The text of `--system-file`. Raises: UsageError."""
    try:
        with open(path, "rb") as file:
            raw = file.read(SYSTEM_LIMIT + 1)
    except OSError as problem:
        raise UsageError(f"Cannot read {path}: {problem.strerror}", "Check the path given with --system-file") from None
    if len(raw) > SYSTEM_LIMIT:
        raise UsageError(f"{path} is larger than {SYSTEM_LIMIT >> 20} MB", "A system prompt must fit into the window")
    return prompt.decode(raw)


def read_prompt(ask: Ask, emit: Emit) -> Message:
    """Words, files and standard input as one message. Raises: UsageError."""
    has_prompt = bool([word for word in ask.words if word != "-"] or [name for name in ask.file if name != "-"])
    stdin, silent = None, False
    waits = "-" in [*ask.words, *ask.file]
    if waits and not ask.no_stdin and os.isatty(0):
        emit(Notice("info", "reading_stdin", "reading standard input; Ctrl-D ends it"))
    if not ask.no_stdin:
        stdin, silent = prompt.read_stdin(has_prompt=has_prompt, wait=waits)
    if not ask.words and not ask.file and not (stdin or "").strip():
        raise UsageError(f"There is no prompt\n\n{INTRODUCTION}")
    if silent:
        emit(Notice("info", "silent_stdin", prompt.SILENT_PIPE))
    files, images = [], []
    for path in ask.file:
        name, text, url = ("-", stdin or "", None) if path == "-" else prompt.read_attachment(path)
        if url is not None:
            images.append(url)
        else:
            files.append((name, text or ""))
    for told in _doubts(ask, stdin or "", files):
        emit(told)
    return prompt.compose(ask.words, None if "-" in ask.file else stdin, files, images)


def _doubts(ask: Ask, stdin: str, files: list[tuple[str, str]]) -> Iterator[Notice]:
    """What was given and is perhaps not what was meant."""
    for name, text in (("standard input", stdin), *((name, text) for name, text in files if name != "-")):
        if told := prompt.undecoded(name, text):
            yield Notice("warning", "not_utf8", told)
    stray = next((word for word in ask.words if "." in word and os.path.isfile(word)), None) if ask.file else None
    if stray:
        text = f"{stray!r} is a file here, but part of the prompt: each file needs its own -f"
        yield Notice("warning", "file_in_prompt", text)
