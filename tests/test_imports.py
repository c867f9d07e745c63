"""Other tools' sessions: what each file becomes, what is left out and said so, and that it can be continued."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Runner
from disks import Failing, Quick
from hypothesis import given, settings
from hypothesis import strategies as st
from server import ScriptedServer, calls, check_messages, text

from agent.errors import StorageError
from agent.importers import Importer, lines_of
from agent.importers.conversation import Conversation, Unreadable
from agent.importers.sniff import READERS, conversations
from agent.importers.source import open_source
from agent.log.archive import Check, check
from agent.log.entries import encode, fault_of, replay
from agent.messages import text_of
from agent.session import Session
from agent.wire import prepare_for_wire

HERE = Path(__file__).parent / "data" / "foreign"
BESIDE = Path(__file__).parents[2] / "shared" / "data" / "foreign"
FILES = sorted(path for path in HERE.iterdir() if path.suffix in (".jsonl", ".sql"))
EVERY = [*FILES, *sorted(path for path in BESIDE.rglob("*") if path.is_file())]


def told(conversation: Conversation) -> list[str]:
    """A conversation in short, one line a message."""
    lines = []
    for entry in conversation.entries:
        message = entry["message"]
        made = [f"{c['function']['name']} {c['function']['arguments']}" for c in message.get("tool_calls", [])]
        lines.append(" | ".join([f"{message['role']}: {text_of(message)}"[:70], *made]))
    return lines


def only(path: Path, tool: str = "auto", **about: Any) -> Conversation:
    [found] = conversations(open_source(str(path), **about), tool)
    return found


def lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def database(path: Path, dump: str) -> Path:
    made = sqlite3.connect(path)
    made.executescript((HERE / dump).read_text())
    made.close()
    return path


# ---- codex ----


def test_codex_sends_its_items_and_not_its_events() -> None:
    """Text and the calls after it are one answer; injected context and reasoning are left out, and counted."""
    found = only(HERE / "codex_tool.jsonl")
    assert told(found) == [
        "user: USETOOL please",
        'assistant:  | exec_command {"cmd": "echo hi > made.txt"}',
        "tool: [elided: 154 characters]",
        "assistant: Hello **world**.",
    ]
    assert (found.tool, found.cwd, found.model) == ("codex", "/home/user/demo", "fake-1")
    assert [entry["at"] for entry in found.entries][:2] == ["2026-01-01T00:00:08.000Z", "2026-01-01T00:00:10.000Z"]
    assert found.dropped == {"injected context": 2, "token usage record": 2, "world state": 1}


def test_codex_compaction_replaces_what_came_before() -> None:
    found = only(HERE / "codex_compacted.jsonl")
    assert told(found) == [
        "user: one", "user: [elided: 416 characters]", "user: two", "assistant: Hello **world**."
    ]  # fmt: skip
    assert [(entry.get("kept"), entry.get("summary")) for entry in found.entries] == [
        (True, None), (None, True), (None, None), (None, None)
    ]  # fmt: skip
    assert [text_of(entry["message"]) for entry in found.earlier] == ["one", "Hello **world**.", "Hello **world**."]


def test_a_compaction_that_left_nothing_is_not_followed(tmp_path: Path) -> None:
    """A file cut right behind it: what was there is still the conversation."""
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    path = lines(
        tmp_path / "a.jsonl",
        {"type": "response_item", "payload": said},
        {"type": "compacted", "payload": {"message": "", "replacement_history": []}},
    )
    assert (told(only(path)), only(path).earlier) == (["user: hi"], [])
    alone = lines(tmp_path / "b.jsonl", {"type": "compacted", "payload": {"message": "we looked"}})
    assert [entry.get("summary") for entry in only(alone).entries] == [None]


def test_codex_fork_begins_in_its_parent() -> None:
    """The parent is found by the id on its first line; files too short to reach the fork are passed over."""
    parent = told(only(HERE / "codex_fork_parent.jsonl"))
    fork = told(only(HERE / "codex_fork.jsonl"))
    assert fork[: len(parent)] == parent
    assert fork[len(parent) :][0] == "user: forked again"
    assert only(HERE / "codex_fork.jsonl").id.endswith("018")


def test_codex_fork_without_its_parent_is_refused_unless_forced(tmp_path: Path) -> None:
    fork = tmp_path / "fork.jsonl"
    fork.write_bytes((HERE / "codex_fork.jsonl").read_bytes())
    with pytest.raises(Unreadable, match="is a fork of session 00000000-0000-7000-8000-000000000001"):
        only(fork)
    found = only(fork, force=True)
    assert told(found)[0] == "user: forked again"
    assert found.notices == [
        "its beginning, session 00000000-0000-7000-8000-000000000001, was not found: it starts at the fork"
    ]


def test_codex_parent_is_found_in_the_tree_of_dates(tmp_path: Path) -> None:
    days = [tmp_path / "sessions" / "2026" / "01" / day for day in ("01", "02")]
    for day in days:
        day.mkdir(parents=True)
    parent = days[0] / "rollout-2026-01-01T00-00-00-00000000-0000-7000-8000-000000000001.jsonl"
    parent.write_bytes((HERE / "codex_fork_parent.jsonl").read_bytes())
    fork = days[1] / "rollout-2026-01-02T00-00-00-00000000-0000-7000-8000-000000000018.jsonl"
    fork.write_bytes((HERE / "codex_fork.jsonl").read_bytes())
    assert told(only(fork)) == told(only(HERE / "codex_fork.jsonl"))


def test_codex_fork_of_itself_ends(tmp_path: Path) -> None:
    """A damaged file that names itself, or a circle of two, is no endless walk."""
    for me, other in (("a", "b"), ("b", "a")):
        base = {"thread_id": other, "end_ordinal_exclusive": 1}
        lines(
            tmp_path / f"{me}.jsonl",
            {"type": "session_meta", "ordinal": 0, "payload": {"id": me, "history_base": base}},
        )
    with pytest.raises(Unreadable, match="is a fork of session"):
        only(tmp_path / "a.jsonl")


def test_codex_interrupted_turn_stays_a_note() -> None:
    assert told(only(HERE / "codex_aborted.jsonl")) == ["user: hello", "user: [elided: 226 characters]"]


def test_codex_custom_tools_and_bare_items() -> None:
    """Free-form input becomes an argument; files from before August 2025 have items without a frame."""
    assert told(only(HERE / "codex_custom_tool.jsonl"))[3:5] == [
        'assistant:  | apply_patch {"input":"*** Begin Patch\\n*** Add File: gamma.txt\\n+synthetic\\n*** End Patch"}',
        "tool: Done!",
    ]
    bare = only(HERE / "codex_bare.jsonl")
    assert [entry["message"]["role"] for entry in bare.entries] == ["user", *["assistant", "tool"] * 7]
    assert {entry["at"] for entry in bare.entries} == {"2025-07-01T09:00:00.000Z"}


def test_codex_of_the_first_kind_is_one_object(tmp_path: Path) -> None:
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    whole = {"session": {"id": "s", "timestamp": "2025-04-20T10:00:00.000Z", "instructions": ""}, "items": [said, 5]}
    path = tmp_path / "rollout.json"
    path.write_text(json.dumps(whole, indent=2))
    found = only(path)
    assert (found.tool, found.id, told(found), found.dropped) == ("codex", "s", ["user: hi"], {"unreadable lines": 1})
    assert found.entries[0]["at"] == "2025-04-20T10:00:00.000Z"


def test_codex_parallel_calls_are_one_answer(tmp_path: Path) -> None:
    def item(**payload: Any) -> Any:
        return {"type": "response_item", "timestamp": "2026-01-01T00:00:00Z", "payload": payload}

    path = lines(
        tmp_path / "a.jsonl",
        item(type="message", role="user", content=[{"type": "input_text", "text": "go"}]),
        item(type="function_call", name="a", arguments="{}", call_id="1"),
        item(type="local_shell_call", call_id="2", action={"type": "exec", "command": ["ls"]}),
        item(type="message", role="assistant", content=[{"type": "output_text", "text": "meanwhile"}]),
        item(type="function_call_output", call_id="2", output={"content": "two", "success": False}),
        item(type="function_call_output", call_id="1", output=[{"type": "input_text", "text": "one"}]),
        item(type="function_call_output", call_id="9", output="nobody asked"),
        item(type="web_search_call", action={"query": "x"}),
    )
    found = only(path)
    assert told(found) == [
        "user: go",
        'assistant:  | a {} | local_shell {"type":"exec","command":["ls"]}',
        "tool: two",
        "tool: one",
        "assistant: meanwhile",
    ]
    assert [e["tool"] for e in found.entries if "tool" in e] == [
        {"name": "local_shell", "ok": False}, {"name": "a", "ok": True}
    ]  # fmt: skip
    assert found.dropped == {"results without a call": 1, "web search call": 1}


# ---- claude ----


def test_claude_follows_the_last_leaf() -> None:
    """Two resumes at once left two branches: the one named last is the conversation."""
    found = only(HERE / "claude_branch.jsonl")
    assert told(found) == [
        "user: seed", "assistant: Hello **world**.", "user: branch A", "assistant: Hello **world**."
    ]  # fmt: skip
    assert found.dropped["lines of other branches"] == 2


def test_claude_compaction_keeps_what_it_preserved() -> None:
    found = only(HERE / "claude_compacted.jsonl")
    assert told(found) == [
        "user: [elided: 681 characters]", "assistant: Hello **world**.", "user: [elided: 134 characters]"
    ]  # fmt: skip
    assert [(entry.get("summary"), entry.get("kept")) for entry in found.entries] == [
        (True, None), (None, True), (None, None)
    ]  # fmt: skip
    assert [text_of(entry["message"])[:6] for entry in found.earlier[::2]] == [f"turn {n}" for n in range(1, 6)]
    rewound = only(HERE / "claude_rewound.jsonl")
    assert rewound.dropped["lines of other branches"] == 2
    assert [text_of(entry["message"]) for entry in rewound.earlier] == [
        "Start", "Ready", "Second attempt", "Second answer", "Keep going", "Kept going"
    ]  # fmt: skip
    assert told(rewound)[1:] == ["user: After compaction", "assistant: Final answer"]


def test_claude_answers_are_put_together_again() -> None:
    """Four calls made at once stand on four lines, with their results on branches: one answer, four results."""
    found = only(HERE / "claude_parallel.jsonl")
    shape = [
        f"{entry['message']['role'][0]}{len(entry['message'].get('tool_calls', ())) or ''}" for entry in found.entries
    ]
    assert " ".join(shape) == "u a1 t a5 t t t t t a3 t t t a1 t a1 t a1 t a"
    assert found.dropped == {"meta lines": 1}


def test_claude_leaves_out_chrome_synthetic_answers_and_sidechains() -> None:
    assert told(only(HERE / "claude_fork.jsonl")) == ["user: ERR500", "user: again"]
    assert only(HERE / "claude_edge_cases.jsonl").dropped["commands and their output"] == 3
    assert only(HERE / "claude_sidechain.jsonl").entries == []


def test_claude_lines_without_parents_are_taken_in_order() -> None:
    found = only(HERE / "claude_representative_messages.jsonl")
    assert [entry["message"]["role"] for entry in found.entries[:3]] == ["user", "assistant", "user"]
    assert len(found.entries) == 11


def test_claude_pictures_come_along() -> None:
    [entry] = only(HERE / "claude_image.jsonl").entries
    assert [part["type"] for part in entry["message"]["content"]] == ["image_url", "text"]
    assert entry["message"]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")


# ---- pi ----


def pi_entry(id: str, parent: str | None, **more: Any) -> Any:
    return {"id": id, "parentId": parent, "timestamp": f"2026-01-01T00:00:0{id}Z", **more}


def pi_said(id: str, parent: str | None, role: str, *content: Any, **more: Any) -> Any:
    blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    return pi_entry(id, parent, type="message", message={"role": role, "content": blocks, **more})


def test_pi_walks_the_tree_and_begins_at_its_compaction(tmp_path: Path) -> None:
    """The summary, then from the first kept entry on; other branches, thinking and labels are left out."""
    call = {"type": "toolCall", "id": "c", "name": "bash", "arguments": {"command": "ls"}}
    path = lines(
        tmp_path / "a.jsonl",
        {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/home/user/p"},
        pi_said("1", None, "user", "old"),
        pi_said("2", "1", "user", "kept"),
        pi_said("3", "2", "assistant", {"type": "thinking", "thinking": "hm"}, "I look.", call, model="m"),
        pi_said("4", "3", "toolResult", "a.txt", toolCallId="c", isError=True),
        pi_entry("5", "4", type="compaction", summary="we looked", firstKeptEntryId="2"),
        pi_said("6", "5", "user", "another branch"),
        pi_entry("7", "5", type="custom_message", content="injected"),
        pi_entry("8", "7", type="message", message={"role": "bashExecution", "command": "id", "output": "me", "exitCode": 0}),
        pi_entry("9", "8", type="label", label="x"),
    )  # fmt: skip
    found = only(path)
    assert told(found) == [
        "user: Summary of the conversation before this point, made by pi:\n\nwe l",
        "user: kept",
        'assistant: I look. | bash {"command":"ls"}',
        "tool: a.txt",
        "user: injected",
        "user: I ran `id` (exit 0):\nme",
    ]
    assert found.entries[3]["tool"] == {"name": "bash", "ok": False}
    assert [text_of(entry["message"]) for entry in found.earlier] == ["old", "kept", "I look.", "a.txt"]
    assert found.dropped == {
        "thinking": 1, "entries of other branches": 1, "label entries": 1
    }  # fmt: skip


def test_pi_failed_answers_go_and_their_prompt_stays() -> None:
    found = only(HERE / "pi_error.jsonl")
    assert (told(found), found.dropped) == (["user: ERR401"], {"failed answers": 1})


def test_pi_version_1_is_a_plain_list(tmp_path: Path) -> None:
    """Without ids the first kept entry is named by its index among the lines."""

    def said(role: str, words: str) -> Any:
        return {"type": "message", "timestamp": "2025-11-20T23:33:01Z", "message": {"role": role, "content": words}}

    head = {"type": "session", "id": "s", "timestamp": "2025-11-20T23:33:00Z", "cwd": "/", "modelId": "m"}
    compaction = {"type": "compaction", "summary": "S", "firstKeptEntryIndex": 2}
    path = lines(
        tmp_path / "a.jsonl", head, said("user", "one"), said("assistant", "two"), compaction, said("user", "3")
    )
    assert [line.split("\n")[-1] for line in told(only(path))] == ["S", "assistant: two", "user: 3"]


# ---- llm ----


def test_llm_threads_are_walked_from_their_tip(tmp_path: Path) -> None:
    [found] = conversations(open_source(str(database(tmp_path / "logs.db", "llm_logs.sql"))))
    assert told(found) == [
        "user: seed", "assistant: Hello **world**.", "user: branch A", "assistant: Hello **world**."
    ]  # fmt: skip
    assert (found.title, found.model) == ("seed", "fake-1")


def test_llm_responses_bring_fragments_tools_and_pictures(tmp_path: Path) -> None:
    """The shape before 0.32: a system prompt of the person's own, and a result in the response after its call."""
    found, empty = conversations(open_source(str(database(tmp_path / "logs.db", "llm_old.sql"))))
    assert told(found) == [
        "user: 找一个餐馆",
        'assistant:  | search_db {"领域": "餐馆"}',
        'tool: {"命中": 1}',
        "assistant: 鼎泰丰",
        "user: x = -1\nWhat is wrong here?",
        "assistant: The sign.",
    ]
    assert (found.system, found.dropped) == ("你是一个友好的助手。", {"attachments": 1})
    assert found.entries[4]["message"]["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBORw=="
    assert (empty.id, empty.entries) == ("01b", [])


# ---- aider, gemini, copilot ----


def test_aider_history_is_one_conversation(tmp_path: Path) -> None:
    """Lines of the program go; a heading in an answer stays; times are local."""
    path = tmp_path / ".aider.chat.history.md"
    path.write_text(
        "\n# aider chat started at 2024-08-06 20:10:31\n\n> Aider v0.47\n> Git repo: .git\n\n#### use the Spinner\n"
        "#### in utils.py\n\n# Plan\n\nI use it.\n\n> Tokens: 1k sent\n\n"
        "# aider chat started at 2024-08-07 09:00:00\n\n#### /undo\n> Nothing to undo.\n\n#### thanks\n\nWelcome.\n"
    )
    found = only(path)
    assert told(found) == [
        "user: use the Spinner\nin utils.py",
        "assistant: # Plan\n\nI use it.",
        "user: /undo",
        "user: thanks",
        "assistant: Welcome.",
    ]
    assert found.dropped == {"lines of the program": 4}
    assert (found.started[:9], found.cwd) == ("2024-08-0", str(tmp_path))
    path.write_text("#### cut at the start\r\n#### of the file\r\n\r\nYes.\r\n")
    assert told(only(path)) == ["user: cut at the start\nof the file", "assistant: Yes."]


def test_gemini_patches_replace_and_records_follow(tmp_path: Path) -> None:
    assert told(only(HERE / "gemini.jsonl")) == [
        "user: [elided: 568 characters]",
        "user: say hello",
        "assistant: Hello **world**.",
        "user: again",
        "assistant: Hello **world**.",
    ]
    answer = {"functionResponse": {"id": "c", "response": {"output": "a.txt"}}}
    messages = [
        {"id": "0", "type": "user", "content": [{"text": "<session_context>today"}]},
        {"id": "1", "type": "user", "content": "list"},
        {"id": "2", "type": "gemini", "content": "", "thoughts": [{}], "model": "g",
         "toolCalls": [{"id": "c", "name": "ls", "args": {"p": 1}, "status": "success", "result": [answer]}]},
    ]  # fmt: skip
    whole = tmp_path / "session.json"
    whole.write_text(json.dumps({"sessionId": "s", "projectHash": "h", "messages": messages}, indent=2))
    found = only(whole)
    assert told(found) == ["user: list", 'assistant:  | ls {"p":1}', "tool: a.txt"]
    assert found.dropped == {"injected context": 1, "thoughts": 1}


def test_copilot_results_find_their_calls() -> None:
    found = only(HERE / "copilot_tool.jsonl")
    assert told(found) == [
        "user: USETOOL",
        'assistant:  | bash {"command":"echo hi > made.txt","description":"d"}',
        "tool: [elided: 190 characters]",
        "assistant: Hello **world**.",
    ]
    assert found.entries[2]["tool"] == {"name": "bash", "ok": False}


# ---- what is no session ----


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("empty", b"", "it is empty"),
        ("words.txt", b"hello\nworld\n", "no tool that is known wrote it"),
        ("noise", bytes(range(256)) * 9, "no tool that is known wrote it"),
        ("null.jsonl", b"\0" * 4096, "no tool that is known wrote it"),
        ("array.json", b"[1, 2]\n", "no tool that is known wrote it"),
        ("x.jsonl.zst", b"\x28\xb5\x2f\xfd....", "it is compressed"),
        ("x.gz", b"\x1f\x8b....", "it is compressed"),
        ("own.jsonl", b'{"type":"meta","id":"20260101-100000-abc12345"}\n', "it is a session of agent already"),
        ("schema.sql", b"CREATE TABLE x (a);", "it is SQL text, no database"),
        ("torn.db", b"SQLite format 3\0" + b"\xff" * 200, "the database is damaged"),
        ("cut.jsonl", b'{"type":"session_meta","payload":{"id":"x"}}\n{"type":"respo', "it holds no message"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_bad_file_is_one_sentence_and_exit_4(
    name: str, content: bytes, why: str, agent: Runner, tmp_path: Path, home: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    done = agent("sessions", "import", str(tmp_path / name))
    assert (done.code, done.out) == (4, "")
    assert done.err.startswith(f"agent: nothing was imported: {tmp_path / name}: {why}")
    assert done.err.count("\n") == 1
    assert not (home / ".local").exists()


def test_what_is_no_file_is_refused_too(agent: Runner, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, why in (("fifo", "it is no regular file"), (".", "it is a directory"), ("gone", "No such file")):
        done = agent("sessions", "import", f"{tmp_path}/{name}")
        assert (done.code, why in done.err) == (4, True), done
    assert agent("sessions", "import", "--from", "cursor", "x").code == 2
    assert agent("sessions", "import", "--from", "llm", str(HERE / "pi_tool.jsonl")).code == 4


def test_among_several_a_bad_file_is_a_notice(agent: Runner, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text("?\n")
    done = agent("sessions", "import", str(bad), str(HERE / "pi_tool.jsonl"))
    assert done.code == 0
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{8}  pi  4 messages, about \d+ tokens  pi_tool.jsonl\n", done.out)
    assert done.err.splitlines() == [
        f"agent: not imported: {bad}: no tool that is known wrote it. "
        f"Say which with --from: {', '.join(READERS)}"
    ]  # fmt: skip
    assert agent("sessions", "import", str(bad), str(bad)).code == 4


# ---- once, whole, and honestly ----


def test_the_same_source_is_taken_once(agent: Runner, tmp_path: Path) -> None:
    """By its bytes wherever they lie, and by its place when it has grown; the earlier session is named."""
    path = tmp_path / "s.jsonl"
    path.write_bytes((HERE / "pi_tool.jsonl").read_bytes())
    first = agent("sessions", "import", str(path)).out.split()[0]
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(path.read_bytes())
    again = agent("sessions", "import", str(copy))
    assert again.code == 4
    assert f"it was imported as session {first}. Continue it: agent -c {first}" in again.err
    with path.open("ab") as file:
        file.write(b'{"type":"label","id":"zz","parentId":"5ab01531"}\n')
    grown = agent("sessions", "import", str(path))
    assert (grown.code, "and has changed since" in grown.err) == (4, True)
    forced = agent("sessions", "import", "--force", str(path), str(copy))
    assert (forced.code, len(forced.out.splitlines())) == (0, 2)


def test_a_log_of_llm_is_taken_conversation_by_conversation(agent: Runner, tmp_path: Path) -> None:
    """What is new since the last import comes in, what is known is named, each in a sentence of its own."""
    path = database(tmp_path / "logs.db", "llm_old.sql")
    first = agent("sessions", "import", str(path))
    assert (first.code, len(first.out.splitlines())) == (0, 1)
    assert f"not imported: {path}, 01b: it holds no message that llm would send again" in first.err
    log = sqlite3.connect(path)
    log.execute("INSERT INTO responses VALUES ('r9', 'm', 'new', NULL, 'yes', '01b', '2025-01-02T10:00:00+00:00')")
    log.commit()
    log.close()
    again = agent("sessions", "import", str(path))
    assert [line.split("  ")[1:] for line in again.out.splitlines()] == [["llm", again.out.split("  ")[2], "empty"]]
    assert f"{path}, 01a: it was imported as session {first.out.split()[0]}, and has changed since" in again.err
    third = agent("sessions", "import", str(path))
    assert (third.code, third.out) == (4, "")
    assert [line.split(": ")[1] for line in third.err.splitlines()] == [
        "not imported", "not imported", "nothing was imported"
    ]  # fmt: skip


def test_a_dry_run_says_all_and_writes_nothing(agent: Runner, home: Path) -> None:
    done = agent("sessions", "import", "--dry-run", str(HERE / "codex_compacted.jsonl"), CONTEXT_WINDOW="1k")
    assert re.fullmatch(
        r"would import  codex  4 messages, about 1\d\d tokens, 1\d % of 1,000  codex_compacted.jsonl\n", done.out
    )
    assert done.err == (
        "agent: codex_compacted.jsonl: compacted by codex: 3 earlier messages are in its archive\n"
        "agent: codex_compacted.jsonl: left out: token usage record: 3, injected context: 2, world state: 2\n"
    )
    assert not (home / ".local").exists()


def test_json_says_the_same_for_machines(agent: Runner, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text("")
    done = agent("sessions", "import", "--json", str(HERE / "pi_error.jsonl"), str(bad))
    good, refused = map(json.loads, done.out.splitlines())
    assert good | {"id": "", "tokens": 0} == {
        "path": str(HERE / "pi_error.jsonl"), "tool": "pi", "source_id": "00000000-0000-7000-8000-000000000001",
        "title": "", "id": "", "messages": 1, "archived": 0, "tokens": 0, "dry_run": False, "dropped": {"failed answers": 1}, "notices": [],
    }  # fmt: skip
    assert refused == {
        "path": str(bad), "tool": "", "source_id": "", "title": "",
        "refused": "it is empty", "hint": "There is nothing to import",
    }  # fmt: skip


def test_an_import_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """Whole or not at all, whichever operation fails."""
    store = tmp_path / "store"
    failed = 0
    for nth in range(1, 16):
        importer = Importer(str(store))
        try:
            full = Failing(nth, OSError(28, "No space left on device"))
            list(importer.take(str(HERE / "codex_compacted.jsonl"), disk=full))
        except StorageError:
            failed += 1
        found = sorted(path.name for path in store.glob("*.jsonl"))
        for name in found:
            session = Session.read(str(store), name.removesuffix(".jsonl"))
            assert (len(session.entries), check(session)) == (6, Check(0, 1, []))
            (store / name).unlink()
    assert failed >= 8


def test_what_the_other_tool_folded_is_found_and_restored(agent: Runner, home: Path, tmp_path: Path) -> None:
    """Its compaction becomes one of ours: searched, shown, taken back, and `recall` is offered; kept messages once."""
    call = {"type": "toolCall", "id": "c", "name": "bash", "arguments": {"command": "ls"}}
    path = lines(
        tmp_path / "a.jsonl",
        {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00Z"},
        pi_said("1", None, "user", "the launch code is 0000"),
        pi_said("2", "1", "assistant", "noted"),
        pi_said("3", "2", "user", "look"),
        pi_said("4", "3", "assistant", call),
        pi_said("5", "4", "toolResult", "a.txt", toolCallId="c"),
        pi_entry("6", "5", type="compaction", summary="a code was given", firstKeptEntryId="3"),
        pi_said("7", "6", "assistant", "one file"),
    )
    id = agent("sessions", "import", str(path)).out.split()[0]

    def view() -> list[str]:
        messages = json.loads(agent("sessions", "replay", id, "--json").out)["messages"]
        return [m["role"] + ": " + (m["content"] or "").split("\n")[-1] for m in messages[1:]]

    assert view() == [
        "user: a code was given",
        "user: look",
        "assistant: ",
        "tool: a.txt",
        "assistant: one file",
        "user: (go on)",
    ]
    assert "launch code" in agent("sessions", "search", "0000").out
    [log] = (home / ".local/state/agent/sessions").glob("*.jsonl")
    [summary] = [entry for entry in parsed(log) if entry.get("summary")]
    assert (summary["covers"], summary["written"][-16:]) == ([2, 6], "a code was given")
    with ScriptedServer([text("it was 0000")], repeat_last=True) as server:
        assert agent("-q", "-c", id, "and the code?", OPENAI_BASE_URL=server.url, MODEL="m").out == "it was 0000\n"
    assert "recall" in {tool["function"]["name"] for tool in server.requests[0]["tools"]}
    assert server.violations == []
    assert agent("sessions", "undo", id).code == 0
    assert view() == [
        "user: the launch code is 0000", "assistant: noted", "user: look", "assistant: ", "tool: a.txt",
        "assistant: one file", "user: and the code?", "assistant: it was 0000", "user: (go on)",
    ]  # fmt: skip
    assert agent("sessions", "replay", id, "--check").code == 0
    assert agent("doctor", id, "--dry-run").code == 0
    assert "compacted after step 2" in agent("sessions", "stats", id).out


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Any]]:
    """A store with every file that imports: (store, outcomes)."""
    folder = tmp_path_factory.mktemp("imported")
    importer = Importer(str(folder / "store"), force=True)
    files = [*EVERY, *(database(folder / f"{dump}.db", dump) for dump in ("llm_logs.sql", "llm_old.sql"))]
    return str(folder / "store"), [outcome for path in files for outcome in importer.take(str(path), disk=Quick())]


def test_every_file_imports_or_is_refused_with_a_sentence(imported: tuple[str, list[Any]]) -> None:
    """Those in the repository, and the larger collection where it lies beside the checkout."""
    store, outcomes = imported
    assert {outcome.path for outcome in outcomes} >= {str(path) for path in EVERY}
    for outcome in outcomes:
        assert bool(outcome.id) != bool(outcome.refused)
        if outcome.refused:
            assert outcome.refused[0].islower()
            assert outcome.hint
            continue
        session = Session.read(store, outcome.id)
        assert session.notices == []
        assert check(session) == Check(0, bool(outcome.earlier), [])
        lived = [entry["n"] for entry in session.originals()]
        assert lived[: outcome.earlier + 1] == list(range(1, outcome.earlier + 2))
        assert {entry["n"] for entry in session.entries if entry["type"] == "message"} <= set(lived)
        assert sum(entry["type"] == "message" for entry in session.entries) == outcome.messages + 1
        assert session.meta["imported_from"]["tool"] == outcome.tool
        assert "model" not in session.meta
        assert all(entry["at"].endswith("Z") for entry in session.entries)
        assert check_messages(prepare_for_wire([*session.view(), {"role": "user", "content": "go on"}])) is None


def test_imported_sessions_resume_on_a_strict_server(
    imported: tuple[str, list[Any]], agent: Runner, home: Path
) -> None:
    """One of each tool and shape in the repository: the answer comes, nothing was violated, the log is proved."""
    store, outcomes = imported
    ours = [o for o in outcomes if o.id and (str(HERE) in o.path or o.path.endswith(".sql.db"))]
    picked = {(o.tool, o.messages): o for o in ours}.values()
    assert {o.tool for o in picked} == {"codex", "claude", "pi", "llm", "gemini", "copilot"}
    with ScriptedServer([text("as you say")], repeat_last=True) as server:
        for outcome in picked:
            env = {"OPENAI_BASE_URL": server.url, "MODEL": "scripted", "AGENT_SESSION_DIR": store}
            done = agent("-q", "-c", outcome.id, "go on", **env)
            assert (done.code, done.out) == (0, "as you say\n"), done
            assert server.requests[-1]["messages"][-1] == {"role": "user", "content": "go on"}
            assert server.requests[-1]["messages"][0]["role"] == "system"
    assert server.violations == []


def test_foreign_tools_stay_history(agent: Runner, home: Path) -> None:
    """Their calls go along; they are not offered; a model that calls one is told that there is no such tool."""
    agent("sessions", "import", str(HERE / "codex_tool.jsonl"))
    with ScriptedServer([calls([("exec_command", {"cmd": "touch /tmp/x"})]), text("sorry")]) as server:
        done = agent("-c", "last", "again", OPENAI_BASE_URL=server.url, MODEL="m", cwd=home)
        assert done.code == 4, "its directory is another one, which does not exist here"
        [log] = (home / ".local/state/agent/sessions").glob("*.jsonl")
        agent("-c", log.stem, "again", OPENAI_BASE_URL=server.url, MODEL="m")
    first, second = server.requests
    assert "exec_command" not in {tool["function"]["name"] for tool in first["tools"]}
    assert "This conversation began in another program (codex)" in first["messages"][0]["content"]
    assert "exec_command" in json.dumps(first["messages"])
    assert "no tool" in second["messages"][-1]["content"].lower()
    assert server.violations == []


def test_an_imported_session_is_compacted_and_taken_back(agent: Runner, home: Path) -> None:
    """Like any other: folded, searchable, restored to the same view, proved."""
    done = agent("sessions", "import", str(HERE / "claude_parallel.jsonl"))
    id = done.out.split()[0]
    before = agent("sessions", "replay", id, "--json").out
    with ScriptedServer([text("fine")], repeat_last=True) as server:
        env = {"OPENAI_BASE_URL": server.url, "MODEL": "m"}
        compact = agent("sessions", "compact", id, "--strategy", "raw_fallback", "--keep", "500", **env)
        assert compact.code == 0
        assert len(agent("sessions", "replay", id, "--json").out) < len(before) / 2
        assert id in agent("sessions", "search", "CLAUDE.md").out
        assert agent("-q", "-c", id, "go on", **env).out == "fine\n"
    assert server.violations == []
    assert agent("sessions", "replay", id, "--check").code == 0
    agent("sessions", "undo", id)
    view = json.loads(agent("sessions", "replay", id, "--json").out)["messages"]
    assert view[: len(json.loads(before)["messages"]) - 1] == json.loads(before)["messages"][:-1]


def test_a_long_import_shows_how_far_it_is_on_a_terminal_only(agent: Runner, tmp_path: Path) -> None:
    """In percent, wiped before the result is printed, without escapes; nothing of it on a pipe."""
    said = {"type": "response_item", "payload": {"type": "message", "role": "user", "content": "x" * 50_000}}
    path = lines(tmp_path / "long.jsonl", *[said] * 100)
    assert agent("sessions", "import", "--dry-run", str(path)).err == ""
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "agent", "sessions", "import", "--dry-run", str(path)]
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=theirs, stdin=theirs, cwd=tmp_path, check=True)
    os.close(theirs)
    shown = os.read(ours, 65536)
    os.close(ours)
    assert re.match(rb"\r\rlong.jsonl: \d+ %\r", shown)
    assert (shown.endswith(b" \r"), b"\x1b" in shown) == (True, False)


# ---- anything at all ----

JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    [],
    {},
    "x",
    [1],
    [[]],
    {"a": 1},
    [{"type": "text"}],
    "\ud800",
    [None],
    10**30,
]


def mutated(value: Any, dice: random.Random) -> Any:
    if dice.random() < 0.02:
        return dice.choice(JUNK)
    if isinstance(value, dict):
        return {k: mutated(v, dice) for k, v in value.items() if dice.random() > 0.01}
    return [mutated(v, dice) for v in value] if isinstance(value, list) else value


def parsed(path: Path) -> list[Any]:
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            pass
    return found


RECORDS = [parsed(path) for path in FILES if path.suffix == ".jsonl" and path.stat().st_size < 16000]


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    records=st.sampled_from(RECORDS),
    tool=st.sampled_from(["auto", *(name for name in READERS if name != "llm")]),
    cut=st.floats(0, 1),
)
def test_any_damage_gives_sound_entries_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, seed: int, records: list[Any], tool: str, cut: float
) -> None:
    """Values of the wrong kind anywhere, keys gone, lines shuffled, the end torn: no other error, no bad message."""
    dice = random.Random(seed)
    damaged = [mutated(record, dice) for record in records]
    if dice.random() < 0.2:
        dice.shuffle(damaged)
    data = "\n".join(map(json.dumps, damaged)).encode()
    path = tmp_path_factory.getbasetemp() / "damaged.jsonl"
    path.write_bytes(data[: int(len(data) * cut)] if dice.random() < 0.3 else data)
    try:
        found = list(conversations(open_source(str(path), force=True), tool))
    except Unreadable as refused:
        assert str(refused)
        return
    for conversation in found:
        assert [fault_of(entry) for entry in conversation.entries if fault_of(entry)] == []
        assert all(encode(entry) and entry["at"].endswith("Z") for entry in conversation.entries)
        for generation in lines_of(conversation, {}, "/", "x"):
            numbers = [entry["n"] for entry in generation[1:]]
            assert len(set(numbers)) == len(numbers)
            messages = [*replay(generation[1:]), {"role": "user", "content": "go on"}]
            assert check_messages(prepare_for_wire(messages)) is None


def test_a_long_line_and_a_deep_one(tmp_path: Path) -> None:
    """Megabytes on one line come through; values nested too deeply are refused or left out, never a crash."""
    big = {"type": "response_item", "payload": {"type": "message", "role": "user", "content": "x" * 5_000_000}}
    assert len(text_of(only(lines(tmp_path / "big.jsonl", big)).entries[0]["message"])) == 5_000_000
    deep = tmp_path / "deep.jsonl"
    deep.write_text(
        '{"type":"response_item","payload":{"type":"message","content":' + "[" * 90000 + "]" * 90000 + "}}\n"
    )
    with pytest.raises(Unreadable):
        only(deep)
