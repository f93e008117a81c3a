"""The tables of a SQLite store, and how the rows of one write get into them."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from gepa_client.errors import JournalError, NumberTaken
from gepa_client.journal.entries import Ended, Entry, Kept, Row, Sent
from gepa_client.journal.records import (
    ENDED_FIELDS,
    RUN_FIELDS,
    SENT_FIELDS,
    ended_record,
    kept_bytes,
    pack,
    plain,
    sent_record,
)

SCHEMA = """
CREATE TABLE runs (
    key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT, status TEXT NOT NULL, reason TEXT,
    config TEXT NOT NULL, identity TEXT, counters TEXT NOT NULL, best TEXT, output TEXT, parent TEXT, wish TEXT,
    driver TEXT, created TEXT NOT NULL, updated TEXT NOT NULL, owner TEXT, beat INTEGER NOT NULL
);
CREATE TABLE entries (
    run INTEGER NOT NULL REFERENCES runs, part TEXT NOT NULL, number INTEGER NOT NULL,
    kind TEXT NOT NULL, digest TEXT NOT NULL, about TEXT NOT NULL, owner TEXT NOT NULL,
    packed INTEGER NOT NULL, answer BLOB NOT NULL,
    UNIQUE (run, part, number)
);
CREATE TABLE attempts (
    run INTEGER NOT NULL REFERENCES runs, part TEXT NOT NULL, number INTEGER NOT NULL, attempt INTEGER NOT NULL,
    kind TEXT NOT NULL, endpoint TEXT NOT NULL, instance TEXT,
    outcome TEXT, seconds REAL, usage TEXT, cost_usd REAL, input_tokens, output_tokens, examples INTEGER,
    unpriced INTEGER, owner TEXT NOT NULL,
    UNIQUE (run, part, number, attempt)
);
CREATE TABLE candidates (
    run INTEGER NOT NULL REFERENCES runs, number INTEGER NOT NULL, packed INTEGER NOT NULL, body BLOB NOT NULL,
    UNIQUE (run, number)
)
"""

RUN_COLUMNS = (*RUN_FIELDS, "owner", "beat")
ATTEMPT_COLUMNS = (*SENT_FIELDS, *ENDED_FIELDS)
OWNED_COLUMNS = ("run", *ATTEMPT_COLUMNS, "owner")
ENTRY_COLUMNS = ("run", "part", "number", "kind", "digest", "about", "owner", "packed", "answer")

_END = f"UPDATE attempts SET {', '.join(f'{name} = ?' for name in ENDED_FIELDS)}"  # noqa: S608 (our own column names)


class Prepared:
    """Rows ready to be inserted: compressed before the file is locked, so that a repeat costs no second time."""

    def __init__(self, rows: Iterable[Row], owner: str) -> None:
        self._owner = owner
        self._sent: list[dict[str, Any]] = []
        self._ended: list[Ended] = []
        self._entries: list[tuple[Any, ...]] = []
        self._kept: list[tuple[int, bool, bytes]] = []
        for row in rows:
            match row:
                case Sent():
                    self._sent.append(sent_record(row, owner))
                case Ended():
                    self._ended.append(row)
                case Kept():
                    body, packed = pack(kept_bytes(row))
                    self._kept.append((row.index, packed, body))
                case Entry():
                    answer, packed = pack(row.answer)
                    about = plain(row.about)
                    self._entries.append((row.part, row.number, row.kind, row.digest, about, owner, packed, answer))

    def write(self, connection: sqlite3.Connection, key: int, run_id: str) -> None:
        """Insert them all. Raises `NumberTaken`, and `JournalError` for an end without a beginning."""
        sent = [[key, *(record[name] for name in (*ATTEMPT_COLUMNS, "owner"))] for record in self._sent]
        self._insert(connection, "attempts", OWNED_COLUMNS, ("run", "part", "number", "attempt"), sent, run_id)
        self._end(connection, key, run_id)
        entries = [[key, *entry] for entry in self._entries]
        self._insert(connection, "entries", ENTRY_COLUMNS, ("run", "part", "number"), entries, run_id)
        connection.executemany(
            "INSERT INTO candidates (run, number, packed, body) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (run, number) DO UPDATE SET packed = excluded.packed, body = excluded.body",
            [(key, *kept) for kept in self._kept],
        )

    def _insert(
        self,
        connection: sqlite3.Connection,
        table: str,
        columns: Sequence[str],
        unique: Sequence[str],
        rows: list[list[Any]],
        run_id: str,
    ) -> None:
        if not rows:
            return
        insert = f"{insert_into(table, columns)} ON CONFLICT ({', '.join(unique)}) DO NOTHING"
        if connection.executemany(insert, rows).rowcount == len(rows):
            return
        # Something was there: a repeat of our own, or another driver's. What an attempt came to may differ.
        same = [name for name in columns if name not in ENDED_FIELDS]
        where = " AND ".join(f"{name} IS ?" for name in same)
        find = f"SELECT 1 FROM {table} WHERE {where}"  # noqa: S608 (our own names)
        for row in rows:
            values = [value for name, value in zip(columns, row, strict=True) if name in same]
            if connection.execute(find, values).fetchone() is None:
                numbers = " ".join(str(value) for value in row[1 : len(unique)])
                raise NumberTaken(f"run {run_id}: another process has written {numbers} of {table}")

    def _end(self, connection: sqlite3.Connection, key: int, run_id: str) -> None:
        ends = [[*ended_record(ended).values(), key, ended.part, ended.number, ended.attempt] for ended in self._ended]
        if not ends:
            return
        where = "WHERE run = ? AND part = ? AND number = ? AND attempt = ?"
        if connection.executemany(f"{_END} {where}", ends).rowcount == len(ends):
            return
        for ended in self._ended:
            numbers = [ended.part, ended.number, ended.attempt]
            found = connection.execute(f"SELECT 1 FROM attempts {where}", [key, *numbers]).fetchone()  # noqa: S608 (constant)
            if found is None:
                raise JournalError(f"run {run_id}: attempt {ended.part} {ended.number} {ended.attempt} was never sent")


def insert_into(table: str, columns: Sequence[str]) -> str:
    """A statement that inserts one row."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 (our own names)
