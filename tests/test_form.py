"""The form of a summary: headings, as text or as JSON."""

from __future__ import annotations

import json
from typing import Any

import fastjsonschema
import pytest

from agent import tokens
from agent.compaction import form


@pytest.mark.parametrize("as_json", [False, True])
def test_the_instruction_names_every_heading_the_cap_and_the_users_wishes(as_json: bool) -> None:
    for window in (700, 8192, 200_000):
        order = form.instruction(400, window, "keep API names", as_json=as_json)
        assert all(f"## {name}" in order for name in form.HEADINGS)
        assert "200 words" in order and order.endswith("keep API names") and ("JSON" in order) == as_json
    assert tokens.estimate(form.instruction(64, 700)) < 110


WHOLE: dict[str, Any] = {name: [f"about {name}", "and more"] for name in form.HEADINGS}


def test_the_schema_takes_every_heading_once_and_nothing_else() -> None:
    check = fastjsonschema.compile(form.response_format()["json_schema"]["schema"])
    check(WHOLE)
    for wrong in ({**WHOLE, "Goal": "text"}, {**WHOLE, "Extra": []}, {k: v for k, v in WHOLE.items() if k != "Open"}):
        with pytest.raises(fastjsonschema.JsonSchemaValueException):
            check(wrong)


def test_json_becomes_text_with_headings() -> None:
    text = form.read(json.dumps({**WHOLE, "Open": []}, indent=1))
    assert text.startswith("## Goal\n- about Goal\n- and more\n## Done\n- about Done")
    assert "## Open\n- none\n## Constraints" in text


@pytest.mark.parametrize(
    "around",
    ["{}", "```json\n{}\n```", "Here it is:\n{}\nHope this helps.", "<think>Let me see.</think>{}", "\ufeff{}"],
)
def test_json_is_found_in_what_models_put_around_it(around: str) -> None:
    told = json.dumps({name.upper(): lines for name, lines in WHOLE.items()})
    assert form.read(around.replace("{}", told)) == form.read(json.dumps(WHOLE))


def test_json_is_found_beside_other_braces_and_with_raw_line_ends() -> None:
    good = json.dumps(WHOLE)
    for answer in (
        f"<think>use {{a}}</think>\n{good}",
        f"```json\n{good}\n```\nuse }} well",
        good.replace("and more", "and\nmore"),
    ):
        assert form.read(answer) == form.read(good), answer


@pytest.mark.parametrize("depth", [400, 900, 5000])
def test_brackets_of_a_stuck_model_are_no_summary_and_no_crash(depth: int) -> None:
    deep = (
        '{"Goal": '
        + "[" * depth
        + '"x"'
        + "]" * depth
        + ", "
        + json.dumps({**WHOLE, "Goal": []})[1:].replace('"Goal": [], ', "")
    )
    assert isinstance(form.read(deep), str)
    assert form.read("[" * depth) == "[" * depth


def test_what_is_no_text_under_a_heading_becomes_some_or_goes() -> None:
    odd = {
        **WHOLE,
        "Goal": "One line.",
        "Done": [1, None, True, ["a", ["b"]], {"k": "v"}, "two\nlines"],
        "Open": [None],
    }
    text = form.read(json.dumps(odd))
    assert text.startswith("## Goal\n- One line.\n## Done\n- 1\n- a; b\n- k: v\n- two lines\n## Facts")
    assert "## Open\n- none\n## Constraints" in text


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "## Goal\n- x",
        "{",
        '{"Goal": "x"}',
        "{}",
        '{"Goal": [1]}',
        "[1]",
        '"Goal"',
        json.dumps({**WHOLE, "Done": None}),
    ],
)
def test_what_is_not_of_the_form_is_left_to_be_judged_as_it_is(answer: str) -> None:
    assert form.read(answer) == answer
