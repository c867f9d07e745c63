"""What the prompt tokens that a server reports tell of its window."""

from __future__ import annotations

from server import ScriptedServer, text
from wiring import asking

from agent.wire.memory import Memory
from agent.wire.truncation import outgrown, read_in_part

LONG = "".join(f"line {n}: the quick brown fox jumps over the lazy dog\n" for n in range(1500))
SAID = "the server says that it read only {} of about 20000 tokens"


def test_a_low_report_is_believed_where_something_else_says_the_same() -> None:
    """A window that is stated, a round number, or the same again; else it is remembered and the user told."""
    seems = " and left out the rest: its window seems to be "
    learnt = {"window": 4096, "low": None, "most": None}
    assert read_in_part(3500, 20000, 4096, {}) == (learnt, SAID.format(3500) + f"{seems}4096")
    assert read_in_part(4096, 20000, None, {}) == (learnt, SAID.format(4096) + f"{seems}4096")
    assert read_in_part(4100, 20000, 200000, {}) == (
        {"low": 4100, "most": 4100},
        SAID.format(4100) + ", and may have left out the rest",
    )
    assert read_in_part(4010, 20000, 200000, {"low": 4050, "most": 4050})[0] == learnt
    assert read_in_part(2600, 20000, 200000, {"low": 4100, "most": 4100})[0] == {"low": 2600, "most": 4100}


def test_no_window_is_smaller_than_what_was_read() -> None:
    """In a tool loop a gateway that leaves out what was cached reports equal steps."""
    memory = Memory()
    with ScriptedServer([text("ok", usage=(n, 2)) for n in (2802, 1672, 1673, 1673)]) as server:
        for _ in range(2):
            asked = asking(server, window=200_000, memory=memory)
            asked.ask(LONG)
            asked.ask(LONG)
        known = memory.of(server.url, "scripted")
    assert (known.get("window"), known["low"], known["most"]) == (None, 1673, 2802)


def test_what_was_read_is_no_window() -> None:
    assert outgrown(5000, {"window": 4096, "max_input": 8192, "low": 3}) == {"window": None}
    assert outgrown(4096, {"window": 4096}) == {}


def test_one_low_report_changes_nothing_and_two_that_agree_do() -> None:
    """A gateway that leaves out what was cached reports this and that; a server that cuts, always about the same."""
    memory = Memory()
    usages = [(4451, 2), (2600, 2), (4200, 2), (4170, 2)]
    with ScriptedServer([text("ok", usage=usage) for usage in usages]) as server:
        asked = asking(server, window=200_000, memory=memory)
        found = []
        for _ in usages:
            asked.ask(LONG)
            found.append(memory.of(server.url, "scripted").get("window"))
    assert found == [None, None, None, 5120]
    assert asked.client.window == 5120


def test_a_learnt_window_is_forgotten_when_the_server_reads_more() -> None:
    memory = Memory()
    with ScriptedServer([text("ok", usage=(20025, 2))]) as server:
        memory.learn(server.url, "scripted", window=4096, max_output=512)
        asking(server, memory=memory).ask(LONG)
        known = memory.of(server.url, "scripted")
    assert (known.get("window"), known["max_output"]) == (None, 512)
