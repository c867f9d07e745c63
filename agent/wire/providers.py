"""Whom to talk to: a model's name, the environment and the aliases of the configuration -> a `Target`.

The table holds what is known of a provider: its address, the usual variable of its key, its dialect, and whether it
tells its windows. Any other server is reached by its base URL and spoken to in plain chat completions. Local servers
are found by name only (`ollama/NAME`, `lmstudio/NAME`, `llamacpp`, `vllm/NAME`), never by looking for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from agent.errors import ConfigError
from agent.wire import Dialect


class Provider(NamedTuple):
    """A row of the table. `families` are beginnings of its own models' names; `default` the model used when only its
    key is set; `asks` whether its /models states windows; `local` a server on this machine, which needs no key."""

    name: str
    base_url: str
    keys: tuple[str, ...] = ()
    dialect: Dialect = Dialect()
    families: tuple[str, ...] = ()
    default: str = ""
    asks: bool = False
    local: bool = False
    hosts: tuple[str, ...] = ()


_THINKS = Dialect(reasoning="calls")
TABLE: tuple[Provider, ...] = (
    Provider("openai", "https://api.openai.com/v1", ("OPENAI_API_KEY",), Dialect(output_cap="max_completion_tokens"),
             ("gpt-", "o1", "o3", "o4", "chatgpt"), "gpt-5-mini", hosts=("openai.azure.com",)),
    Provider("deepseek", "https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",), _THINKS, ("deepseek",), "deepseek-chat"),
    Provider("moonshot", "https://api.moonshot.cn/v1", ("MOONSHOT_API_KEY", "KIMI_API_KEY"), _THINKS,
             ("kimi", "moonshot"), "kimi-k2.5", True, hosts=("api.moonshot.ai", "api.kimi.com")),
    Provider("dashscope", "https://dashscope.aliyuncs.com/compatible-mode/v1", ("DASHSCOPE_API_KEY",), Dialect(),
             ("qwen", "qwq"), "qwen3-max", hosts=("dashscope-intl.aliyuncs.com",)),
    Provider("zhipu", "https://open.bigmodel.cn/api/paas/v4", ("ZHIPUAI_API_KEY", "ZAI_API_KEY"), Dialect(), ("glm",),
             "glm-4.7", hosts=("api.z.ai",)),
    Provider("siliconflow", "https://api.siliconflow.cn/v1", ("SILICONFLOW_API_KEY",), asks=True,
             hosts=("api.siliconflow.com",)),
    Provider("minimax", "https://api.minimaxi.com/v1", ("MINIMAX_API_KEY",), Dialect(reasoning="inline"), ("minimax",),
             "MiniMax-M2", hosts=("api.minimax.io",)),
    Provider("openrouter", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",), Dialect(details=True), asks=True),
    Provider("groq", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",), asks=True),
    Provider("anthropic", "https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY",), Dialect(), ("claude",),
             "claude-sonnet-4-5", True),
    Provider("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
             Dialect(signatures=True), ("gemini",), "gemini-2.5-flash"),
    Provider("mistral", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",),
             Dialect(ids="alnum9", alternate=True, drop=("stream_options",)), ("mistral", "codestral", "devstral", "magistral"),
             "mistral-medium-latest", True),
    Provider("xai", "https://api.x.ai/v1", ("XAI_API_KEY",), Dialect(), ("grok",), "grok-4"),
    Provider("together", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",), asks=True),
    Provider("fireworks", "https://api.fireworks.ai/inference/v1", ("FIREWORKS_API_KEY",), asks=True),
    Provider("cerebras", "https://api.cerebras.ai/v1", ("CEREBRAS_API_KEY",)),
    Provider("perplexity", "https://api.perplexity.ai", ("PERPLEXITY_API_KEY",), Dialect(alternate=True), ("sonar",)),
    Provider("novita", "https://api.novita.ai/v3/openai", ("NOVITA_API_KEY",), asks=True),
    Provider("ollama", "http://127.0.0.1:11434/v1", ("OLLAMA_API_KEY",), asks=True, local=True),
    Provider("lmstudio", "http://127.0.0.1:1234/v1", ("LMSTUDIO_API_KEY",), asks=True, local=True),
    Provider("llamacpp", "http://127.0.0.1:8080/v1", ("LLAMA_API_KEY",), default="default", asks=True, local=True),
    Provider("vllm", "http://127.0.0.1:8000/v1", ("VLLM_API_KEY",), asks=True, local=True),
)  # fmt: skip
BY_NAME = {p.name: p for p in TABLE} | {
    "llama.cpp": next(p for p in TABLE if p.name == "llamacpp"),
    "kimi": next(p for p in TABLE if p.name == "moonshot"),
    "google": next(p for p in TABLE if p.name == "gemini"),
    "zai": next(p for p in TABLE if p.name == "zhipu"),
}
_SCHEMAS = {
    **dict.fromkeys(("ollama", "lmstudio", "llamacpp", "local", "vllm"), "sampling"),
    **dict.fromkeys(("openai", "gemini", "mistral", "xai"), "prompt"),
}
"""Who holds an answer to a JSON schema, and how (`messages.Model.structured`). OpenAI says of its own that the schema is
a prefix of the system message; of the others that is assumed."""
_AGGREGATORS = {"openrouter", "siliconflow", "together", "fireworks", "novita"}


class Target(NamedTuple):
    """One model on one server. `provider` is "" for a server that is not in the table; `key_variable` names where the
    key came from; `source` says how the server was chosen."""

    provider: str
    base_url: str
    model: str
    api_key: str = ""
    dialect: Dialect = Dialect()
    headers: Mapping[str, str] = {}
    key_variable: str = ""
    source: str = ""

    def __repr__(self) -> str:
        """Without the key and the headers, so that no traceback shows them."""
        return f"Target({self.provider!r}, {self.base_url!r}, {self.model!r}, {self.key_variable!r}, {self.source!r})"

    @property
    def loopback(self) -> bool:
        """Whether the server is on this machine."""
        return is_loopback(self.base_url)


def unused_key(spec: str | None, target: Target, environ: Mapping[str, str]) -> str:
    """A sentence for a run that takes another server than a key that is set suggests; "" for any other."""
    if target.provider == "local":
        ready = next((p for p in TABLE if not p.local and not p.default and _key(p, environ)[0]), None)
        return (
            f"{_key(ready, environ)[1]} is set, but no model is named: -m {ready.name}/NAME"
            if ready and not spec
            else ""
        )
    named = BY_NAME.get((spec or "").partition("/")[0].lower())
    elsewhere = target.source == "OPENAI_BASE_URL" and target.provider not in _AGGREGATORS
    key, variable = _key(named, environ) if named else ("", "")
    if named and "/" in (spec or "") and elsewhere and key and variable != target.key_variable:
        return f"{spec} is sent to OPENAI_BASE_URL ({target.base_url}); unset that to use {named.name} directly"
    return ""


def resolve(
    spec: str | None,
    environ: Mapping[str, str],
    aliases: Mapping[str, Any] | None = None,
    *,
    base_url: str | None = None,
) -> Target:
    """The target for a model name: an alias, `provider/model`, or a model of the server named by `base_url` (a setting)
    or OPENAI_BASE_URL, or of the provider its name belongs to. None: the default model of the first provider whose key
    is set.

    Raises: `ConfigError`; its kind is "no_server" when neither a key nor a server is configured.
    """
    spec = (spec or "").strip()
    alias = (aliases or {}).get(spec)
    if isinstance(alias, str):
        spec = alias
    elif isinstance(alias, Mapping):
        return _from_alias(spec, alias, environ)
    stated = base_url or environ.get("OPENAI_BASE_URL", "").strip()
    head, slash, rest = spec.partition("/")
    named = BY_NAME.get(head.lower()) if slash or head.lower() in BY_NAME else None
    if stated:
        own = provider_at(stated)
        if named is None or (named == own and own.name in _AGGREGATORS) or not _prefers(named, own, environ):
            return _at(stated, spec, environ, "base_url setting" if base_url else "OPENAI_BASE_URL")
    if named is not None:
        return _of(named, rest, environ, "model name")
    return _by_model(spec, environ) if spec else _first_ready(environ)


def _by_model(spec: str, environ: Mapping[str, str]) -> Target:
    """The target for a model's bare name. Raises: ConfigError."""
    try:
        return _of(_by_family(spec), spec, environ, "model name")
    except ConfigError as refused:
        head, slash, _ = spec.partition("/")
        if _family(spec):
            raise
        if slash and not head.strip("."):
            raise ConfigError(f"{spec!r} is no model, and no GGUF file", "See: agent models") from None
        if slash:
            hint = "`agent models` lists them; another server: OPENAI_BASE_URL"
            raise ConfigError(f"There is no provider {head!r}", hint) from None
        text = f"No provider is known for the model {spec!r}, and there is no key for openai"
        raise ConfigError(text, refused.hint) from None


def _first_ready(environ: Mapping[str, str]) -> Target:
    """The default model of the first provider whose key is set. Raises: ConfigError, of the kind "no_server"."""
    found = next((p for p in TABLE if p.default and not p.local and _key(p, environ)[0]), None)
    if found is None:
        error = ConfigError(
            "No model and no server is configured",
            "Set OPENAI_API_KEY, or OPENAI_BASE_URL and MODEL, or name a local model: agent -m ollama/NAME",
        )
        error.kind = "no_server"
        raise error
    return _of(found, found.default, environ, _key(found, environ)[1])


def provider_at(base_url: str) -> Provider | None:
    """The provider of the table that lives at this address."""
    parts = urlsplit(normal_url(base_url)[0])
    host = (parts.hostname or "").lower()
    for provider in TABLE:
        home = urlsplit(provider.base_url)
        if provider.local:
            if is_loopback(base_url) and parts.port == home.port:
                return provider
        elif host == home.hostname or any(host == h or host.endswith("." + h) for h in provider.hosts):
            return provider
    return None


def structured(target: Target) -> str:
    """How the server of a target is known to hold an answer to a JSON schema (`messages.Model.structured`)."""
    provider = provider_at(target.base_url)
    return _SCHEMAS.get(target.provider or (provider.name if provider else ""), "")


def normal_url(url: str) -> tuple[str, dict[str, str]]:
    """A base URL as it is used, and the headers that its user part stands for.

    A missing scheme is http on loopback and https elsewhere; an empty path becomes /v1; "/chat/completions" and
    slashes at the end go. Raises: `ConfigError` for what is no URL.
    """
    url = url.strip().strip("'\"")
    if "://" not in url:
        url = ("http://" if is_loopback("http://" + url) else "https://") + url
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"The base URL is not valid: {error}", "It looks like https://host/v1") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"\s", parts.netloc):
        raise ConfigError("The base URL is not valid", "It looks like https://host/v1")
    headers = {}
    if parts.username is not None:
        import base64

        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = re.sub(r"(?:/chat/completions)?/*$", "", parts.path) or "/v1"
    netloc = f"{host}:{port}" if port else host
    return urlunsplit((parts.scheme, netloc, path, parts.query, "")), headers


def is_loopback(url: str) -> bool:
    """Whether a URL points to this machine."""
    try:
        host = (urlsplit(url).hostname or "").lower()
    except ValueError:
        return False
    return host in ("localhost", "::1", "0.0.0.0") or host.endswith(".localhost") or bool(re.match(r"127\.\d", host))


def _of(provider: Provider, model: str, environ: Mapping[str, str], source: str) -> Target:
    """A target at a provider of the table. Raises: `ConfigError` without a model, or without the key it needs."""
    key, variable = _key(provider, environ)
    if not key and not provider.local:
        wanted = " or ".join(provider.keys)
        raise ConfigError(f"No API key for {provider.name}", f"Set {wanted}, or OPENAI_BASE_URL for another server")
    model = model or provider.default
    if not model:
        raise ConfigError(f"No model is named for {provider.name}", f"For instance: agent -m {provider.name}/NAME")
    url = provider.base_url
    if provider.name == "ollama" and environ.get("OLLAMA_HOST"):
        url = environ["OLLAMA_HOST"].replace("0.0.0.0", "127.0.0.1")
    url, headers = normal_url(url)
    return Target(provider.name, url, model, _clean_key(key, variable), provider.dialect, headers, variable, source)


def _at(stated: str, model: str, environ: Mapping[str, str], source: str) -> Target:
    """A target at a stated base URL. Raises: `ConfigError` without a model."""
    url, headers = normal_url(stated)
    provider = provider_at(url)
    if provider and model.lower().startswith(f"{provider.name}/") and provider.name not in _AGGREGATORS:
        model = model.partition("/")[2]
    model = model or (provider.default if provider else "")
    if not model:
        error = ConfigError("No model is named for this server", "Name one: agent -m NAME, or set MODEL")
        error.kind = "no_model"
        raise error
    key, variable = _clean_key(environ.get("OPENAI_API_KEY", "").strip(), "OPENAI_API_KEY"), "OPENAI_API_KEY"
    if not key and provider:
        key, variable = _key(provider, environ)
    dialect = provider.dialect if provider else Dialect()
    return Target(provider.name if provider else "", url, model, key, dialect, headers, variable if key else "", source)


def _from_alias(name: str, alias: Mapping[str, Any], environ: Mapping[str, str]) -> Target:
    """A target from a table of the configuration: model, provider or base_url, key_variable, headers, dialect."""
    model, url = str(alias.get("model") or name), alias.get("base_url")
    provider = BY_NAME.get(str(alias.get("provider", "")).lower())
    variable = str(alias.get("key_variable") or "")
    if url:
        found = _at(str(url), model, environ, f"alias {name}")
    else:
        found = _of(
            provider or _by_family(model),
            model,
            {**environ, **_lent(provider, variable, environ)},
            f"alias {name}",
        )
    if variable:
        found = found._replace(api_key=_clean_key(environ.get(variable, "").strip(), variable), key_variable=variable)
    if isinstance(alias.get("headers"), Mapping):
        found = found._replace(headers={**found.headers, **{str(k): str(v) for k, v in alias["headers"].items()}})
    if isinstance(alias.get("dialect"), Mapping):
        found = found._replace(dialect=Dialect.from_json({**found.dialect.as_json(), **alias["dialect"]}))
    return found


def _lent(provider: Provider | None, variable: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The key that an alias names, under the provider's own variable."""
    return {provider.keys[0]: environ.get(variable, "")} if provider and variable and provider.keys else {}


def _by_family(model: str) -> Provider:
    """Whose model this is by its name; else OpenAI."""
    return _family(model) or BY_NAME["openai"]


def _family(model: str) -> Provider | None:
    """The provider whose own models begin like this one."""
    return next((p for p in TABLE if p.families and model.lower().startswith(p.families)), None)


def _prefers(named: Provider, own: Provider | None, environ: Mapping[str, str]) -> bool:
    """Whether `provider/model` means that provider although a base URL is set: it is local, or its own key is set and
    the server at the base URL does not itself use such names."""
    if named == own:
        return False
    if named.local:
        return True
    return (
        bool(_key(named, environ)[0]) and named.name != "openai" and (own is not None and own.name not in _AGGREGATORS)
    )


def _key(provider: Provider, environ: Mapping[str, str]) -> tuple[str, str]:
    for variable in provider.keys:
        if environ.get(variable, "").strip():
            return environ[variable].strip(), variable
    return "", ""


def _clean_key(key: str, variable: str) -> str:
    """Raises `ConfigError` for a key that cannot stand in a header; the key itself is not repeated."""
    if key and not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"{variable} contains characters that cannot be in an API key", "Set it again, without quotes or line ends"
        )
    return key
