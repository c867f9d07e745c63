"""Which calls run, which are asked about, and which are refused: rules over tool names and arguments.

    bash                 the whole tool
    bash(git status)     exactly this command
    bash(git log *)      a command that begins with these words (also alone); `git log:*` means the same
    write_file(src/**)   a path: `*` stays in one directory, `**` does not; relative to the working directory
    net                  in allow: tool processes may use the network

Deny wins over everything; the short list of commands that are never run wins over allow and --yolo. An allow rule for
bash matches only plain text: every command of a pipeline must match some rule, and operators, redirections,
expansions and substitutions never do. Where no rule speaks: file tools are allowed (they keep to the roots by
themselves), bash runs where the operating system confines it and asks where nothing does; --yolo turns ask into allow.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from agent.errors import UsageError
from agent.tools import commands, paths

TOOL_NAMES = ("read_file", "write_file", "edit_file", "bash", "recall")
_ASKS_UNCONFINED = "bash"


class Rule(NamedTuple):
    """`pattern` None covers the whole tool; `text` is the rule as the user wrote it."""

    tool: str
    pattern: str | None
    text: str


class Decision(NamedTuple):
    """`verdict` is "allow", "ask" or "deny"; `reason` one clause that says which rule decided."""

    verdict: str
    reason: str


def parse_rule(text: str) -> Rule:
    """Read one rule. Raises: `UsageError` for a form or a tool that does not exist: a mistyped deny denies nothing."""
    found = re.fullmatch(r"\s*([\w*-]+)\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    if not found or (found[1] not in (*TOOL_NAMES, "net", "*")):
        raise UsageError(
            f"{text!r} is not a rule", f"Write a tool or tool(pattern), for example bash(git *); tools: {_names()}."
        )
    pattern = found[2].strip() if found[2] is not None else None
    return Rule(found[1], None if pattern in (None, "", "*", "**") else pattern, text.strip())


def _names() -> str:
    return ", ".join((*TOOL_NAMES, "net"))


class Permissions:
    """The rules of one run. `sandboxed`: the operating system confines tool processes, or a function that finds out
    when a command is to run. `cwd` is what relative path patterns are relative to.

    Raises: `UsageError` for a rule that cannot be read.
    """

    def __init__(
        self,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        yolo: bool = False,
        sandboxed: bool | Callable[[], bool] = False,
        cwd: str = ".",
    ) -> None:
        self.yolo, self.sandboxed, self.cwd = yolo, sandboxed, cwd
        self._allow = [parse_rule(text) for text in allow]
        self._deny = [parse_rule(text) for text in deny]
        self.granted: set[tuple[str, str]] = set()
        """What the user answered "always" to: tool and subject."""

    @property
    def allows_net(self) -> bool:
        """Whether `net` is allowed and not denied."""
        return _has_net(self._allow) and not _has_net(self._deny)

    def decide(self, name: str, args: dict[str, Any]) -> Decision:
        """What to do with a call. `args` are the parsed arguments."""
        for rule in self._deny:
            if self._denies(rule, name, args):
                return Decision("deny", f"the rule deny {rule.text}")
        if name == "bash" and (why := commands.never(args["command"])):
            return Decision("deny", why)
        confined = name != _ASKS_UNCONFINED or (self.sandboxed() if callable(self.sandboxed) else self.sandboxed)
        if self._allowed(name, args) or (name, subject(args)) in self.granted:
            return Decision("allow", "a rule")
        if confined:
            return Decision("allow", "the default")
        if self.yolo:
            return Decision("allow", "--yolo")
        return Decision("ask", "nothing confines commands in this run")

    def grant(self, name: str, args: dict[str, Any]) -> None:
        """Remember "always": this very command, or this very file."""
        self.granted.add((name, subject(args)))

    def _denies(self, rule: Rule, name: str, args: dict[str, Any]) -> bool:
        if rule.tool not in (name, "*"):
            return False
        if rule.pattern is None:
            return True
        if name == "bash":
            return denies_command(rule.pattern, args["command"])
        return any(matches_path(rule.pattern, path, self.cwd) for path in _both(args.get("path"), self.cwd))

    def _allowed(self, name: str, args: dict[str, Any]) -> bool:
        rules = [rule for rule in self._allow if rule.tool in (name, "*")]
        if any(rule.pattern is None for rule in rules):
            return True
        patterns = [rule.pattern for rule in rules if rule.pattern]
        if name == "bash":
            return allows_command(patterns, args["command"])
        resolved = _both(args.get("path"), self.cwd)[-1:]
        return any(matches_path(pattern, path, self.cwd) for pattern in patterns for path in resolved)


def _has_net(rules: Iterable[Rule]) -> bool:
    return any(rule.tool == "net" for rule in rules)


def subject(args: dict[str, Any]) -> str:
    """What a call is about: its command, its path, its query."""
    return next((str(args[key]) for key in ("command", "path", "query") if key in args), "")


def allows_command(patterns: Sequence[str], text: str) -> bool:
    """Whether every command of a plain pipeline matches one of the patterns."""
    script = commands.parse(text)
    if not script.plain:
        return False
    return all(any(matches_words(pattern, command.words) for pattern in patterns) for command in script.commands)


def denies_command(pattern: str, text: str) -> bool:
    """Whether some command in `text` matches; where the text is not fully understood, whether the pattern's words
    stand in it anywhere."""
    script = commands.parse(text)
    found = (words for command in script.commands for words in commands.candidates(command))
    if any(matches_words(pattern, words) for words in found):
        return True
    if script.certain:
        return False
    words = [re.escape(word).replace(r"\*", r"\S*") for word in _words(pattern) if word != "*"]
    return bool(words) and re.search(r"(?<![\w-])" + r"\W+".join(words) + r"(?![\w-])", text) is not None


def matches_words(pattern: str, words: Sequence[str]) -> bool:
    """Word by word, `*` inside a word as in file names; a last word `*` stands for any number of words."""
    wanted = _words(pattern)
    if wanted and wanted[-1] == "*":
        wanted = wanted[:-1]
        words = words[: len(wanted)]
    return len(words) == len(wanted) and all(fnmatchcase(word, each) for word, each in zip(words, wanted, strict=True))


def _words(pattern: str) -> list[str]:
    if pattern.endswith(":*"):
        pattern = pattern[:-2] + " *"
    try:
        return shlex.split(pattern)
    except ValueError:
        return pattern.split()


def matches_path(pattern: str, path: str, cwd: str) -> bool:
    """Whether the absolute `path` matches: `*` and `?` within one name, `**` across directories."""
    base = pattern if os.path.isabs(pattern) else os.path.join(os.path.realpath(cwd), os.path.expanduser(pattern))
    pieces = re.split(r"(\*\*/?|\*|\?)", os.path.normpath(base))
    special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    expression = "".join(special.get(piece) or re.escape(piece) for piece in pieces)
    return re.fullmatch(expression, path, re.DOTALL) is not None


def _both(path: Any, cwd: str) -> list[str]:
    """A path as written and as it resolves: a link must not lead around a rule."""
    if not isinstance(path, str) or not paths.is_path(path):
        return []
    full = os.path.normpath(os.path.join(os.path.realpath(cwd), os.path.expanduser(path)))
    return [full, os.path.realpath(full)]
