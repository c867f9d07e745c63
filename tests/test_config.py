"""Settings: one value, five layers, and every mistake named with the place it was made in."""

from pathlib import Path

import pytest

from agent.config import SETTINGS, Settings, load_settings, merge
from agent.errors import ConfigError, UsageError
from agent.values import parse_compact_at, parse_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("8192", 8192), ("8k", 8000), ("200_000", 200_000), (" 700 ", 700), ("1K", 1000), ("1m", 1_000_000)],
)
def test_a_number_of_tokens(text: str, tokens: int) -> None:
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize("text", ["", "0", "-5", "abc", "1e6", "8 k", "0k", "8kk", "1.5k", "８192", "0x10", "none"])
def test_what_is_no_number_of_tokens(text: str) -> None:
    with pytest.raises(ValueError, match="a number of tokens such as 8192, 8k or 200_000"):
        parse_tokens(text)


@pytest.mark.parametrize(("text", "value"), [("0.75", 0.75), ("90k", 90_000), ("off", "off"), ("OFF", "off")])
def test_when_to_compact(text: str, value: object) -> None:
    assert parse_compact_at(text) == value


@pytest.mark.parametrize("text", ["1.5", "0", "0.0", "-1", "never", "1.0", ""])
def test_what_is_no_time_to_compact(text: str) -> None:
    with pytest.raises(ValueError, match="a fraction between 0 and 1, a number of tokens, or off"):
        parse_compact_at(text)


def test_a_flag_beats_the_environment_beats_the_session_beats_the_file() -> None:
    layers = {"flags": {"model": "a"}, "environ": {"MODEL": "b"}, "session": {"model": "c"}, "user": {"model": "d"}}
    seen = []
    for layer in ("flags", "environ", "session", "user"):
        settings = merge(layers["flags"], layers["environ"], layers["session"], {}, layers["user"])
        seen.append((settings.model, settings.origin["model"]))
        layers[layer] = {}
    assert seen == [("a", "flag"), ("b", "MODEL"), ("c", "session"), ("d", "config.toml")]


def test_the_prefixed_variable_wins() -> None:
    settings = merge({}, {"CONTEXT_WINDOW": "700", "AGENT_CONTEXT_WINDOW": "8k"}, {}, {}, {})
    assert (settings.context_window, settings.origin["context_window"]) == (8000, "AGENT_CONTEXT_WINDOW")


def test_an_empty_variable_is_not_set() -> None:
    assert merge({}, {"CONTEXT_WINDOW": ""}, {}, {}, {}).context_window is None


def test_overriding_what_the_session_froze_is_said() -> None:
    settings = merge({"model": "new"}, {}, {"model": "old", "tools": ["bash"]}, {}, {})
    assert settings.tools == ("bash",)
    assert settings.overrides == ("model is new for this run (flag); the session began with old",)


def test_no_tools_is_not_the_same_as_tools_not_said() -> None:
    assert merge({"tools": ""}, {}, {"tools": ["bash"]}, {}, {}).tools == ()
    assert merge({}, {}, {}, {}, {}).tools is None


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        (
            "CONTEXT_WINDOW",
            "abc",
            "CONTEXT_WINDOW is 'abc', but it takes a number of tokens such as 8192, 8k or 200_000",
        ),
        ("AGENT_MAX_STEPS", "0", "AGENT_MAX_STEPS is '0', but it takes a whole number above zero"),
        ("AGENT_SANDBOX", "on", "AGENT_SANDBOX is 'on', but it takes read-only or workspace-write or off"),
        ("AGENT_YOLO", "maybe", "AGENT_YOLO is 'maybe', but it takes true or false"),
        ("AGENT_TIMEOUT", "soon", "AGENT_TIMEOUT is 'soon', but it takes a number of seconds above zero"),
    ],
)
def test_a_bad_variable_is_named(variable: str, value: str, text: str) -> None:
    with pytest.raises(UsageError) as problem:
        merge({}, {variable: value}, {}, {}, {})
    assert problem.value.text == text


def test_a_project_may_only_tighten(tmp_path: Path) -> None:
    project = {"deny": ["bash(git push *)"], "sandbox": "read-only", "max_steps": 500, "tools": ["bash", "read_file"]}
    settings = merge({"deny": ("net",), "tools": "bash,write_file"}, {}, {}, project, {})
    assert settings.deny == ("net", "bash(git push *)")
    assert (settings.sandbox, settings.max_steps, settings.tools) == ("read-only", 100, ("bash",))
    assert merge({"sandbox": "read-only"}, {}, {}, {"sandbox": "off"}, {}).sandbox == "read-only"
    with pytest.raises(ConfigError, match="a project may not set 'allow'"):
        merge({}, {}, {}, {"allow": ["bash"]}, {})


def config(home: Path, text: str) -> dict[str, str]:
    path = home / ".config" / "agent" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return {"HOME": str(home)}


def test_the_users_file_with_a_profile_and_aliases(home: Path) -> None:
    environ = config(home, 'model = "a"\nmax_steps = 7\n[aliases]\nfast = "x/y"\n[profiles.work]\nmodel = "b"\n')
    assert load_settings({}, environ, str(home)).model == "a"
    work = load_settings({"profile": "work"}, environ, str(home))
    assert (work.model, work.max_steps, work.aliases) == ("b", 7, {"fast": "x/y"})
    with pytest.raises(ConfigError, match="No profile 'home'"):
        load_settings({"profile": "home"}, environ, str(home))


def test_a_model_may_have_a_table_of_its_own(home: Path) -> None:
    environ = config(home, 'compact_at = "off"\n[models."openai/gpt-5"]\ncompact_at = "200k"\nmax_tokens = 9000\n')
    general, own = load_settings({"model": "x"}, environ, "/"), load_settings({"model": "openai/gpt-5"}, environ, "/")
    assert (general.compact_at, general.max_tokens) == ("off", None)
    assert (own.compact_at, own.max_tokens) == (200_000, 9000)
    assert load_settings({"model": "openai/gpt-5", "max_tokens": "5"}, environ, "/").max_tokens == 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[models.x]\nmodle = 1", "there is no setting 'modle'"),
        ("modle = 1", "there is no setting 'modle'. Did you mean model?"),
        ("model = ", "is not TOML"),
        ("max_steps = 'many'", "is 'many', but it takes a whole number above zero"),
        ("model = [1, 2]", "but it takes one value, not a list"),
        ("[models]\nx = 1", "profiles, models and aliases are tables"),
        ("[models.x]\nsummary_role = 'robot'", "summary_role"),
        ("[profiles.later]\nsummary_format = 'xml'", "summary_format"),
        ("[profiles.later]\nbogus = 1", "there is no setting 'bogus'"),
        ("[profiles.later]\nmodels = 5", "profiles, models and aliases are tables"),
        ("[profiles.later]\naliases = 5", "profiles, models and aliases are tables"),
        ("[profiles.later.models]\nx = 5", "profiles, models and aliases are tables"),
        ("[profiles.later.models.x]\ncontext_window = 'abc'", "context_window"),
        ("aliases = 3", "profiles, models and aliases are tables"),
    ],
)
def test_a_bad_file_is_named(home: Path, text: str, says: str) -> None:
    environ = config(home, text)
    with pytest.raises(ConfigError) as problem:
        load_settings({}, environ, str(home))
    assert str(home) in str(problem.value)
    assert says in str(problem.value)


def test_the_table_of_a_model_counts_where_it_is_the_one_that_is_taken(home: Path) -> None:
    """Named by nobody, but known to be what a run without a name takes."""
    environ = config(home, '[models."smollm2"]\ncontext_window = 3000\n')
    assert load_settings({}, environ, str(home)).context_window is None
    assert load_settings({}, environ, str(home)).tables == ("smollm2",)
    assert load_settings({}, environ, str(home), None, "smollm2").context_window == 3000
    assert load_settings({"model": "other"}, environ, str(home), None, "smollm2").context_window is None


def test_every_option_is_a_field() -> None:
    """The table and the record name the same settings."""
    fields = set(Settings._fields) - {"aliases", "tables", "origin", "overrides"}
    assert fields == {option.name for option in SETTINGS}
    defaults = Settings()
    assert {option.name: option.default for option in SETTINGS} == {name: getattr(defaults, name) for name in fields}
