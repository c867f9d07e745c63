"""Settings: every value a run depends on, merged once, each with the place it came from.

Precedence, highest first: flag > environment > what the session froze at its start > the user's `config.toml` >
default; the project's `.agent.toml` can only tighten the result, whatever set it. One table, `SETTINGS`, names every
setting, its environment variables, its key in a file and how its text is read, so that a flag, a variable and a file
can never disagree about what a value means. Keys are never settings: they stay in the environment and are read by `providers`.

This module does not know what the values are for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agent.errors import ConfigError, UsageError
from agent.values import one_of, parse_compact_at, parse_count, parse_names, parse_seconds, parse_switch, parse_tokens

SANDBOX_MODES = ("read-only", "workspace-write", "off")


class Setting(NamedTuple):
    """One setting: `variables` are tried in order; `frozen` ones are remembered by a session."""

    name: str
    parse: Callable[[str], Any]
    default: Any = None
    variables: tuple[str, ...] = ()
    many: bool = False
    frozen: bool = False


def _setting(name: str, parse: Callable[[str], Any], default: Any = None, *variables: str, **kind: bool) -> Setting:
    return Setting(name, parse, default, (f"AGENT_{name.upper()}", *variables), **kind)


SETTINGS: tuple[Setting, ...] = (
    _setting("model", str, None, "MODEL", frozen=True),
    _setting("base_url", str, None, "OPENAI_BASE_URL"),
    Setting("context_window", parse_tokens, None, ("AGENT_CONTEXT_WINDOW", "CONTEXT_WINDOW")),
    _setting("compact_at", parse_compact_at),
    _setting("summary_model", str),
    _setting("summary_instructions", str),
    _setting("summary_format", one_of("auto", "json", "text"), "auto"),
    _setting("summary_role", one_of("user", "assistant", "system"), "user"),
    _setting("max_tokens", parse_count),
    _setting("max_steps", parse_count, 100),
    _setting("timeout", parse_seconds),
    _setting("first_byte_timeout", parse_seconds, 300.0),
    _setting("stall_timeout", parse_seconds, 120.0),
    _setting("system", str, None),
    _setting("tools", parse_names, None, frozen=True),
    _setting("allow", parse_names, (), many=True),
    _setting("deny", parse_names, (), many=True),
    _setting("sandbox", one_of(*SANDBOX_MODES), None),
    _setting("add_dir", parse_names, (), many=True),
    _setting("yolo", parse_switch, False),
    _setting("strict", parse_switch, False),
    _setting("session_dir", str),
    _setting("color", one_of("auto", "always", "never"), "auto"),
    _setting("tls", one_of("bundled", "system"), "bundled"),
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}
FLAGS = {"context_window": "--window"}
"""Flags that are not spelt like their setting."""
PROJECT_KEYS = ("deny", "sandbox", "max_steps", "tools")


class Settings(NamedTuple):
    """The merged values. Sizes are tokens, times seconds; None means "not set, decide later".

    `origin` maps a name to where its value came from: "flag", a variable's name, "session", a file's path, "default".
    """

    model: str | None = None
    """Model or alias, `provider/model`, a path to a GGUF file; None: the provider whose key is set, else built in."""
    base_url: str | None = None
    context_window: int | None = None
    """The window the user states; None: learned, asked, looked up, in that order."""
    compact_at: float | int | str | None = None
    """Fraction of the window, tokens, or "off"; None: 0.75 of the window."""
    summary_model: str | None = None
    summary_instructions: str | None = None
    """What every summary is to keep in mind, in the user's words; joins the instruction of the summary call."""
    summary_format: str = "auto"
    """How a summary is asked for: JSON held to a schema, text with headings, or JSON where the server is known to have it."""
    summary_role: str = "user"
    """The role of the message that stands for what was folded."""
    max_tokens: int | None = None
    """Cap on one answer."""
    max_steps: int = 100
    """Model calls in one turn; reaching it ends the run with exit code 6, resumable."""
    timeout: float | None = None
    """Wall clock for the whole run."""
    first_byte_timeout: float = 300.0
    stall_timeout: float = 120.0
    system: str | None = None
    tools: tuple[str, ...] | None = None
    """Names of the tools offered; None: all of them; (): none."""
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    sandbox: str | None = None
    """None: workspace-write where the system has a mechanism, and a notice where it has none."""
    add_dir: tuple[str, ...] = ()
    yolo: bool = False
    strict: bool = False
    session_dir: str | None = None
    color: str = "auto"
    tls: str = "bundled"
    """Whose certificates https trusts: certifi's, or the system's store. SSL_CERT_FILE and SSL_CERT_DIR beat both."""
    aliases: Mapping[str, str] = {}
    """Short model names from the user's file."""
    tables: tuple[str, ...] = ()
    """The models that have a table of their own there."""
    origin: Mapping[str, str] = {}
    overrides: tuple[str, ...] = ()
    """Sentences about flags or variables that override what the session froze."""

    @property
    def stated_base_url(self) -> str | None:
        """The server of a flag or a file; OPENAI_BASE_URL has its own place in the order of targets."""
        return None if self.origin.get("base_url") == "OPENAI_BASE_URL" else self.base_url

    @property
    def stated_window(self) -> tuple[int, str] | None:
        """The window the user states, and where: "flag", "CONTEXT_WINDOW" or "config"."""
        if not self.context_window:
            return None
        origin = self.origin.get("context_window", "")
        where = "CONTEXT_WINDOW" if origin.endswith("CONTEXT_WINDOW") else "flag" if origin == "flag" else "config"
        return self.context_window, where

    def with_trust(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of a connection: whose certificates it trusts is said by `tls`."""
        return {**environ, "AGENT_TLS": self.tls}


# ---- merging (pure) ----


def merge(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    session: Mapping[str, Any],
    project: Mapping[str, Any],
    user: Mapping[str, Any],
    paths: tuple[str, str] = (".agent.toml", "config.toml"),
    otherwise: str | None = None,
) -> Settings:
    """Merge the layers. `flags` holds text or parsed values; a flag that is None or () was not given. `otherwise` is the
    model that a run takes where none is named: its table counts.

    Raises: UsageError for a bad flag or variable, ConfigError for a bad value in a file.
    """
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    overrides: list[str] = []
    for setting in SETTINGS:
        user_values = {**user, **_of_model(user, values.get("model") or otherwise)}
        value, source = _first(setting, flags, environ, session, user_values, paths[1])
        frozen = session.get(setting.name)
        if setting.frozen and frozen is not None and source != "session" and _plain(value) != _plain(frozen):
            overrides.append(
                f"{setting.name} is {_show(value)} for this run ({source}); the session began with {_show(frozen)}"
            )
        values[setting.name], origin[setting.name] = value, source
    for name, value in project.items():
        _tighten(name, value, values, origin, paths[0])
    aliases = user.get("aliases", {})
    about: dict[str, Any] = {"aliases": dict(aliases), "tables": tuple(user.get("models", {}))}
    return Settings(**values, **about, origin=origin, overrides=tuple(overrides))


def _of_model(user: Mapping[str, Any], model: str | None) -> Mapping[str, Any]:
    """The user's own table for one model, `[models."NAME"]`: it beats the file's general values."""
    table: Mapping[str, Any] = user.get("models", {}).get(model, {}) if model else {}
    return table


def _first(
    setting: Setting,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    session: Mapping[str, Any],
    user: Mapping[str, Any],
    path: str,
) -> tuple[Any, str]:
    given = flags.get(setting.name)
    if given is not None and given != ():
        return _read(setting, given, FLAGS.get(setting.name, f"--{setting.name.replace('_', '-')}"), UsageError), "flag"
    for variable in setting.variables:
        if environ.get(variable):
            return _read(setting, environ[variable], variable, UsageError), variable
    if setting.frozen and session.get(setting.name) is not None:
        stored = session[setting.name]
        return (tuple(stored) if isinstance(stored, list) else stored), "session"
    if setting.name in user:
        return _read(setting, user[setting.name], f"{setting.name} in {path}", ConfigError), path
    return setting.default, "default"


def _read(setting: Setting, value: Any, where: str, error: type[UsageError] | type[ConfigError]) -> Any:
    """Read one layer's value with the setting's parser; files may give numbers, booleans and lists as TOML has them."""
    try:
        if isinstance(value, list | tuple):
            if setting.many or setting.parse is parse_names:
                return tuple(str(item) for item in value)
            raise ValueError("one value, not a list")
        if isinstance(value, bool):
            value = "true" if value else "false"
        return (str(value),) if setting.many else setting.parse(str(value))
    except ValueError as problem:
        raise error(f"{where} is {str(value)!r}, but it takes {problem}", "Correct it and run again") from None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _show(value: Any) -> str:
    return ", ".join(value) or "none" if isinstance(value, tuple | list) else str(value)


def _tighten(name: str, value: Any, values: dict[str, Any], origin: dict[str, str], path: str) -> None:
    """Apply one key of the project's file where it narrows what the run may do; else leave the value as it is."""
    if name not in PROJECT_KEYS:
        known = ", ".join(PROJECT_KEYS)
        raise ConfigError(f"{path}: a project may not set {name!r}", f"It may only tighten: {known}")
    value = _read(_BY_NAME[name], value, f"{name} in {path}", ConfigError)
    now = values[name]
    if name == "deny":
        values[name] = (*now, *value)
    elif name == "tools":
        values[name] = value if now is None else tuple(tool for tool in now if tool in value)
    elif name == "max_steps":
        values[name] = min(now, value)
    else:
        values[name] = min(now or "workspace-write", value, key=SANDBOX_MODES.index)
    if values[name] != now:
        origin[name] = path


# ---- effects: files ----


def config_home(environ: Mapping[str, str]) -> str:
    """The user's configuration directory, `$XDG_CONFIG_HOME/agent` (an absolute path, or "" without a home)."""
    return _xdg(environ, "XDG_CONFIG_HOME", ".config")


def state_home(environ: Mapping[str, str]) -> str:
    """Where sessions and learned values live by default, `$XDG_STATE_HOME/agent`."""
    return _xdg(environ, "XDG_STATE_HOME", os.path.join(".local", "state"))


def cache_home(environ: Mapping[str, str]) -> str:
    """What can be fetched again, `$XDG_CACHE_HOME/agent`."""
    return _xdg(environ, "XDG_CACHE_HOME", ".cache")


def _xdg(environ: Mapping[str, str], variable: str, fallback: str) -> str:
    base = environ.get(variable, "")
    if not os.path.isabs(base):  # the specification: a relative value is ignored
        home = environ.get("HOME", "")
        if not os.path.isabs(home):
            return ""
        base = os.path.join(home, fallback)
    return os.path.join(base, "agent")


def load_settings(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: str,
    session: Mapping[str, Any] | None = None,
    otherwise: str | None = None,
) -> Settings:
    """Read the files and merge all layers. `session` is the meta line of a session that is being resumed; for
    `otherwise` see `merge`.

    Raises: UsageError (exit 2) for a bad flag or variable, ConfigError (exit 3) for a bad file.
    """
    path = config_path(environ)
    project_path = find_project_file(cwd)
    user = _user_table(path, flags.get("profile") or environ.get("AGENT_PROFILE"))
    project = _read_toml(project_path) if project_path else {}
    return merge(flags, environ, session or {}, project, user, (project_path or ".agent.toml", path), otherwise)


def config_path(environ: Mapping[str, str]) -> str:
    """The user's configuration file; `AGENT_CONFIG` names another."""
    return environ.get("AGENT_CONFIG") or os.path.join(config_home(environ) or "/nonexistent", "config.toml")


def find_project_file(cwd: str) -> str | None:
    """`.agent.toml` in this directory or the nearest one above it, up to the repository's root."""
    directory = os.path.abspath(cwd)
    while True:
        path = os.path.join(directory, ".agent.toml")
        if os.path.isfile(path):
            return path
        parent = os.path.dirname(directory)
        if parent == directory or os.path.exists(os.path.join(directory, ".git")):
            return None
        directory = parent


def _user_table(path: str, profile: str | None) -> dict[str, Any]:
    table = _read_toml(path)
    profiles = table.pop("profiles", {})
    if not isinstance(profiles, dict):
        raise ConfigError(f"{path}: profiles is not a table", "Write [profiles.NAME]")
    for one in (table, *profiles.values()):
        _check(path, one)
    if profile:
        if profile not in profiles:
            known = ", ".join(profiles) or "none"
            raise ConfigError(f"No profile {profile!r} in {path}", f"Profiles there: {known}")
        table.update(profiles[profile])
    return table


def _check(path: str, table: Any) -> None:
    """One table of settings, with its models and aliases. One that is not used today is read all the same: what is wrong
    in it should not wait for the day."""
    tables: list[Any] = [table] if isinstance(table, dict) else [None]
    models: Any = table.get("models", {}) if isinstance(table, dict) else {}
    tables += models.values() if isinstance(models, dict) else [None]
    if not all(isinstance(one, dict) for one in (*tables, table.get("aliases", {}) if tables[0] else {})):
        told = "Write [profiles.NAME], [models.NAME] and [aliases]"
        raise ConfigError(f"{path}: profiles, models and aliases are tables", told)
    _check_names(path, table, {*_BY_NAME, "aliases", "models"})
    for one in models.values():
        _check_names(path, one, set(_BY_NAME) - {"model"})
    for one in tables:
        for name, value in one.items():
            if name in _BY_NAME:
                _read(_BY_NAME[name], value, f"{name} in {path}", ConfigError)


def _check_names(path: str, table: Mapping[str, Any], known: set[str]) -> None:
    for name in table:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]}?" if near else "`agent config show` lists every setting"
            if "key" in name:
                hint = (
                    "Keys are read from the environment only: OPENAI_API_KEY, or the variable that `agent models` names"
                )
            raise ConfigError(f"{path}: there is no setting {name!r}", hint)


def _read_toml(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as problem:
        raise ConfigError(f"Cannot read {path}: {problem.strerror}", "Fix its permissions, or remove it") from None
    import tomllib

    try:
        return tomllib.loads(raw.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path} is not TOML: {problem}", "Correct the line, or remove the file") from None
