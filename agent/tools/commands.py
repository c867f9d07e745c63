"""Shell text read as simple commands, for rules and for the short list of what is never run.

Not a shell: it finds the commands that a text may run (also inside `$(...)`, backticks, `sh -c '...'`, `eval`, and
behind `env`, `sudo`, `xargs` and their like) and says whether it understood all of it. An *allow* needs a text that is
plain (a pipeline of simple commands, nothing expanded or redirected); a *deny* looks at every command found. What this
cannot see, the sandbox stops: rules are about words, confinement is about effects.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_WRAPPERS = frozenset({
    "env", "sudo", "doas", "nohup", "time", "command", "builtin", "exec", "nice", "ionice", "timeout", "xargs",
    "stdbuf", "setsid", "busybox", "find", "chroot", "unshare", "strace", "watch", "parallel", "then", "do",
    "else", "if", "while", "until", "!", "{",
})  # fmt: skip
_SHELLS = frozenset({
    "sh", "bash", "dash", "zsh", "ksh", "ash", "fish",
})  # fmt: skip
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_MOST_DEPTH = 5
_NEVER = frozenset({
    "mkfs", "mkswap", "wipefs", "fdisk", "sfdisk", "parted", "shutdown", "reboot", "halt", "poweroff",
    "telinit", "insmod", "rmmod", "modprobe", "kexec",
})  # fmt: skip
_DEVICE = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|mapper|dm-|md|loop)")
_FORK_BOMB = re.compile(
    r"(?<![\w:.-])([\w:.-]{1,64})\s{0,9}\(\)\s{0,9}\{[^}]{0,200}?(?<![\w-])\1\s{0,9}\|\s{0,9}\1\s{0,9}&"
)
_ORDINARY = re.compile(r"""[^ \t\n;&|()<>'"\\$`#]+""")
_QUOTED = re.compile(r"""[^"\\$`]+""")
_TOP = frozenset({
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/sbin", "/srv",
    "/sys", "/usr", "/var", "/Users", "/System", "/Library", "/Applications", "~", "$HOME", "${HOME}",
})  # fmt: skip


class Command(NamedTuple):
    """A simple command: its words without quotes, and the targets of its redirections."""

    words: tuple[str, ...]
    targets: tuple[str, ...] = ()


class Script(NamedTuple):
    """What a text may run. `plain`: it is a pipeline of simple commands and nothing else. `certain`: all of it was
    understood."""

    commands: list[Command]
    plain: bool
    certain: bool


def parse(text: str, depth: int = 0) -> Script:
    """Read shell text. Total: what is not understood makes the script neither plain nor certain."""
    reader = _Reader(text)
    reader.read()
    commands = [command for command in reader.commands if command.words or command.targets]
    inner = [text for command in commands for text in _nested(command)] + reader.nested
    certain = reader.certain and not (inner and depth >= _MOST_DEPTH)
    for nested in inner if depth < _MOST_DEPTH else []:
        script = parse(nested, depth + 1)
        commands += script.commands
        certain = certain and script.certain
    return Script(commands, reader.plain and not inner and bool(commands), certain)


def candidates(command: Command) -> list[tuple[str, ...]]:
    """The command lines that a command may turn into: itself without assignments, and what a wrapper would run. The
    first word of each is a bare program name."""
    words = command.words
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    if not words:
        return []
    starts = range(len(words)) if _base(words[0]) in _WRAPPERS else range(1)
    return [(_base(words[start]), *words[start + 1 :]) for start in starts]


def never(text: str) -> str:
    """Why `text` is never run, or "": it would destroy the machine or the home directory, or stop the machine."""
    if _FORK_BOMB.search(text):
        return "it is a fork bomb"
    for command in parse(text).commands:
        if any(_DEVICE.match(target) for target in command.targets):
            return "it writes over a disk"
        for words in candidates(command):
            if why := _never_command(words):
                return why
    return ""


def _never_command(words: tuple[str, ...]) -> str:
    program, rest = words[0], words[1:]
    if program in _NEVER or program.startswith("mkfs."):
        return f"{program} is never run"
    if program in ("init", "systemctl") and set(rest) & {"0", "6", "poweroff", "reboot", "halt", "kexec"}:
        return "it stops the machine"
    if program in ("dd", "shred", "tee") and any(_DEVICE.match(word.removeprefix("of=")) for word in rest):
        return "it writes over a disk"
    if program in ("rm", "chmod", "chown", "chgrp") and _recursive(rest) and any(map(_is_top, rest)):
        return f"{program} over a whole system or home directory"
    if program == "rm" and "--no-preserve-root" in rest:
        return "rm --no-preserve-root is never run"
    if program == "kill" and rest and rest[-1] == "-1":
        return "it kills every process of the user"
    return ""


def _recursive(words: tuple[str, ...]) -> bool:
    return any(word == "--recursive" or re.match(r"-[a-zA-Z]*[rR]", word) for word in words)


def _is_top(word: str) -> bool:
    squeezed = re.sub(r"/+(\./+)*", "/", word)
    return squeezed in _TOP or (re.sub(r"/(\.|\*)?$", "", squeezed) or "/") in _TOP


def _base(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def _nested(command: Command) -> list[str]:
    """Shell text among the words of a command: after `sh -c`, or what `eval` joins."""
    found = []
    for words in candidates(command):
        if words[0] == "eval":
            found.append(" ".join(words[1:]))
        if words[0] in _SHELLS:
            flags = [i for i, word in enumerate(words) if re.match(r"-[a-z]*c", word)]
            found += [words[i + 1] for i in flags[:1] if i + 1 < len(words)]
    return found


class _Reader:
    """One pass over shell text; `read` fills `commands`, `nested`, `plain` and `certain`."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\\\n", "")
        self.at = 0
        self.commands: list[Command] = []
        self.nested: list[str] = []
        self.plain = True
        self.certain = True
        self._words: list[str] = []
        self._targets: list[str] = []
        self._word: list[str] | None = None
        self._redirecting = False

    def read(self) -> None:
        while self.at < len(self.text):
            self._run(_ORDINARY)
            character = self.text[self.at : self.at + 1]
            self.at += 1
            if character:
                self._step(character)
        self._end_command()

    def _run(self, kind: re.Pattern[str]) -> None:
        """Take characters that mean only themselves, all at once."""
        found = kind.match(self.text, self.at)
        if found:
            self._add(found[0])
            self.at = found.end()

    def _step(self, c: str) -> None:
        if c in " \t":
            self._end_word()
        elif c in "\n;&|()":
            self._operator(c)
        elif c in "<>":
            self.plain = False
            self._end_word()
            self._redirecting = True
        elif c == "'":
            self._add(self._until("'"))
        elif c == '"':
            self._double()
        elif c == "\\":
            self._add(self.text[self.at : self.at + 1])
            self.at += 1
        elif c in "$`":
            self._expansion(c)
        elif c == "#" and self._word is None:
            self.plain = False
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        else:
            self._add(c)

    def _operator(self, c: str) -> None:
        if self._redirecting and c in "&|" and self._word is None:  # >&2 and >|file
            return
        if self._redirecting and c == "(":  # <(command)
            self._redirecting = False
        following = self.text[self.at : self.at + 1]
        if c != "|" or following in ("|", "&") or (not self._words and self._word is None):
            self.plain = False
        self._end_command()

    def _double(self) -> None:
        self._add("")
        while self.at < len(self.text):
            self._run(_QUOTED)
            c = self.text[self.at : self.at + 1]
            self.at += 1
            if c == '"':
                return
            if c == "\\" and self.text[self.at : self.at + 1] in ('"', "\\", "$", "`"):
                self._add(self.text[self.at])
                self.at += 1
            elif c in ("$", "`"):
                self._expansion(c)
            else:
                self._add(c)
        self.plain = self.certain = False

    def _expansion(self, c: str) -> None:
        self.plain = False
        before = [word for word in self._words if not _ASSIGNMENT.match(word) and _base(word) not in _WRAPPERS]
        if not before and not self._redirecting:
            self.certain = False  # the program's own name may be computed
        following = self.text[self.at : self.at + 1]
        if c == "`":
            self.nested.append(self._until("`"))
            self._add("`")
        elif following == "(":
            self.at += 1
            self.nested.append(self._balanced())
            self._add("$()")
        else:
            self.certain = self.certain and following != "'"
            self._add("$")

    def _balanced(self) -> str:
        start, depth, quote = self.at, 1, ""
        while self.at < len(self.text):
            c = self.text[self.at]
            self.at += 1
            if c == "\\" and quote != "'":
                self.at += 1
            elif quote:
                quote = "" if c == quote else quote
            elif c in "'\"":
                quote = c
            else:
                depth += (c == "(") - (c == ")")
                if depth == 0:
                    return self.text[start : self.at - 1]
        self.plain = self.certain = False
        return self.text[start:]

    def _until(self, end: str) -> str:
        stop = self.text.find(end, self.at)
        if stop < 0:
            self.plain = self.certain = False
            stop = len(self.text)
        found = self.text[self.at : stop]
        self.at = stop + 1
        return found

    def _add(self, piece: str) -> None:
        if self._word is None:
            self._word = []
        self._word.append(piece)

    def _end_word(self) -> None:
        if self._word is None:
            return
        (self._targets if self._redirecting else self._words).append("".join(self._word))
        self._redirecting = False
        self._word = None

    def _end_command(self) -> None:
        self._end_word()
        self.commands.append(Command(tuple(self._words), tuple(self._targets)))
        self._words, self._targets, self._redirecting = [], [], False
