"""write_file and edit_file: only what was read, only what was named, never a half."""

from __future__ import annotations

import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools import edits, matching, paths, textform
from agent.tools.matching import Edit


def edit(box, path, *pairs):
    return box("edit_file", path=path, edits=[{"old": old, "new": new} for old, new in pairs])


def test_create_read_edit(box):
    """The everyday path, with directories made on the way."""
    assert (
        box("write_file", path="src/a.py", content="def f():\n    return 1\n")
        == "Created ROOT/src/a.py (2 lines, 22 bytes)."
    )
    assert edit(box, "src/a.py", ("return 1", "return 2"), ("def f", "def g")) == "Edited ROOT/src/a.py (2 edits)."
    assert (box.root / "src/a.py").read_text() == "def g():\n    return 2\n"
    assert box("write_file", path="src/a.py", content="x\n") == "Replaced ROOT/src/a.py (1 line, 2 bytes)."
    assert box("write_file", path="src/a.py", content="x\n") == "ROOT/src/a.py already has exactly this content."


def test_read_before_write(box):
    """What was not read, or has changed since, is not changed; reading it is the one step back."""
    box.write("a", "one\n")
    unread = "a was not changed. It exists and you have not read it. Call read_file on it, then repeat."
    assert box("write_file", path="a", content="x") == unread
    assert edit(box, "a", ("one", "two")) == unread
    box("read_file", path="a")
    box.write("a", "one more\n")
    stale = (
        "a was not changed. It has changed since you read it. Call read_file on it again, then make the change anew."
    )
    assert edit(box, "a", ("one", "two")) == stale
    assert (box.root / "a").read_text() == "one more\n"
    box("read_file", path="a")
    assert edit(box, "a", ("one", "two")) == "Edited ROOT/a (1 edit)."


NO_MATCH = [
    (
        "def f(x):\n    return x\n",
        "def g(x):",
        "old was not found. The nearest lines (the number and the tab are not part of the file):\n1\tdef f(x):",
    ),
    (
        "if a:\n\treturn  b\n",
        "if a:\n    return b",
        "old was not found, but lines 1-2 differ from it only in white space. Exactly:\n1\tif a:\n2\t\treturn  b",
    ),
    (
        "x = 1\ny = 2\nx = 1\n",
        "x = 1",
        "old occurs 2 times (lines 1, 3): it must occur once. Add the lines around the one you mean to old and new.",
    ),
    ("abc\n", "zzzzzz", "old was not found, nor anything like it. Read the file again."),
    ("abc\n", "", "old is empty. To fill or create a file use write_file."),
    ("abc\n", "n", None),
]


@pytest.mark.parametrize(("content", "old", "answer"), NO_MATCH)
def test_no_single_match_shows_what_is_there(box, content, old, answer):
    box.write("a", content)
    box("read_file", path="a")
    text = edit(box, "a", (old, "new"))
    assert answer is None or text == f"a was not changed. {answer}"
    assert not box.result.ok and (box.root / "a").read_text() == content


def test_several_edits_are_all_or_none(box):
    """The second fails: the first is not made either, and the answer says which it was."""
    box.write("a", "one\ntwo\n")
    box("read_file", path="a")
    assert edit(box, "a", ("one", "1"), ("three", "3")).startswith("a was not changed. edit 2 of 2: old was not found")
    assert (box.root / "a").read_text() == "one\ntwo\n"


FORMS = [
    (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n"),
    (b"a\r\nb\r\nc", "c", "x\ny", b"a\r\nb\r\nx\r\ny"),
    (b"a\r\nb\nc\n", "a\nb", "x\ny", b"x\r\ny\nc\n"),
    (b"a\r\nb\nc\n", "c", "x\ny", b"a\r\nb\nx\ny\n"),
    (b"a\nb", "b", "x", b"a\nx"),
    (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
    (b"caf\xe9\nb\n", "b", "\xe9", b"caf\xe9\n\xe9\n"),
    (b"\xff\xfea\x00\r\x00\n\x00", "a", "汉", b"\xff\xfe\x49\x6c\r\x00\n\x00"),
    ("汉字\n".encode(), "字", "😀", "汉😀\n".encode()),
    (b"a\rb\rc", "b", "x", b"a\rx\rc"),
    (b"a\x0cb\x1b[0m\n", "b", "x", b"a\x0cx\x1b[0m\n"),
    (b"", "x", "y", b""),
]


@pytest.mark.parametrize(("before", "old", "new", "after"), FORMS)
def test_only_the_named_bytes_change(box, before, old, new, after):
    """CRLF, mixed ends, no last newline, marks, Latin-1, UTF-16: everything else stays, byte for byte."""
    box.write("a", before)
    box("read_file", path="a")
    edit(box, "a", (old, new))
    assert (box.root / "a").read_bytes() == after


def test_what_the_encoding_cannot_hold_is_refused(box):
    box.write("a", b"caf\xe9\n")
    box("read_file", path="a")
    assert edit(box, "a", ("caf", "汉")) == (
        "a was not changed: character '\\u6c49' at 0 cannot be written in the file's encoding (latin-1)."
    )
    assert "cannot be written in the file's encoding (utf-8)" in box.raw(
        "write_file", '{"path":"b","content":"\\ud800"}'
    )
    assert not (box.root / "b").exists()


@given(
    st.lists(st.tuples(st.text(alphabet="abé", max_size=4), st.sampled_from(["\n", "\r\n"])), max_size=8),
    st.integers(0, 7),
    st.text(alphabet="xy\n", max_size=4),
)
def test_an_edit_leaves_the_rest_alone(lines, chosen, new):
    """For all texts of mixed line ends: before and after the match nothing differs."""
    text = "".join(line + end for line, end in lines)
    marked = f"{text}<<mark {chosen}>>{text}"
    result = matching.apply(marked, [Edit(f"<<mark {chosen}>>", new)])
    assert result.startswith(text) and result.endswith(text)
    assert result[len(text) : len(result) - len(text)].replace("\r\n", "\n") == new


@given(st.binary(max_size=200))
def test_decoding_loses_no_byte(raw):
    """For all bytes that are text at all."""
    decoded = textform.decode(raw)
    assert decoded is None or textform.encode(*decoded) == raw


def test_mode_and_owner_stay_and_new_files_follow_the_umask(box):
    path = box.write("tool.sh", "#!/bin/sh\n")
    path.chmod(0o751)
    box("read_file", path="tool.sh")
    edit(box, "tool.sh", ("sh\n", "bash\n"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    old = os.umask(0o027)
    try:
        box("write_file", path="new", content="x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((box.root / "new").stat().st_mode) == 0o640


def test_a_read_only_file_is_left_alone(box):
    path = box.write("a", "one\n")
    path.chmod(0o444)
    box("read_file", path="a")
    assert edit(box, "a", ("one", "two")) == "a was not changed. It is read-only: somebody protects it. Ask the user."


def test_a_change_in_the_last_moment_is_seen(box):
    """Somebody writes between the check and the replacement: theirs stays, and no temporary file does."""
    path = box.write("a", "one\n")
    target = paths.place("a", box.context)
    with pytest.raises(edits.Unready, match="changed while"):
        edits.replace(target, b"two\n", 0o644, expected=edits.Old(b"zero\n", 0o644))
    assert path.read_text() == "one\n" and os.listdir(box.root) == ["a"]


def test_a_full_disk_leaves_the_old_file(box):
    """The write fails in the middle: the old content stands and nothing is left beside it."""
    import resource

    box.write("a", "one\n")
    box("read_file", path="a")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        text = box("write_file", path="a", content="x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert text == "a was not changed. a: File too large."
    assert (box.root / "a").read_text() == "one\n" and os.listdir(box.root) == ["a"]


def test_read_only_mode_denies_changes(tmp_path):
    from .conftest import Box

    box = Box(tmp_path, sandbox="read-only")
    assert box("write_file", path="a", content="x").startswith("Files may not be changed in this run")
    assert box.result.denied and os.listdir(box.root) == []


def test_a_directory_is_not_a_file(box):
    (box.root / "d").mkdir()
    assert box("write_file", path="d", content="x") == "d was not changed. It is a directory."
    assert box("write_file", path=".", content="x") == ". is a directory."
    assert box("write_file", path="d/../d/./x/", content="x") == "Created ROOT/d/x (1 line, 1 byte)."


def test_the_call_is_recorded_for_the_session(box):
    """detail: the file, the hash that makes a later write legal, and the backup."""
    box.write("a", "one\n")
    box("read_file", path="a")
    edit(box, "a", ("one", "two"))
    detail = box.result.detail
    path = str(box.root / "a")
    assert detail["files"] == {"changed": [path]}
    assert set(detail["seen"]) == {path}
    assert (box.files / detail["backup"]["name"]).read_text() == "one\n"
    assert stat.S_IMODE((box.files / detail["backup"]["name"]).stat().st_mode) == 0o600
