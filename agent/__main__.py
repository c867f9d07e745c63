"""`python -m agent` is the same as the `agent` command."""

from agent.cli import entry

entry()
