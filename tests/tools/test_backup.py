"""undo --files: every file back as it was, none that somebody else has changed since."""

from __future__ import annotations

from agent.tools import backup


def changes(box):
    """Three calls: a is edited twice, b is created, c is replaced. Returns their details."""
    box.write("a", "one\n").chmod(0o640)
    box.write("c", b"old\r\n\xff")
    details = []
    for name in "ac":
        box("read_file", path=name)
    for name, args in (
        ("edit_file", {"path": "a", "edits": [{"old": "one", "new": "two"}]}),
        ("write_file", {"path": "b", "content": "new"}),
        ("edit_file", {"path": "a", "edits": [{"old": "two", "new": "three"}]}),
        ("write_file", {"path": "c", "content": "new"}),
    ):
        box(name, **args)
        details.append(box.result.detail)
    return details


def steps(box, details, **more):
    return backup.plan(details, str(box.files), [str(box.root)], **more)


def shown(box, found):
    return [(box.shown(step.path), step.action, step.why) for step in found]


def test_undo_brings_back_the_first_content(box):
    details = changes(box)
    planned = steps(box, details)
    assert shown(box, planned) == [("ROOT/a", "restore", ""), ("ROOT/b", "delete", ""), ("ROOT/c", "restore", "")]
    assert (box.root / "a").read_text() == "three\n", "planning changes nothing"
    assert backup.undo(planned, str(box.files), [str(box.root)]) == planned
    assert (box.root / "a").read_text() == "one\n" and (box.root / "a").stat().st_mode & 0o777 == 0o640
    assert not (box.root / "b").exists()
    assert (box.root / "c").read_bytes() == b"old\r\n\xff"
    assert [step.why for step in steps(box, details)] == ["already as it was"] * 3


def test_what_somebody_changed_since_is_left_alone(box):
    details = changes(box)
    box.write("a", "mine\n")
    assert shown(box, steps(box, details))[0] == ("ROOT/a", "skip", "changed since by something else")
    assert shown(box, steps(box, details, force=True))[0] == ("ROOT/a", "restore", "")


def test_a_damaged_backup_restores_nothing(box):
    details = changes(box)
    (box.files / details[0]["backup"]["name"]).write_text("damaged")
    assert shown(box, steps(box, details))[0] == ("ROOT/a", "skip", "its backup is missing or damaged")


def test_a_forged_record_touches_nothing_outside(box, tmp_path):
    """A session file from elsewhere names a path outside, or reaches it by a link or a name with slashes."""
    (tmp_path / "victim").write_text("v")
    (box.root / "link").symlink_to(tmp_path)
    forged = [
        {"backup": {"path": path, "name": "../../victim", "before": "0", "after": None, "mode": 0o4777}}
        for path in (str(tmp_path / "victim"), str(box.root / "link/victim"), str(box.root / "../victim"))
    ]
    found = backup.plan(forged, str(box.files), [str(box.root)], force=True)
    assert {step.why for step in found} == {"outside the directories that may be changed"}
    bold = [step._replace(action="delete", why="") for step in found]
    assert {step.action for step in backup.undo(bold, str(box.files), [str(box.root)])} == {"skip"}
    assert (tmp_path / "victim").read_text() == "v"


def test_foreign_details_are_passed_over(box):
    assert steps(box, [{}, {"backup": None}, {"backup": {"path": 3}}, {"exit_code": 0}]) == []
