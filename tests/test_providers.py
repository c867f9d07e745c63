"""From a model's name and an environment to a target, and never another provider's key."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import ConfigError
from agent.wire import Dialect
from agent.wire.providers import TABLE, normal_url, provider_at, resolve

OPENAI, DEEPSEEK, ROUTER = (
    {"OPENAI_API_KEY": "sk-openai-1"},
    {"DEEPSEEK_API_KEY": "sk-deep-1"},
    {"OPENROUTER_API_KEY": "sk-or-1"},
)
BASE = "http://localhost:9999/v1"

RESOLVED: list[tuple[str | None, dict[str, str], tuple[str, str, str, str]]] = [
    # spec, environment, (provider, base URL, model, key)
    ("gpt-5", OPENAI, ("openai", "https://api.openai.com/v1", "gpt-5", "sk-openai-1")),
    (None, DEEPSEEK, ("deepseek", "https://api.deepseek.com/v1", "deepseek-chat", "sk-deep-1")),
    ("deepseek/deepseek-reasoner", OPENAI | DEEPSEEK, ("deepseek", "https://api.deepseek.com/v1", "deepseek-reasoner", "sk-deep-1")),
    ("kimi-k2.5", {"MOONSHOT_API_KEY": "sk-moon-1"}, ("moonshot", "https://api.moonshot.cn/v1", "kimi-k2.5", "sk-moon-1")),
    ("kimi/kimi-k2.5", {"KIMI_API_KEY": "sk-kimi-1"}, ("moonshot", "https://api.moonshot.cn/v1", "kimi-k2.5", "sk-kimi-1")),
    ("openrouter/openai/gpt-5", ROUTER, ("openrouter", "https://openrouter.ai/api/v1", "openai/gpt-5", "sk-or-1")),
    ("ollama/llama3.1:8b", OPENAI, ("ollama", "http://127.0.0.1:11434/v1", "llama3.1:8b", "")),
    ("ollama/x", {"OLLAMA_HOST": "0.0.0.0:9000"}, ("ollama", "http://127.0.0.1:9000/v1", "x", "")),
    ("llamacpp", {}, ("llamacpp", "http://127.0.0.1:8080/v1", "default", "")),
    ("lmstudio/qwen", {}, ("lmstudio", "http://127.0.0.1:1234/v1", "qwen", "")),
    ("any/model", {"OPENAI_BASE_URL": BASE}, ("", BASE, "any/model", "")),
    ("gpt-5", {"OPENAI_BASE_URL": BASE, **OPENAI}, ("", BASE, "gpt-5", "sk-openai-1")),
    ("openai/gpt-5", {"OPENAI_BASE_URL": BASE, **OPENAI}, ("", BASE, "openai/gpt-5", "sk-openai-1")),
    ("openai/gpt-5", {"OPENAI_BASE_URL": "https://openrouter.ai/api/v1", **ROUTER},
     ("openrouter", "https://openrouter.ai/api/v1", "openai/gpt-5", "sk-or-1")),
    ("openrouter/auto", {"OPENAI_BASE_URL": "https://openrouter.ai/api/v1", **ROUTER},
     ("openrouter", "https://openrouter.ai/api/v1", "openrouter/auto", "sk-or-1")),
    ("deepseek/deepseek-chat", {"OPENAI_BASE_URL": "https://api.deepseek.com", **OPENAI},
     ("deepseek", "https://api.deepseek.com/v1", "deepseek-chat", "sk-openai-1")),
    ("ollama/x", {"OPENAI_BASE_URL": BASE}, ("ollama", "http://127.0.0.1:11434/v1", "x", "")),
]  # fmt: skip


@pytest.mark.parametrize("spec, environ, expect", RESOLVED, ids=[f"{r[0]}-{'+'.join(r[1])}" for r in RESOLVED])
def test_a_name_leads_to_a_server(spec: str | None, environ: dict[str, str], expect: tuple[str, str, str, str]) -> None:
    found = resolve(spec, environ)
    assert (found.provider, found.base_url, found.model, found.api_key) == expect


REFUSED: list[tuple[str | None, dict[str, str], str]] = [
    (None, {}, "No model and no server is configured"),
    ("deepseek-chat", OPENAI, "No API key for deepseek"),
    ("ollama/", {}, "No model is named for ollama"),
    (None, {"OPENAI_BASE_URL": BASE}, "No model is named for this server"),
    ("m", {"OPENAI_BASE_URL": "http://[::1"}, "The base URL is not valid: Invalid IPv6 URL"),
    ("m", {"OPENAI_BASE_URL": "ftp://x"}, "The base URL is not valid"),
    ("gpt-5", {"OPENAI_API_KEY": "sk-“quoted”"}, "OPENAI_API_KEY contains characters that cannot be in an API key"),
]


@pytest.mark.parametrize("spec, environ, said", REFUSED)
def test_what_cannot_be_resolved_says_what_to_set(spec: str | None, environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(spec, environ)
    assert caught.value.text == said
    assert caught.value.hint
    assert "quoted" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_nothing_configured_is_told_apart() -> None:
    """So that the built-in model can answer."""
    with pytest.raises(ConfigError) as caught:
        resolve(None, {})
    assert caught.value.kind == "no_server"


def test_aliases_name_models_servers_keys_and_dialects() -> None:
    aliases: dict[str, Any] = {
        "fast": "deepseek/deepseek-chat",
        "work": {"base_url": "https://llm.example.com", "model": "big", "key_variable": "WORK_KEY", "headers": {"x-team": "7"},
                 "dialect": {"alternate": True}},
        "deep": {"provider": "deepseek", "model": "deepseek-chat", "key_variable": "WORK_KEY"},
    }  # fmt: skip
    environ = {"WORK_KEY": "work-key-1", **DEEPSEEK}
    assert resolve("fast", environ, aliases).api_key == "sk-deep-1"
    work = resolve("work", environ, aliases)
    assert (work.base_url, work.model, work.api_key, work.key_variable) == (
        "https://llm.example.com/v1", "big", "work-key-1", "WORK_KEY",
    )  # fmt: skip
    assert (dict(work.headers), work.dialect) == ({"x-team": "7"}, Dialect(alternate=True))
    assert resolve("deep", {"WORK_KEY": "work-key-1"}, aliases).api_key == "work-key-1"


@pytest.mark.parametrize("given, expect", [
    ("https://x.example/v1/", "https://x.example/v1"), ("https://x.example", "https://x.example/v1"),
    ("localhost:8080", "http://localhost:8080/v1"), ("x.example/api", "https://x.example/api"),
    ("http://127.0.0.1:1/v1/chat/completions", "http://127.0.0.1:1/v1"), (" 'http://[::1]:8080/v1' ", "http://[::1]:8080/v1"),
    ("https://u:p@x.example/v1", "https://x.example/v1"),
])  # fmt: skip
def test_a_base_url_is_read_as_it_was_meant(given: str, expect: str) -> None:
    assert normal_url(given)[0] == expect


def test_the_user_part_of_a_url_becomes_a_header_and_is_not_shown() -> None:
    target = resolve("m", {"OPENAI_BASE_URL": "https://me:pa%20ss@x.example/v1"})
    assert dict(target.headers) == {"Authorization": "Basic bWU6cGEgc3M="}
    assert "pa" not in repr(target) and "Basic" not in repr(target)
    assert "sk-" not in repr(resolve("gpt-5", OPENAI))


def test_every_provider_of_the_table_is_found_at_its_own_address() -> None:
    assert [provider_at(p.base_url) for p in TABLE] == list(TABLE)
    assert provider_at("https://my-resource.openai.azure.com/openai/v1") == TABLE[0]
    assert provider_at("https://api.deepseek.com.evil.example/v1") is None
