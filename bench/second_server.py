"""A second real server in front of the first: LiteLLM's proxy before llama.cpp, through our client. Optional;
`.ci/second-server` runs it.

    python -m venv t && t/bin/pip install 'litellm[proxy]'
    .venv/bin/python bench/second_server.py t/bin/litellm

What must hold: a streamed answer with usage, a tool's result accepted, an overflow told apart with its numbers although
two servers word it, a wrong model named as such. Writes one line each; exits 1 when one does not hold.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agent import local
from agent.client import ChatClient
from agent.errors import AgentError, ContextOverflow
from agent.messages import Request
from agent.wire.providers import Target
from bench import llama

KEY = "sk-second-server-0001"
WINDOW = 1024


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def proxy(command: str, behind: str, directory: str) -> tuple[subprocess.Popen[bytes], str]:
    """LiteLLM's proxy on a free port; its process and base URL, once it answers."""
    port = free_port()
    routed = {"model": "openai/local", "api_base": behind, "api_key": "none"}
    config = {
        "model_list": [{"model_name": "local", "litellm_params": routed}],
        "general_settings": {"master_key": KEY},
        "litellm_settings": {"num_retries": 0},
    }
    path = os.path.join(directory, "config.yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)  # JSON is YAML
    with open(os.path.join(directory, "log"), "wb") as log:
        started = subprocess.Popen(
            [command, "--config", path, "--host", "127.0.0.1", "--port", str(port)], stdout=log, stderr=log
        )
    for _ in range(240):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=2):
                return started, f"http://127.0.0.1:{port}/v1"
        except OSError:
            time.sleep(0.5)
    started.terminate()
    raise SystemExit("the proxy did not start")


def ask(url: str, prompt: str, *, model: str = "local", key: str = KEY, **more: Any) -> Any:
    client = ChatClient(Target("", url, model, key), environ={}, sleep=lambda seconds: None)
    messages = more.pop("messages", [{"role": "user", "content": prompt}])
    try:
        return client.complete(Request(messages, **{"max_tokens": 16, **more}), lambda delta: None)
    except AgentError as error:
        return error
    finally:
        client.close()


def checks(url: str) -> list[tuple[str, Callable[[], Any], Callable[[Any], bool]]]:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    tools = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}]
    talk = [
        {"role": "user", "content": "List."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "a.txt", "tool_call_id": "c1"},
    ]
    return [
        ("an answer", lambda: ask(url, "Say hello."), lambda r: r.complete and r.message["content"]),
        ("usage", lambda: ask(url, "Say hello."), lambda r: r.usage and r.usage.prompt > 5),
        ("a tool result", lambda: ask(url, "", messages=talk, tools=tools), lambda r: r.complete),
        ("an overflow", lambda: ask(url, "word " * 3000),
         lambda r: isinstance(r, ContextOverflow) and r.limit == WINDOW and (r.have or 0) > 3000),
        ("a wrong model", lambda: ask(url, "x", model="nobody"), lambda r: getattr(r, "kind", "") == "not_found"),
    ]  # fmt: skip


def main(command: str) -> int:
    model = local.builtin_path(os.environ, lambda line: None, progress=False)
    server = llama.serve(model, WINDOW)
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        process, url = proxy(command, f"{server.listening_address}/v1", directory)
        try:
            for name, run, holds in checks(url):
                found = run()
                good = bool(holds(found))
                failed += not good
                sys.stdout.write(f"{'ok' if good else 'FAILED':6} {name}" + ("" if good else f": {found!r}") + "\n")
        finally:
            process.terminate()
            process.wait(30)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
