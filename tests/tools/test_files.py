"""read_file: a part of a file, a directory, or what to do instead."""

from __future__ import annotations

import os

import pytest

from .conftest import Box


def test_a_file_is_shown_with_what_it_is(box):
    box.write("a.py", "one\ntwo\nthree\n")
    assert box("read_file", path="a.py") == "[3 lines]\none\ntwo\nthree"
    assert box.result.detail["files"] == {"read": [str(box.root / "a.py")]}


def test_a_part_says_how_to_go_on(box):
    """offset and limit count lines; the last line names the next offset."""
    box.write("a", "".join(f"{n}\n" for n in range(1, 11)))
    assert box("read_file", path="a", offset=3, limit=2) == "[lines 3-4 of 10]\n3\n4\n[6 more lines: offset=5]"
    assert box("read_file", path="a", offset=9) == "[lines 9-10 of 10]\n9\n10"
    assert box("read_file", path="a", offset=99) == "[lines 10-10 of 10]\n10"
    assert box("read_file", path="a", offset=-2) == "[lines 9-10 of 10]\n9\n10"
    assert box("read_file", path="a", offset=0, limit=0) == "[lines 1-1 of 10]\n1\n[9 more lines: offset=2]"


def test_lines_are_numbered_when_asked_for(box):
    """Their own numbers in the file, also in a part of it and where control characters are shown."""
    box.write("a", "one\ntwo\x1b\nthree\n")
    assert box("read_file", path="a", numbers=True, offset=2) == (
        "[lines 2-3 of 3; control characters shown as escapes]\n2\ttwo\\x1b\n3\tthree"
    )
    assert box("read_file", path="a", numbers=False, limit=1) == "[lines 1-1 of 3]\none\n[2 more lines: offset=2]"


FORMS = [
    (b"", "[ROOT/a is empty]"),
    (b"x", "[1 line; no newline at the end]\nx"),
    (b"x\r\ny\r\n", "[2 lines; CRLF line ends]\nx\ny"),
    (b"\xef\xbb\xbfx\n", "[1 line; UTF-8 with a byte order mark]\nx"),
    ("é\n".encode("latin-1"), "[1 line; not UTF-8, read as Latin-1]\né"),
    ("\ufeffhi\n".encode("utf-16-le"), "[1 line; UTF-16-LE]\nhi"),
    (b"a\x1b[31mb\n", "[1 line; control characters shown as escapes]\na\\x1b[31mb"),
    ("汉字😀\n".encode(), "[1 line]\n汉字😀"),
]


@pytest.mark.parametrize(("raw", "shown"), FORMS)
def test_every_form_of_text_is_read_and_named(box, raw, shown):
    box.write("a", raw)
    assert box("read_file", path="a") == shown


BINARY = [
    (b"\x89PNG\r\n\x1a\n\x00\x00", "a PNG image of 10 bytes"),
    (b"\xff\xd8\xff\xe0abc", "a JPEG image of 7 bytes"),
    (b"%PDF-1.7\n\xe2\xe3\xcf\xd3", "a PDF document of 13 bytes"),
    (b"\x7fELF\x02\x01\x00", "an ELF program of 7 bytes"),
    (b"ab\x00cd", "binary data of 5 bytes"),
]


@pytest.mark.parametrize(("raw", "kind"), BINARY)
def test_binary_files_are_refused_by_kind_and_size(box, raw, kind):
    box.write("a", raw)
    assert box("read_file", path="a") == (
        f"ROOT/a is {kind}, not text: it cannot be shown. Use bash with a program that knows the format."
    )


def test_a_directory_is_listed(box):
    box.write("src/a.py", "")
    box.write("B\x1b[1m", "")
    (box.root / "link").symlink_to("src")
    assert box("read_file", path=".") == "[directory ROOT: 3 entries]\nB\\x1b[1m\nlink@\nsrc/"


def test_a_wrong_path_names_the_near_ones(box):
    """One step back: the model gets the path it probably meant."""
    box.write("src/Parser.py", "")
    box.write("src/other.txt", "")
    assert box("read_file", path="src/parsre.py") == "src/parsre.py does not exist. Near it: ROOT/src/Parser.py."
    assert box("read_file", path="scr/parser.py") == "scr/parser.py does not exist. Near it: ROOT/src."
    assert box("read_file", path="zzzzzz") == "zzzzzz does not exist. ROOT exists: read_file lists it."


def test_a_result_never_exceeds_its_share(tmp_path):
    """A long file stops at whole lines; a line too long for all of it keeps its ends."""
    from agent.tokens import estimate

    box = Box(tmp_path, result_cap=300)
    box.write("long", "some words in a line\n" * 1000)
    text = box("read_file", path="long")
    assert text.splitlines()[0].startswith("[lines 1-") and text.splitlines()[-1].endswith("]")
    assert estimate(text) <= 300
    box.write("wide", "汉" * 500_000 + "\nnext\n")
    text = box("read_file", path="wide")
    assert estimate(text) <= 300
    assert text.startswith("[line 1 of 2, 500,000 characters]\n汉汉")
    assert text.endswith("汉汉\n[1 more lines: offset=2]")


def test_a_fifo_and_a_device_are_refused_and_not_waited_for(box):
    os.mkfifo(box.root / "pipe")
    assert box("read_file", path="pipe") == "ROOT/pipe is a FIFO, not a file or a directory."


def test_a_huge_file_is_not_loaded(box):
    with open(box.root / "huge", "wb") as file:
        file.truncate(10 << 30)
    assert box("read_file", path="huge") == (
        "ROOT/huge has 10,737,418,240 bytes, too many to read here (largest 33,554,432). Use bash: grep, head, tail, "
        "or sed -n FROM,TOp."
    )
