"""Write the man page: `python docs/man.py` writes `docs/agent.1` from the tables of `agent/cli/options.py`.

The options, their groups and the front page are the ones that `--help` shows; only what a man page has besides (files,
environment) is written here. `page` is pure and has no date, so that the same tables give the same bytes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from agent import __version__  # noqa: E402
from agent.cli.options import EPILOGUE, INTRODUCTION, NAME, OPTIONS, VERBS  # noqa: E402

FILES = (
    ("~/.local/state/agent/sessions/", "sessions, one file each; ./sessions in its place where it has the file .agent-sessions"),
    ("~/.config/agent/config.toml", "settings, aliases, profiles"),
    (".agent.toml", "settings of a project; may only tighten"),
    ("AGENTS.md", "joins the system prompt of a new session"),
)  # fmt: skip
VARIABLES = (
    ("OPENAI_API_KEY", "the key; each provider's usual variable counts for that provider"),
    ("OPENAI_BASE_URL", "the server, any that speaks chat completions"),
    ("MODEL", "as \\fB\\-\\-model\\fR"),
    ("CONTEXT_WINDOW", "as \\fB\\-\\-window\\fR"),
    ("AGENT_*", "every setting that \\fBagent config show\\fR lists"),
    ("NO_COLOR", "no colour"),
    ("HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE", "and their kin, as everywhere"),
)


def roff(text: str) -> str:
    """Text as roff shows it unchanged."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def option(flags: tuple[str, ...], metavar: str) -> str:
    value = f" \\fI{roff(metavar)}\\fR" if metavar else ""
    return ", ".join(f"\\fB{roff(flag)}\\fR{value}" for flag in flags)


def exit_codes() -> list[tuple[str, str, str]]:
    """Code, meaning and whether to run again, as the table of README has them."""
    readme = (HERE.parent / "README.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.*?) \| (.*?) ?\|$", readme, re.MULTILINE)
    return [(code, meaning.replace("`", ""), again.replace("`", "")) for code, meaning, again in rows]


def lines() -> Iterator[str]:
    title, _, usage = INTRODUCTION.partition("\n\n")
    name, _, claim = title.partition(": ")
    yield f'.TH AGENT 1 "" "{NAME} {__version__}" "User Commands"'
    yield from (".SH NAME", f"{name}, {roff(NAME)} \\- {roff(claim.rstrip('.'))}")
    yield from (".SH SYNOPSIS", "\\fBagent\\fR [\\fIOPTION\\fR]... [\\fB\\-\\-\\fR] \\fIPROMPT\\fR...", ".br")
    yield "\\fBagent\\fR \\fICOMMAND\\fR ..."
    yield from (".SH DESCRIPTION", "One run is one turn: it loads one session, sends the prompt, lets the model use")
    yield "tools, and puts what is new on disk. The answer goes to standard output, all else to standard error."
    for line in usage.splitlines():
        for command, about in re.findall(r"(agent\b.*?|git .*?)(?:  +|$)(.*?)(?=;  agent|$)", line.strip()):
            yield from (".TP", f"\\fB{roff(command)}\\fR", roff(about.strip()))
    yield ".SH OPTIONS"
    for group, rows in OPTIONS.items():
        yield f".SS {group}"
        for row in rows:
            if not row.hidden:
                many = " May be given more than once." if row.many else ""
                yield from (".TP", option(row.flags, row.metavar), f"{roff(row.text)}.{many}")
    yield from (
        ".SH COMMANDS",
        ".TP",
        "\\fBagent sessions\\fR \\fIVERB\\fR",
        f"{', '.join(VERBS)}; \\-\\-help tells of each.",
    )
    commands, _, rest = EPILOGUE.partition("Exit codes: ")
    yield from (".PP", roff(" ".join(commands.split())), ".SH EXIT STATUS")
    _, _, order = rest.partition(" Settings: ")
    for code, meaning, again in exit_codes():
        yield from (".TP", f"\\fB{code}\\fR", roff(f"{meaning}. Run again: {again}." if again else f"{meaning}."))
    yield ".SH ENVIRONMENT"
    for variable, about in VARIABLES:
        yield from (".TP", f"\\fB{variable}\\fR", about)
    yield from (".PP", f"Settings: {roff(' '.join(order.split()))}", ".SH FILES")
    for path, about in FILES:
        yield from (".TP", f"\\fI{roff(path)}\\fR", roff(about))


def page() -> str:
    """The man page as roff."""
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    (HERE / "agent.1").write_text(page())
