"""What counts as a hard fact in a text, in English and in Chinese."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import anchors


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("see https://example.org/a/b?x=1, then go on", {"https://example.org/a/b?x=1"}),
        ("it broke in ./src/app/main.py and README.md", {"./src/app/main.py", "README.md"}),
        ("C:\\Users\\me\\file.txt is gone", {"C:\\Users\\me\\file.txt"}),
        ("ETIMEDOUT, then a ValueError and SIGKILL", {"ETIMEDOUT", "ValueError", "SIGKILL"}),
        ("error TS2345, ticket ABC-1234, see #4711", {"TS2345", "ABC-1234", "#4711"}),
        ("Go 1.26, numpy 2.1.0rc1, v3.4", {"1.26", "2.1.0rc1", "v3.4"}),
        ("commit d316759c281bf925 on heron-42", {"d316759c281bf925", "heron-42"}),
        ("id 123e4567-e89b-12d3-a456-426614174000", {"123e4567-e89b-12d3-a456-426614174000"}),
        ("on 2024-05-14T10:44:24 at 11:30", {"2024-05-14T10:44:24", "11:30"}),
        ("it takes 250 ms and 4,096 MB, costs $1,200", {"250 ms", "4,096 MB", "$1,200"}),
        ("the flag is HTB{l00k_47_y0u}", {"HTB{l00k_47_y0u}"}),
        ("call read_file, getUserName or --dry-run", {"read_file", "getUserName", "--dry-run"}),
        ("we met Marta Lindqvist in Green Meadow Park", {"Marta Lindqvist", "Green Meadow Park"}),
        ("the project is called phoenix", {"phoenix"}),
        ("port: 8080", {"8080"}),
        ("phoenix 用 Go 1.26 写，有 read_file 和 write_file", {"1.26", "read_file", "write_file"}),
        ("成本是2900万美元，导演为马克·韦布", {"2900万美元", "马克·韦布"}),
        ("他毕业于中央戏剧学院，看过《流浪地球》", {"中央戏剧学院", "《流浪地球》"}),
        ("电话010-85007938，9月1日开放", {"010-85007938", "9月1日"}),
        ("**Total Cost:** **$239**, 他是会计", {"$239", "会计"}),
        ("**Owner:** alice", {"alice"}),
        ("country: IT, mode: ON", {"IT", "ON"}),
        ("担当：太田，公司是太保", {"太田", "太保"}),
        ('{"name": "Bob", "phone": "010-8500"}', {'"Bob"', '"010-8500"'}),
    ],
)
def test_kinds_of_facts(text: str, wanted: set[str]) -> None:
    found = {anchor.text for anchor in anchors.find(text)}
    assert wanted <= found, found


@pytest.mark.parametrize(
    "text",
    [
        "I think we should go on with it tomorrow.",
        "它是什么？",
        "that is not what it was",
        "好的，没问题，谢谢你。",
        "these are really good and they were about done",
        "这些都是不错的地方，他是一位非常棒的演员",
        "它的门票是多少",
        "",
    ],
)
def test_small_talk_holds_none(text: str) -> None:
    assert anchors.find(text) == []


@given(st.text())
def test_finding_is_total_and_every_anchor_stands_where_it_says(text: str) -> None:
    for anchor in anchors.find(text):
        assert text[anchor.start :].startswith(anchor.text) and anchor.weight > 0


@given(st.text())
def test_folding_is_stable(text: str) -> None:
    assert anchors.fold(anchors.fold(text)) == anchors.fold(text)


def test_folding_hides_case_width_and_punctuation() -> None:
    assert anchors.fold("Ｆｏｏ-Bar 1,000。") == anchors.fold("foo bar 1000") == "foobar1000"
    assert anchors.missing(["Foo-Bar", "baz"], "we use FOO BAR here") == ["baz"]


def test_a_megabyte_on_one_line_takes_no_time() -> None:
    """No pattern is quadratic: unbroken runs of each class, half a megabyte of each, would take hours if one were."""
    started = time.perf_counter()
    for run in ("a", "A", "0", "a1", "-", "/", ".", "a.", "中", '"', "{", "_", "a-1"):
        anchors.find(run * (500_000 // len(run)))
    assert time.perf_counter() - started < 20
