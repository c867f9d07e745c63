"""Shell text read as commands: what a rule may trust, what a deny must find, what never runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools import commands

PLAIN = [
    ("git status", [("git", "status")]),
    ("git log --format='%h %s' | head -n 5", [("git", "log", "--format=%h %s"), ("head", "-n", "5")]),
    ('grep "a b" c\\ d', [("grep", "a b", "c d")]),
    ("  ls\t-l  ", [("ls", "-l")]),
    ("ls ''", [("ls", "")]),
]


@pytest.mark.parametrize(("text", "words"), PLAIN)
def test_pipelines_of_simple_commands_are_plain(text, words):
    script = commands.parse(text)
    assert (script.plain, script.certain) == (True, True)
    assert [command.words for command in script.commands] == words


NOT_PLAIN = [
    "a && b",
    "a || b",
    "a; b",
    "a &",
    "a\nb",
    "(a)",
    "a > f",
    "a < f",
    "a >> f",
    "a 2>&1",
    "a |& b",
    "a <<E\nx\nE",
    "a $(b)",
    "a `b`",
    "a $HOME",
    'a "$HOME"',
    'a "$(b)"',
    "a ${x:-b}",
    "a $'b'",
    "a <(b)",
    "a 'b",
    'a "b',
    "a # b",
    "sh -c 'a'",
    "eval a",
    "| a",
    "",
    "a;",
    "a \\\n&& b",
    "bash -lc 'a; b'",
]


@pytest.mark.parametrize("text", NOT_PLAIN)
def test_operators_expansions_and_redirections_are_not_plain(text):
    assert not commands.parse(text).plain


HIDES_RM = [
    "ls && rm -rf x",
    "ls;rm -rf x",
    "ls\nrm -rf x",
    "ls|rm -rf x",
    "(rm -rf x)",
    "echo $(rm -rf x)",
    "echo `rm -rf x`",
    'echo "$(rm -rf x)"',
    "sh -c 'rm -rf x'",
    'bash -lc "rm -rf x"',
    "eval 'rm -rf x'",
    "env A=1 rm -rf x",
    "A=1 rm -rf x",
    "sudo -n rm -rf x",
    "/bin/rm -rf x",
    "\\rm -rf x",
    "r''m -rf x",
    "timeout 5 rm -rf x",
    "find . -exec rm -rf x ;",
    "echo x | xargs rm -rf x",
    "if true; then rm -rf x; fi",
    "nohup rm -rf x &",
    "{ rm -rf x; }",
    "! rm -rf x",
    "sh -c \"sh -c 'rm -rf x'\"",
    "cat <(rm -rf x)",
    "echo $(echo $(rm -rf x))",
    "rm \\\n -rf x",
    "ls & rm -rf x",
    "ls > f; rm -rf x",
    "ls 2>&1 | rm -rf x",
    "while rm -rf x; do :; done",
]


@pytest.mark.parametrize("text", HIDES_RM)
def test_a_command_is_found_wherever_it_stands(text):
    found = [words for command in commands.parse(text).commands for words in commands.candidates(command)]
    assert ("rm", "-rf", "x") in found or ("rm", "-rf", "x", "}") in found, found


NEVER = [
    "rm -rf /",
    "rm -rf /*",
    "rm -fr ~",
    "rm -r -f $HOME",
    'rm -rf "$HOME"/',
    "rm -rf --no-preserve-root /",
    "rm -Rf /usr/",
    "cd / && rm -rf /.",
    "sudo rm -rf //",
    "rm --recursive --force /etc",
    "mkfs.ext4 /dev/sda1",
    "dd if=/dev/zero of=/dev/sda",
    "echo x > /dev/nvme0n1",
    "shutdown -h now",
    "reboot",
    "systemctl poweroff",
    "init 0",
    ":(){ :|:& };:",
    "f() { f | f & }; f",
    "chmod -R 777 /",
    "chown -R me /",
    "kill -9 -1",
    "bash -c 'rm -rf /'",
    "wipefs -a /dev/sdb",
    "shred /dev/sda",
    "true; /sbin/reboot",
    "rm -rf ~/",
    "rm -rf ${HOME}",
]


@pytest.mark.parametrize("text", NEVER)
def test_what_destroys_the_machine_never_runs(text):
    assert commands.never(text)


HARMLESS = [
    "rm -rf build",
    "rm -rf ./",
    "rm -rf /tmp/x/y",
    "rm -rf ~/x",
    "rm /etc/nothing",
    "echo reboot",
    "grep -r shutdown .",
    "dd if=a of=b",
    "kill -9 123",
    "kill -1 123",
    "chmod -R 755 .",
    "echo 'rm -rf /'",
    "git commit -m 'no rm -rf / here'",
    "f() { g | h & }; f",
    "systemctl status",
    "cat /dev/null > f",
    "make init",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_everyday_commands_do(text):
    assert commands.never(text) == ""


@given(st.text(alphabet="ab'\"\\$(){}`|&;<># \n=", max_size=60))
def test_any_text_is_read(text):
    """Total, and plain text holds nothing that a shell would act on."""
    script = commands.parse(text)
    commands.never(text)
    if script.plain:
        assert script.certain and all(command.words and not command.targets for command in script.commands)
