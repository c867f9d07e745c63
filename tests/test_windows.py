"""How large a window is, in the order of trust, always with its source."""

from __future__ import annotations

import pytest

from agent.wire.providers import Target
from agent.wire.windows import Price, Window, family_window, load_table, look_up, price_for, window_for

REMOTE = Target("deepseek", "https://api.deepseek.com/v1", "deepseek-chat")
LOCAL = Target("", "http://127.0.0.1:8080/v1", "deepseek-chat")
TABLE = {"deepseek/deepseek-chat": [131072, None, 8192, 0.5, 1.5, 0.05], "deepseek-chat": [64000, None, None]}


def test_each_source_gives_way_to_the_one_before_it() -> None:
    asked: list[str] = []

    def ask() -> int:
        asked.append("asked")
        return 5000

    learned = {"window": 4000, "asked": 4500, "asked_at": 100}
    about = {"stated": (1000, "flag"), "learned": learned, "ask": ask, "table": TABLE, "now": 200.0}
    sources = []
    for name, gone in (("stated", None), ("learned", {}), ("ask", None), ("table", {})):
        sources.append(window_for(REMOTE, **about)[:2])  # type: ignore[arg-type]
        about[name] = gone
    sources.append(window_for(REMOTE, **about)[:2])  # type: ignore[arg-type]
    sources.append(window_for(Target("", "https://x.example/v1", "unheard-of"), table={})[:2])
    assert sources == [
        (1000, "flag"), (4000, "learned"), (5000, "server"), (131072, "table"),
        (128000, "family"), (32768, "default"),
    ]  # fmt: skip
    assert asked == ["asked"]


def test_a_hosted_servers_answer_is_believed_for_a_week_and_a_local_one_never() -> None:
    learned = {"asked": 4500, "asked_at": 1000}
    assert window_for(REMOTE, learned=learned, ask=lambda: 1, now=2000.0) == Window(4500, "server")
    assert window_for(REMOTE, learned=learned, ask=lambda: 1, now=1000.0 + 8 * 86400).tokens == 1
    assert window_for(LOCAL, learned=learned, ask=lambda: 1, now=2000.0).tokens == 1


def test_the_smaller_of_a_window_and_an_input_limit_counts() -> None:
    assert window_for(REMOTE, learned={"window": 9000, "max_input": 7000}).tokens == 7000
    assert window_for(Target("openai", "https://api.openai.com/v1", "gpt-5")).tokens == 272000


def test_a_local_server_is_not_looked_up_by_name() -> None:
    """What it allocates is its own affair: 8,192 unless it says otherwise."""
    assert window_for(LOCAL, table=TABLE) == Window(8192, "default")
    assert price_for(LOCAL, TABLE) is None


@pytest.mark.parametrize("model, key", [
    ("deepseek-chat", 131072), ("hosted/deepseek-chat:free", 64000), ("DeepSeek-Chat-0324", 131072), ("deepseek-chat-2025-12-01", 131072),
])  # fmt: skip
def test_a_name_is_found_by_provider_first_then_bare_without_date(model: str, key: int) -> None:
    found = look_up(Target("deepseek", REMOTE.base_url, model), TABLE)
    assert found is not None and found.window == key


@pytest.mark.parametrize("model, tokens", [
    ("Qwen2.5-7B-Instruct", 32768), ("meta/llama-3.1-8b", 128000), ("yarn-mistral-7b-128k", 128000), ("phi-3-mini-4k", 4000),
    ("a-7b-model", None),
])  # fmt: skip
def test_a_family_is_guessed_from_the_name(model: str, tokens: int | None) -> None:
    assert family_window(model) == tokens


def test_a_price_is_the_providers_own_or_none() -> None:
    price = price_for(REMOTE, TABLE)
    assert price == Price(0.5, 1.5, 0.05)
    assert price.cost(1_000_000, 100_000, 400_000) == pytest.approx(0.6 * 0.5 + 0.4 * 0.05 + 0.15)
    assert price_for(Target("novita", "https://api.novita.ai/v3/openai", "deepseek-chat"), TABLE) is None


def test_the_shipped_table_is_whole() -> None:
    """Rows have the stated form, known models are in it, and its licence stands in the file."""
    table = load_table()
    assert len(table) > 1000
    assert all(3 <= len(row) <= 6 and len(row) != 4 for row in table.values())
    assert all(size is None or 0 < size < 20_000_000 for row in table.values() for size in row[:3])
    assert table["openai/gpt-5"][:3] == [400000, 272000, 128000]
