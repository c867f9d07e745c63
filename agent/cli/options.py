"""The command line as data: its words, its options in one table, and the front page.

What `agent.cli.argv` reads, what `--help` shows and what completion offers are all read from here.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from agent import __version__

NAME = "oneshot-agent"
COMMANDS = ("sessions", "models", "config", "doctor", "completion")
RESERVED = (*COMMANDS, "run", "help")
VERBS = (
    "list", "show", "last", "search", "name", "fork", "export", "import", "rm", "prune", "compact", "undo", "replay",
    "stats", "path",
)  # fmt: skip

INTRODUCTION = """\
agent: a one-shot command-line agent whose memory can be trusted.

  agent "prompt"              start a session, take one turn
  agent -c ID "prompt"        continue it (id, unique prefix, name, or last)
  agent --last "prompt"       continue the newest session of this directory
  git diff | agent "review"   standard input goes with the prompt
  agent sessions              list sessions; agent sessions show ID prints one
  agent doctor                what is configured, and whether it works
"""

EPILOGUE = """\
Commands: sessions, models, config show, doctor, completion SHELL, run, help. A prompt that starts with one: quote it.
Exit codes: 0 done, 1 failed, 2 usage, 3 configuration, 4 session, 5 denied, 6 limit, 7 busy, 75 try again, 124 timeout,
130 interrupted. Settings: flags > environment > session > config.toml; `agent config show` shows each value and its source.
"""


class Row(NamedTuple):
    """One option: `metavar` is "" for a switch; `many` may be given more than once."""

    name: str
    flags: tuple[str, ...]
    metavar: str
    text: str
    many: bool = False
    hidden: bool = False


OPTIONS: dict[str, tuple[Row, ...]] = {
    "Session": (
        Row("continue_id", ("-c", "--continue"), "ID", "continue a session: id, prefix, name, last"),
        Row("last", ("--last",), "", "continue the newest session of this directory"),
        Row("fork", ("--fork",), "", "continue in a copy; the original stays as it is"),
        Row("name", ("-n", "--name"), "NAME", "name the session"),
        Row("no_session", ("--no-session", "--ephemeral"), "", "leave nothing on disk"),
        Row("session_dir", ("--session-dir",), "DIR", "where sessions are kept"),
        Row("wait", ("--wait",), "SEC", "seconds to wait for a busy session"),
        Row("pin", ("--pin",), "TEXT", "a rule that no compaction may drop", many=True),
    ),
    "Model": (
        Row("model", ("-m", "--model"), "MODEL", "model, alias, provider/model or file.gguf"),
        Row("system", ("-s", "--system"), "TEXT", "system prompt (new sessions)"),
        Row("system_file", ("--system-file",), "PATH", "system prompt from a file"),
        Row("context_window", ("--window",), "N", "context window in tokens: 8192, 8k"),
        Row("compact_at", ("--compact-at",), "X", "compact at a fraction, at tokens, or off"),
        Row("summary_model", ("--summary-model",), "M", "another model for summaries"),
        Row("max_tokens", ("--max-tokens",), "N", "cap on one answer, in tokens"),
        Row("profile", ("--profile",), "NAME", "a [profiles.NAME] of config.toml"),
    ),
    "Input": (
        Row("file", ("-f", "--file"), "PATH", "attach a text file or image; - is stdin", many=True),
        Row("cd", ("-C", "--cd"), "DIR", "run as if started there"),
        Row("no_stdin", ("--no-stdin",), "", "never look at standard input"),
        Row("no_input", ("--no-input",), "", "never ask; deny what would be asked"),
    ),
    "Output": (
        Row("output", ("-o", "--output"), "FILE", "also write the answer there, atomically"),
        Row("json", ("--json",), "", "events as JSON lines; result is the last"),
        Row("output_format", ("--output-format",), "FORMAT", "text, json or stream-json (= --json)"),
        Row("include_partial_messages", ("--include-partial-messages",), "", "with --json: every fragment too"),
        Row("quiet", ("-q", "--quiet"), "", "the answer and errors only"),
        Row("verbose", ("-v", "--verbose"), "", "what tools were asked and gave"),
        Row("debug", ("--debug",), "", "the wire on stderr, redacted"),
        Row("schema", ("--schema",), "FILE", "the answer is JSON of this schema (a file, or JSON)"),
        Row("color", ("--color",), "WHEN", "auto, always or never"),
    ),
    "Tools": (
        Row("tools", ("--tools",), "LIST", "offer only these, comma-separated"),
        Row("no_tools", ("--no-tools",), "", "offer none"),
        Row("allow", ("--allow",), "RULE", "allow calls: 'bash(git *)', write_file, net", many=True),
        Row("deny", ("--deny",), "RULE", "deny calls; deny wins", many=True),
        Row("sandbox", ("--sandbox",), "MODE", "read-only, workspace-write or off"),
        Row("add_dir", ("--add-dir",), "DIR", "another directory that tools may write", many=True),
        Row("yolo", ("--yolo",), "", "turn every question into yes; the sandbox stays"),
        Row("strict", ("--strict",), "", "exit 5 when something was denied"),
    ),
    "Limits": (
        Row("max_steps", ("--max-steps",), "N", "model calls in one turn (100)"),
        Row("timeout", ("--timeout",), "SEC", "seconds for the whole run"),
        Row("version", ("-V", "--version"), "", "version and install path"),
        Row("printed", ("-p", "--print"), "", "accepted and ignored, for habit", hidden=True),
    ),
}
"""The options of a run, in the order and groups of `--help`."""


def front_page() -> str:
    """What `agent --help` shows."""
    lines = [INTRODUCTION]
    for title, rows in OPTIONS.items():
        lines.append(f"{title}\n")
        for row in (row for row in rows if not row.hidden):
            spelt = " ".join(filter(None, [", ".join(row.flags), row.metavar]))
            lines.append(f"  {spelt:<29} {row.text}\n")
    return "".join([*lines, EPILOGUE])


def version_line() -> str:
    """Product, version and place: which of several programs called `agent` this is."""
    return f"{NAME} {__version__} ({os.path.dirname(os.path.dirname(os.path.abspath(__file__)))})"
