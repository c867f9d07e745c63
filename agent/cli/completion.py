"""Shell completion: three small scripts, and the one function that says what may come next.

The scripts ask `agent completion words -- WORD... CURRENT` for candidates, one a line as `candidate<TAB>description`.
Only file names and the ends of session files are read: no model, no network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

SCRIPTS = {
    "bash": """\
# agent: completion for bash. To use it: eval "$(agent completion bash)"
_agent_complete() {
    local IFS=$'\\n'
    COMPREPLY=($(agent completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
    [[ ${#COMPREPLY[@]} -gt 0 ]] || COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o filenames -F _agent_complete agent oneshot-agent
""",
    "zsh": """\
# agent: completion for zsh. To use it: eval "$(agent completion zsh)"
_agent_complete() {
    local -a candidates
    candidates=(${(f)"$(agent completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null | sed 's/:/\\\\:/g; s/\\t/:/')"})
    if (( ${#candidates} )); then _describe agent candidates; else _files; fi
}
compdef _agent_complete agent oneshot-agent
""",
    "fish": """\
# agent: completion for fish. To use it: agent completion fish | source
function __agent_words
    set -l found (agent completion words -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
    if test -n "$found"; printf '%s\\n' $found; else; __fish_complete_path (commandline -ct); end
end
complete -c agent -f -a '(__agent_words)'
complete -c oneshot-agent -w agent
""",
}

Candidate = tuple[str, str]
"""What may be typed, and a description ("" for none)."""

CHOICES = {
    "--sandbox": ("read-only", "workspace-write", "off"),
    "--color": ("auto", "always", "never"),
    "--output-format": ("text", "json", "stream-json"),
    "--tools": ("read_file", "write_file", "edit_file", "bash", "recall"),
    "--compact-at": ("0.75", "off"),
    "--strategy": ("pruned", "window_plus_summary", "raw_fallback"),
}
TEXTS = ("--from", "--cwd", "--older-than", "--keep", "--instructions", "--at", "--session-dir", "-n", "--limit")
"""What follows these options of the verbs cannot be guessed."""
SESSION_FLAGS = ("-c", "--continue")
MODEL_FLAGS = ("-m", "--model", "--summary-model")


def candidates(
    words: Sequence[str],
    commands: Sequence[str],
    verbs: Sequence[str],
    options: Callable[[], Iterable[Candidate]],
    sessions: Callable[[], Iterable[Candidate]],
    models: Callable[[], Iterable[str]],
) -> list[Candidate]:
    """What may stand in place of the last of `words`; [] leaves it to file names.

    `options`, `sessions` and `models` are called only where they are needed, since they look things up.
    """
    *before, current = words or [""]
    previous = before[-1] if before else ""
    found: Iterable[Candidate]
    if previous in SESSION_FLAGS:
        found = [("last", "the newest session of this directory"), *sessions()]
    elif previous in MODEL_FLAGS:
        found = [(name, "") for name in models()]
    elif before[:1] == ["sessions"] and previous == "--format":
        found = [(form, "") for form in ("md", "json", "jsonl", "html")]
    elif before[:1] == ["sessions"] and previous in TEXTS:
        found = []
    elif previous in CHOICES:
        found = [(word, "") for word in CHOICES[previous]]
    elif before[:1] == ["sessions"] and not current.startswith("-"):
        found = [(verb, "") for verb in verbs] if len(before) == 1 else sessions()
    elif before == ["completion"]:
        found = [(shell, "") for shell in SCRIPTS]
    elif before == ["config"]:
        found = [("show", ""), ("path", "")]
    elif before == ["doctor"]:
        found = sessions()
    elif current.startswith("-"):
        found = options()
    elif not before:
        found = [(command, "") for command in commands]
    else:
        found = []
    return [candidate for candidate in found if candidate[0].startswith(current)]


def lines(found: Iterable[Candidate]) -> str:
    """The answer to a script: descriptions have no tabs or newlines."""
    return "".join(f"{word}\t{' '.join(about.split())}\n" if about else f"{word}\n" for word, about in found)


def model_names(aliases: Mapping[str, str], providers: Iterable[str]) -> list[str]:
    """Aliases, the built-in model, and each provider with its slash."""
    return [*aliases, "smollm2", *(f"{name}/" for name in providers)]
