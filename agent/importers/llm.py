"""The log of `llm`: SQLite, both shapes, one conversation for each of its conversations or threads.

From 0.32 on: `threads`, whose tip leads through `messages.parent_hash` back to the first; `parts` hold the content, and
text that came from a fragment is a reference to it. Before: `conversations` with `responses` in order of id, with their
fragments, tool calls and results. A log that was carried over has both: the threads, then conversations without one.
Opened read-only, and never locked.

Left out: reasoning; attachments other than images.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import orjson

from agent.importers.conversation import Conversation, Json, Unreadable, image, text_of, text_part
from agent.importers.source import Source

if TYPE_CHECKING:
    from sqlite3 import Connection, Row

LONGEST = 1_000_000
"""Messages of one thread; a chain beyond it is a circle."""


def read(source: Source) -> Iterator[Conversation]:
    """Every conversation of a log, oldest first. Raises Unreadable for a database of something else, or damage."""
    import sqlite3

    database = None
    try:
        database = _open(source.path)
        tables = {row["name"] for row in database.execute("select name from sqlite_master where type = 'table'")}
        if not ({"threads", "messages", "parts"} <= tables or {"conversations", "responses"} <= tables):
            raise Unreadable("it is a database, but no log of llm", "Find it with: llm logs path")
        yield from _conversations(database, tables, source)
    except (sqlite3.Error, UnicodeDecodeError) as problem:  # the latter: an error whose own text is damaged
        why = str(problem) if isinstance(problem, sqlite3.Error) else "its schema is not text"
        raise Unreadable(f"the database is damaged: {why}", f"Look at it: sqlite3 {source.path} .recover") from None
    except IndexError:  # a Row without that column
        raise Unreadable("its tables are of a version of llm that is not known", "Upgrade llm, and agent") from None
    finally:
        if database is not None:
            database.close()


def _open(path: str) -> Connection:
    """A connection that only reads; also where no side file can be made beside the database. Raises sqlite3.Error."""
    import sqlite3
    from urllib.parse import quote

    for mode in ("mode=ro", "mode=ro&immutable=1"):
        database = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?{mode}", uri=True)
        database.row_factory = sqlite3.Row
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            database.execute("select count(*) from sqlite_master").fetchone()
            break
        except BaseException as problem:
            database.close()
            if "immutable" in mode or not isinstance(problem, sqlite3.OperationalError):
                raise
    return database


def _conversations(database: Connection, tables: set[str], source: Source) -> Iterator[Conversation]:
    rows: list[tuple[Any, Row]] = []
    if {"threads", "messages", "parts"} <= tables:
        rows += [(_thread, row) for row in database.execute("select * from threads order by id")]
    if {"conversations", "responses"} <= tables:
        known = {row["id"] for _, row in rows}
        found = database.execute("select * from conversations order by id").fetchall()
        rows += [(_responses, row) for row in found if row["id"] not in known]
    for done, (reader, row) in enumerate(rows):
        source.progress(source.size // 2 + source.size * done // (2 * len(rows)), source.size)
        conversation = Conversation("llm", text_of(row["id"]), title=text_of(row["name"]))
        reader(database, tables, conversation, row)
        yield conversation.finish()


# ---- threads ----


def _thread(database: Connection, tables: set[str], conversation: Conversation, thread: Row) -> None:
    """Walk from the tip to the first message, then tell them in order, each with the time of its turn."""
    turns = database.execute("select * from turns where thread_id = ? order by id", (thread["id"],)).fetchall()
    times = {row[key]: row["datetime_utc"] for row in turns for key in ("parent_message_hash", "tip_message_hash")}
    conversation.model = text_of(turns[-1]["model"]) if turns else ""
    conversation.started = text_of(turns[0]["datetime_utc"] if turns else thread["datetime_utc"])
    chain: list[Row] = []
    at = thread["tip_message_hash"]
    while at and len(chain) < LONGEST:
        row = database.execute("select * from messages where hash = ?", (at,)).fetchone()
        if row is None:
            conversation.notices.append("its beginning is missing in the database")
            break
        chain.append(row)
        at = row["parent_hash"]
    for row in reversed(chain):
        parts = database.execute("select * from parts where message_hash = ? order by position", (row["hash"],))
        _message(database, tables, conversation, row["role"], parts.fetchall(), times.get(row["hash"]))


def _message(
    database: Connection, tables: set[str], conversation: Conversation, role: str, parts: list[Row], at: Any
) -> None:
    said: list[Json] = []
    for part in parts:
        kind, payload = part["type"], _json(part["payload"])
        if kind == "text":
            said.append(text_part(part["text"] or _referenced(database, payload)))
        elif kind == "tool_call":
            _tell(conversation, role, said, at)
            call = payload.get("tool_call_id"), payload.get("name") or part["tool_name"], payload.get("arguments")
            conversation.call(*call, at, model=conversation.model)
        elif kind == "tool_result":
            failed = bool(payload.get("exception"))
            conversation.result(payload.get("tool_call_id"), text_of(payload.get("output")), at, ok=not failed)
        elif kind == "attachment" and "part_attachments" in tables:
            sql = "select a.* from attachments a join part_attachments p on p.attachment_id = a.id where p.part_id = ?"
            said += _pictures(conversation, database.execute(sql, (part["id"],)).fetchall())
        else:
            conversation.drop(text_of(kind) or "unknown parts")
    _tell(conversation, role, said, at)


def _tell(conversation: Conversation, role: str, said: list[Json], at: Any) -> None:
    """What was gathered of a message so far, as who said it."""
    text = "\n\n".join(p["text"] for p in said if p["type"] == "text")
    if role == "system":
        conversation.system = conversation.system or text
    elif role == "assistant":
        conversation.assistant(text, at, model=conversation.model)
    elif said:
        conversation.user(list(said), at)
    said.clear()


def _referenced(database: Connection, payload: Json) -> str:
    """Text that is stored as references to fragments, with literal text between them."""
    pieces = payload.get("text_ref")
    told = []
    for piece in pieces if isinstance(pieces, list) else []:
        if isinstance(piece, dict) and "fragment" in piece:
            row = database.execute("select content from fragments where id = ?", (piece["fragment"],)).fetchone()
            told.append(text_of(row["content"]) if row else "")
        elif isinstance(piece, dict):
            told.append(text_of(piece.get("literal")))
    return "".join(told)


# ---- conversations before 0.32 ----


def _responses(database: Connection, tables: set[str], conversation: Conversation, row: Row) -> None:
    """Each response is a prompt with what went with it, and its answer."""
    conversation.model = text_of(row["model"])
    sql = "select * from responses where conversation_id = ? order by datetime_utc, id"
    for response in database.execute(sql, (row["id"],)).fetchall():
        id, at = response["id"], response["datetime_utc"]
        conversation.started = conversation.started or text_of(at)
        pieces = [*_fragments(database, tables, "system_fragments", id), text_of(response["system"])]
        system = "\n\n".join(filter(None, pieces))
        if conversation.system and system and system != conversation.system:
            conversation.drop("later system prompts")
        conversation.system = conversation.system or system
        for result in _rows_of(database, tables, "tool_results", id):
            failed = "exception" in result.keys() and bool(result["exception"])  # noqa: SIM118 - a Row is no dict
            conversation.result(result["tool_call_id"], text_of(result["output"]), at, ok=not failed)
        prompt = [*_fragments(database, tables, "prompt_fragments", id), text_of(response["prompt"])]
        said = [text_part("\n".join(filter(None, prompt))), *_attached(conversation, database, tables, id)]
        conversation.user(said, at)
        conversation.assistant(text_of(response["response"]), at, model=text_of(response["model"]))
        for call in _rows_of(database, tables, "tool_calls", id):
            conversation.call(call["tool_call_id"], call["name"], call["arguments"], at, model=conversation.model)


def _rows_of(database: Connection, tables: set[str], table: str, response: str) -> list[Row]:
    if table not in tables:
        return []
    return database.execute(f"select * from {table} where response_id = ? order by id", (response,)).fetchall()


def _fragments(database: Connection, tables: set[str], table: str, response: str) -> list[str]:
    if table not in tables:
        return []
    sql = f"select f.content from fragments f join {table} t on t.fragment_id = f.id where t.response_id = ?"
    return [text_of(row["content"]) for row in database.execute(f'{sql} order by t."order"', (response,))]


def _attached(conversation: Conversation, database: Connection, tables: set[str], response: str) -> list[Json]:
    if "prompt_attachments" not in tables:
        return []
    sql = "select a.* from attachments a join prompt_attachments p on p.attachment_id = a.id where p.response_id = ?"
    return _pictures(conversation, database.execute(f'{sql} order by p."order"', (response,)).fetchall())


# ---- both ----


def _pictures(conversation: Conversation, rows: list[Row]) -> list[Json]:
    """Attachments that are images inside the database or at an address."""
    found = []
    for row in rows:
        kind, url = text_of(row["type"]), text_of(row["url"])
        content = base64.b64encode(row["content"]).decode() if isinstance(row["content"], bytes) else ""
        part = image(kind, content)
        if part is None and kind.startswith("image/") and url.startswith("http"):
            part = {"type": "image_url", "image_url": {"url": url}}
        if part is None:
            conversation.drop("attachments")
        else:
            found.append(part)
    return found


def _json(text: Any) -> Json:
    try:
        found = orjson.loads(text or "{}")
    except (orjson.JSONDecodeError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
