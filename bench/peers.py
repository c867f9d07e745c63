"""Other command-line agents, where they are on PATH: the same turn against the same server, in turn with ours.

Each is told where the server is in the way its own manual gives, in a home made for the purpose and with no key that matters. They
do more or less than this program before they ask; what is compared is how long a person waits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from glob import glob
from typing import NamedTuple

from bench.measuring import Row, figure, in_turns
from bench.processes import Place, agent_command, column, place

PI_MODELS = """{"providers": {"bench": {"baseUrl": "URL", "api": "openai-completions", "apiKey": "none",
 "models": [{"id": "m"}]}}}"""


class Peer(NamedTuple):
    """How a program is started for one turn: its arguments, the files it reads, and what its environment says. URL
    stands for the server's, HOME for the home it gets."""

    name: str
    arguments: tuple[str, ...]
    files: dict[str, str]
    environ: dict[str, str]


BENCH = 'model_providers.bench={name="bench", base_url="URL", env_key="KEY", wire_api="responses"}'
PEERS = (
    Peer(
        "codex",
        ("exec", "--skip-git-repo-check", "-m", "m", "-c", "model_provider=bench", "-c", BENCH, "hi"),
        {".codex/config.toml": ""},
        {"CODEX_HOME": "HOME/.codex", "KEY": "none"},
    ),
    Peer(
        "pi",
        ("-p", "--provider", "bench", "--model", "m", "--no-session", "hi"),
        {".pi/agent/models.json": PI_MODELS},
        {"PI_OFFLINE": "1"},
    ),
    Peer(
        "llm",
        ("-m", "bench", "--key", "none", "hi"),
        {"llm/extra-openai-models.yaml": "- model_id: bench\n  model_name: m\n  api_base: URL\n"},
        {"LLM_USER_PATH": "HOME/llm"},
    ),
)


def native(program: str) -> str:
    """The program itself where what is on PATH only starts it: codex comes through npm as a script for Node."""
    root = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    near = (f"{root}/../codex-*/vendor/*/bin/codex", f"{root}/node_modules/@openai/codex-*/vendor/*/bin/codex")
    return next((found for pattern in near for found in glob(pattern)), program)


def version(program: str, environ: dict[str, str]) -> str:
    """The last word of what it says of its version."""
    done = subprocess.run([program, "--version"], env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return ((done.stdout or done.stderr).split() or ["?"])[-1]


def settled(here: Place, peer: Peer) -> Place:
    """The place with the files and the environment that a peer needs."""

    def told(text: str) -> str:
        return text.replace("URL", here.server.url).replace("HOME", here.home)

    for name, text in peer.files.items():
        path = os.path.join(here.home, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(told(text))
    return here._replace(environ=here.environ | {name: told(value) for name, value in peer.environ.items()})


def beside(rounds: int) -> list[Row]:
    """Start to the first request, ours against every peer that is on PATH; no row where there is none."""
    with place() as here:
        runs = {"ours": here.run([*agent_command(), "hi"])}
        for peer in PEERS:
            if program := shutil.which(peer.name):
                program, there = native(program), settled(here, peer)
                arguments = [argument.replace("URL", here.server.url) for argument in peer.arguments]
                runs[f"{peer.name} {version(program, there.environ)}"] = there.run([program, *arguments])
        found = in_turns(rounds, runs) if len(runs) > 1 else {}
    request = {name: figure(column(samples, "request")) for name, samples in found.items()}
    ours = request.pop("ours", None)
    return [Row("peers", f"start to first request, beside {p}", "ms", ours, request[p], p, 1) for p in request if ours]
