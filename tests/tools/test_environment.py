"""The environment of a tool process: nothing secret, nothing that runs code, and none to be read from the agent."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from agent.tools.environment import scrubbed, secret_spans, secrets

SECRET = {
    "OPENAI_API_KEY": "x",
    "ANTHROPIC_API_KEY": "x",
    "GH_TOKEN": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_ACCESS_KEY_ID": "x",
    "DB_PASSWORD": "x",
    "PGPASSWORD": "x",
    "MYSQL_PWD": "x",
    "NPM_TOKEN": "x",
    "SOME_SECRET": "x",
    "my_private_key": "x",
    "GOOGLE_APPLICATION_CREDENTIALS": "x",
    "APIKEY": "x",
    "HTTP_COOKIE": "x",
    "SENTRY_DSN": "x",
    "AZURE_STORAGE_CONNECTION_STRING": "x",
    "GITHUB_PAT": "x",
    "BASIC_AUTH": "x",
    "DATABASE_URL": "postgres://me:pw@host/db",
    "HTTPS_PROXY": "http://me:pw@proxy:3128",
    "ODD_NAME": "sk-proj-abcdefgh",
    "OTHER": "ghp_abcdef",
    "THIRD": "AKIAABCDEFGH",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.x",
    "PEM": "-----BEGIN RSA PRIVATE KEY-----",
}
ORDINARY = {
    "HOME": "/home/me",
    "PATH": "/usr/bin",
    "LANG": "C.UTF-8",
    "PWD": "/old",
    "KEYBOARD": "de",
    "MONKEY": "1",
    "HTTP_PROXY": "http://proxy:3128",
    "TOKENIZERS_PARALLELISM_": "false",
}


@pytest.mark.parametrize("name", SECRET)
def test_secrets_go_by_name_and_by_value(name):
    assert name in secrets({name: SECRET[name]})


@pytest.mark.parametrize("name", [name for name in ORDINARY if not name.startswith("TOKEN")])
def test_ordinary_variables_stay(name):
    assert secrets({name: ORDINARY[name]}) == {}


def test_a_secret_under_another_name_goes_too():
    """Also what runs code at the start of bash, what leads out, and our own settings."""
    environ = {
        "PATH": "/bin",
        "MY_API_KEY": "value-of-the-key",
        "COPY": "Bearer value-of-the-key",
        "BASH_ENV": "/x",
        "ENV": "/x",
        "BASH_FUNC_ls%%": "() { evil; }",
        "SSH_AUTH_SOCK": "/x",
        "AGENT_SESSION_DIR": "/x",
        "KEEP": "1",
    }
    assert scrubbed(environ, "the-id", "/tmp/t", "/w") == {
        "PATH": "/bin",
        "KEEP": "1",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
        "EDITOR": "true",
        "VISUAL": "true",
        "DEBIAN_FRONTEND": "noninteractive",
        "PIP_NO_INPUT": "1",
        "AGENT_SESSION_ID": "the-id",
        "TMPDIR": "/tmp/t",
        "TMP": "/tmp/t",
        "TEMP": "/tmp/t",
        "PWD": "/w",
    }


def test_the_spans_are_the_values():
    block = b"A=1\0X_KEY=abc\0B=\0Y=sk-1234\0"
    assert [block[at : at + length] for at, length in secret_spans(block, {"X_KEY": "abc"})] == [b"abc", b"sk-1234"]


PROGRAM = """
import os, sys
from agent.messages import ToolCall
from agent.tools import Permissions, ToolContext, build_toolbox
context = ToolContext(cwd="/tmp", roots=["/tmp"], files_dir=lambda: "/tmp", sandbox=sys.argv[1])
box = build_toolbox(["bash"], context, Permissions(sandboxed=True))
command = '{"command": "tr \\\\\\\\0 \\\\\\\\n < /proc/%d/environ; env"}' % os.getpid()
print(box.run(ToolCall("1", "bash", command)).text)
print(os.environ["SOME_API_KEY"], file=sys.stderr)
"""


@pytest.mark.parametrize("mode", ["workspace-write", "off"])
def test_the_agents_own_environment_holds_no_key_for_others(mode):
    """Read through /proc by a tool process, confined or not, as the same user or root; the agent still has the key."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, mode],
        env={**os.environ, "SOME_API_KEY": "the-key-itself"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "exit status" in done.stdout and "the-key-itself" not in done.stdout
    assert done.stderr == "the-key-itself\n"
