"""Arguments: lenient where it is harmless, never mended where it is not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.arguments import BadArguments, parse
from agent.tools.edits import EditFile, WriteFile
from agent.tools.files import ReadFile
from agent.tools.shell import Bash

HARMLESS = [
    (ReadFile, '{"path": "a", "limit": "20"}', {"path": "a", "limit": 20}),
    (ReadFile, '{"path": "a", "limit": 20.0}', {"path": "a", "limit": 20}),
    (ReadFile, '{"path": "a", "limit": null, "offset": null}', {"path": "a"}),
    (ReadFile, '{"file_path": "a"}', {"path": "a"}),
    (ReadFile, '{"path": null, "filename": "a"}', {"path": "a"}),
    (ReadFile, '"{\\"path\\": \\"a\\"}"', {"path": "a"}),
    (ReadFile, ' {"path": "a"}\n', {"path": "a"}),
    (Bash, '{"cmd": "ls", "timeout": "5"}', {"command": "ls", "timeout": 5}),
    (Bash, '{"command": "a\nb"}', {"command": "a\nb"}),
    (WriteFile, '{"path": "a", "content": 5}', {"path": "a", "content": "5"}),
    (WriteFile, '{"path": "a", "file_text": "x"}', {"path": "a", "content": "x"}),
    (
        EditFile,
        '{"path": "a", "edits": [{"old": "x", "new": "y"}]}',
        {"path": "a", "edits": [{"old": "x", "new": "y"}]},
    ),
    (EditFile, '{"path": "a", "edits": {"old": "x", "new": "y"}}', {"path": "a", "edits": [{"old": "x", "new": "y"}]}),
    (EditFile, '{"path": "a", "old_string": "x", "new_string": ""}', {"path": "a", "edits": [{"old": "x", "new": ""}]}),
    (
        EditFile,
        '{"path":"a","edits":"[{\\"old\\":\\"x\\",\\"new\\":\\"y\\"}]"}',
        {"path": "a", "edits": [{"old": "x", "new": "y"}]},
    ),
    (
        EditFile,
        '{"path":"a","edits":[{"oldText":"x","newText":"y"}]}',
        {"path": "a", "edits": [{"old": "x", "new": "y"}]},
    ),
]


@pytest.mark.parametrize(("tool", "text", "expected"), HARMLESS)
def test_harmless_deviations_are_understood(tool, text, expected):
    """Each is what some model writes, and can mean one thing only."""
    assert parse(tool.schema, text) == (expected, [])


def test_unknown_arguments_are_ignored_and_named():
    """A model that invents an option learns that it had no effect."""
    args, notes = parse(ReadFile.schema, '{"path": "a", "encoding": "utf-8"}')
    assert (args, notes) == ({"path": "a"}, ['ignored unknown argument "encoding"'])


FORM = "Send bash{command: string, timeout?: integer}"
BROKEN = [
    (
        '{"command": "rm -rf bui',
        "The arguments end in the middle (23 characters came): the output was cut, so nothing "
        "was run and no file was touched. Send the whole call again; if it is long, in smaller parts. Form: "
        "bash{command: string, timeout?: integer}",
    ),
    ('{"command": "ls"', None),
    ('{"command": "ls",', None),
    ('{"command": ', None),
    ("{", None),
    ("[]", f"The arguments are a list, not a JSON object. Nothing was run. {FORM}"),
    ('"ls"', None),
    ("3", f"The arguments are a number, not a JSON object. Nothing was run. {FORM}"),
    ("", f"Missing: command. Nothing was run. {FORM}"),
    ("null", f"Missing: command. Nothing was run. {FORM}"),
    ("{}", f"Missing: command. Nothing was run. {FORM}"),
    ('{"command": ["ls", "-l"]}', f'command is a list, not string: ["ls", "-l"]. Nothing was run. {FORM}'),
    ('{"command": true}', f"command is a boolean, not string: true. Nothing was run. {FORM}"),
    ('{"command": "ls", "timeout": "soon"}', f'timeout is a string, not integer: "soon". Nothing was run. {FORM}'),
    ('{"command": "ls", "timeout": 1e999}', None),
    ('{"command": "ls"} {"command": "ls"}', None),
    ("[" * 100_000, None),
    ("{'command': 'ls'}", None),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_broken_arguments_say_what_to_send(text, message):
    """Nothing is mended: the refusal names the fault and the form."""
    with pytest.raises(BadArguments) as caught:
        parse(Bash.schema, text)
    assert message is None or str(caught.value) == message
    assert "bash{command: string, timeout?: integer}" in str(caught.value)


@given(st.dictionaries(st.sampled_from(["path", "content"]), st.text(), min_size=2), st.integers(0, 200))
def test_no_proper_prefix_of_a_call_is_executed(args, cut):
    """However a call is cut, it does not pass for a whole one."""
    text = json.dumps(args)
    prefix = text[: min(cut, len(text) - 1)]
    with pytest.raises(BadArguments):
        parse(WriteFile.schema, prefix)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_json_gives_arguments_or_a_refusal(value):
    """Total: whatever a model sends, there is an answer."""
    for tool in (ReadFile, WriteFile, EditFile, Bash):
        try:
            args, _ = parse(tool.schema, json.dumps(value))
        except BadArguments as refusal:
            assert tool.name in str(refusal)
        else:
            assert set(args) <= set(tool.schema["function"]["parameters"]["properties"])
