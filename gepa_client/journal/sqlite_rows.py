"""The tables of a SQLite store, and the writing of rows."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gepa_client.errors import JournalError, NumberTaken
from gepa_client.journal.entries import STOP, AttemptFinished, AttemptStarted, CandidateRecord, Entry, Row, StoredRun
from gepa_client.journal.stored_fields import (
    FINISHED_FIELDS,
    FIRST,
    JSON_FIELDS,
    RUN_FIELDS,
    STARTED_FIELDS,
    ChainEnd,
    Record,
    candidate_bytes,
    checksum,
    decoding,
    finished_record,
    link,
    pack,
    plain,
    run_of,
    to_json,
)

SCHEMA = """
CREATE TABLE written_by (evolverpc TEXT NOT NULL);
CREATE TABLE runs (
    key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT, program TEXT, status TEXT NOT NULL, reason TEXT,
    config TEXT NOT NULL, identity TEXT, counters TEXT NOT NULL, best TEXT, output TEXT, parent TEXT,
    requested_action TEXT, driver TEXT, created TEXT NOT NULL, updated TEXT NOT NULL, started TEXT, completed TEXT,
    owner TEXT, beat INTEGER NOT NULL
);
CREATE TABLE entries (
    run INTEGER NOT NULL REFERENCES runs, part TEXT NOT NULL, number INTEGER NOT NULL,
    kind TEXT NOT NULL, digest TEXT NOT NULL, about TEXT NOT NULL, owner TEXT NOT NULL,
    packed INTEGER NOT NULL, answer BLOB NOT NULL, seq INTEGER, link BLOB,
    UNIQUE (run, part, number)
);
CREATE TABLE chains (
    run INTEGER NOT NULL REFERENCES runs, owner TEXT NOT NULL, length INTEGER NOT NULL, link BLOB NOT NULL,
    PRIMARY KEY (run, owner)
) WITHOUT ROWID;
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
);
CREATE TABLE requests (
    run INTEGER NOT NULL REFERENCES runs, id TEXT NOT NULL, action TEXT NOT NULL, author TEXT NOT NULL,
    created TEXT NOT NULL, outcome TEXT, number INTEGER, reason TEXT,
    UNIQUE (run, id)
)
"""

RUN_COLUMNS = (*RUN_FIELDS, "owner", "beat")
ATTEMPT_COLUMNS = (*STARTED_FIELDS, *FINISHED_FIELDS)
ENTRY_COLUMNS = ("run", "part", "number", "kind", "digest", "about", "owner", "packed", "answer")
_FIND_ENTRY = f"SELECT 1 FROM entries WHERE {' AND '.join(f'{name} IS ?' for name in ENTRY_COLUMNS)}"  # noqa: S608 (our own column names)

_SENT = (*STARTED_FIELDS, "owner")
_FIND_ATTEMPT = f"SELECT 1 FROM attempts WHERE run IS ? AND {' AND '.join(f'{name} IS ?' for name in _SENT)}"  # noqa: S608 (our own column names)
_END = (
    f"UPDATE attempts SET {', '.join(f'{name} = ?' for name in FINISHED_FIELDS)}"  # noqa: S608 (our own column names)
    " WHERE run = ? AND part = ? AND number = ? AND attempt = ?"
)


def run_row(record: Record) -> Record:
    """Return a run's fields as SQLite holds them: JSON as text."""
    return {
        name: to_json(value) if name in JSON_FIELDS and value is not None else value for name, value in record.items()
    }


def run_of_row(row: Sequence[Any]) -> StoredRun:
    """Return the run of a row of `RUN_COLUMNS`. Raises `StoreDamaged`."""
    record = dict(zip(RUN_COLUMNS, row, strict=True))
    with decoding(f"the record of run {record['id']}"):
        for name in JSON_FIELDS:
            record[name] = None if record[name] is None else json.loads(record[name])
    return run_of(record)


class PreparedRows:
    """Rows ready to be inserted: compressed before the file is locked, so that a repeat costs no second time."""

    def __init__(self, rows: Iterable[Row], owner: str) -> None:
        self._owner = owner
        self._sent: list[tuple[Any, ...]] = []  # the values of `_SENT`
        self._ended: list[AttemptFinished] = []
        self._entries: list[_Entry] = []
        self._kept: list[tuple[int, bool, bytes]] = []
        for row in rows:
            match row:
                case AttemptStarted():
                    place = (row.part, row.number, row.attempt)
                    self._sent.append((*place, row.kind, plain(row.endpoint), row.instance, owner))
                case AttemptFinished():
                    self._ended.append(row)
                case CandidateRecord():
                    body, packed = pack(candidate_bytes(row))
                    self._kept.append((row.index, packed, body))
                case Entry():
                    answer, packed = pack(row.answer)
                    about = plain(row.about)
                    entry = (row.part, row.number, row.kind, row.digest, about)
                    seal = checksum(*entry, packed=packed, data=answer)
                    self._entries.append(_Entry((*entry, owner, packed, answer), seal, chained=row.kind != STOP))

    def write(self, connection: sqlite3.Connection, key: int, run_id: str) -> None:
        """Insert them all. Raises `NumberTaken`, and `JournalError` for an end without a beginning."""
        self._start(connection, key, run_id)
        self._end(connection, key, run_id)
        self._insert_entries(connection, key, run_id)
        connection.executemany(
            "INSERT INTO candidates (run, number, packed, body) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (run, number) DO UPDATE SET packed = excluded.packed, body = excluded.body",
            [(key, *kept) for kept in self._kept],
        )

    def _insert_entries(self, connection: sqlite3.Connection, key: int, run_id: str) -> None:
        new: dict[tuple[Any, ...], _Entry] = {}
        for each in self._entries:
            if new.setdefault(each.values[:2], each).values != each.values:
                raise _taken(run_id, each)
        if new:
            self._chain(connection, key, [each for each in new.values() if _is_new(connection, key, run_id, each)])

    def _chain(self, connection: sqlite3.Connection, key: int, entries: "Sequence[_Entry]") -> None:
        """Insert them behind the end of their writer's chain."""
        owner = self._owner
        found = connection.execute("SELECT length, link FROM chains WHERE run = ? AND owner = ?", [key, owner])
        tail = ChainEnd(*(found.fetchone() or ()))
        rows: list[tuple[Any, ...]] = []
        for entry in entries:
            if entry.chained:
                tail = tail.grown(entry.checksum)
                rows.append((key, *entry.values, tail.length - 1, tail.link))
            else:
                rows.append((key, *entry.values, None, link(FIRST, entry.checksum)))
        connection.executemany(_INSERT_ENTRY, rows)
        connection.execute(
            "INSERT INTO chains (run, owner, length, link) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (run, owner) DO UPDATE SET length = excluded.length, link = excluded.link",
            [key, owner, tail.length, tail.link],
        )

    def _start(self, connection: sqlite3.Connection, key: int, run_id: str) -> None:
        rows = [(key, *sent) for sent in self._sent]
        if connection.executemany(_INSERT_ATTEMPT, rows).rowcount == len(rows):
            return
        # Something was there: a repeat of our own, or another driver's. The outcome of an attempt may differ.
        for row in rows:
            if connection.execute(_FIND_ATTEMPT, row).fetchone() is None:
                _, part, number, attempt, *_ = row
                raise NumberTaken(f"run {run_id}: another process has written {part} {number} {attempt} of attempts")

    def _end(self, connection: sqlite3.Connection, key: int, run_id: str) -> None:
        for ended in self._ended:
            values = [*finished_record(ended).values(), key, ended.part, ended.number, ended.attempt]
            if connection.execute(_END, values).rowcount == 0:
                raise JournalError(f"run {run_id}: attempt {ended.part} {ended.number} {ended.attempt} was never sent")


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry's values in the order of `ENTRY_COLUMNS` without the run. `chained`: False if it may be deleted."""

    values: tuple[Any, ...]
    checksum: bytes
    chained: bool


def _is_new(connection: sqlite3.Connection, key: int, run_id: str, entry: _Entry) -> bool:
    """Whether nothing is there yet. Raises `NumberTaken` where something else is."""
    part, number = entry.values[:2]
    where = "WHERE run = ? AND part = ? AND number = ?"
    if connection.execute(f"SELECT 1 FROM entries {where}", [key, part, number]).fetchone() is None:  # noqa: S608 (constant)
        return True
    if connection.execute(_FIND_ENTRY, [key, *entry.values]).fetchone() is None:
        raise _taken(run_id, entry)
    return False


def _taken(run_id: str, entry: _Entry) -> NumberTaken:
    part, number = entry.values[:2]
    return NumberTaken(f"run {run_id}: another process has written {part} {number} of entries")


def insert_into(table: str, columns: Sequence[str]) -> str:
    """Return a statement that inserts one row."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 (our own names)


_INSERT_ENTRY = insert_into("entries", (*ENTRY_COLUMNS, "seq", "link"))
_INSERT_ATTEMPT = f"{insert_into('attempts', ('run', *_SENT))} ON CONFLICT (run, part, number, attempt) DO NOTHING"
