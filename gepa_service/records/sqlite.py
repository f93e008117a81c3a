"""Records in a SQLite file: one table, whose rows hold the JSON of a record beside the values to select by."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gepa_service.records.checkpoints import PAGES_WITHOUT, Checkpoints
from gepa_service.records.record import Record, now
from gepa_service.records.store import (
    LARGEST_PAGE,
    RecordChanged,
    RecordError,
    RecordExists,
    RecordsUnavailable,
    Where,
)

R = TypeVar("R", bound=Record)

APPLICATION_ID = 0x45565253  # "EVRS": distinguishes it from a store of journals
BUSY_S = 20.0
SCHEMA = """
CREATE TABLE record (
    kind TEXT NOT NULL, tenant TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (kind, tenant, id)
) WITHOUT ROWID;
CREATE TABLE field (
    kind TEXT NOT NULL, name TEXT NOT NULL, value TEXT, tenant TEXT NOT NULL, id TEXT NOT NULL,
    PRIMARY KEY (kind, tenant, id, name),
    FOREIGN KEY (kind, tenant, id) REFERENCES record ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX record_id ON record (kind, id, tenant);
CREATE INDEX field_value ON field (kind, name, value, tenant, id);
CREATE INDEX field_value_of_all ON field (kind, name, value, id, tenant)
"""


class SqliteRecords:
    """Implements `RecordStore`; the file is readable by its owner only.

    Raises:
        RecordError: the file is another database. RecordsUnavailable: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        with _translated(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        self._path = path
        self._checkpoints = Checkpoints(path)
        try:
            with _translated(path):
                self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.execute("PRAGMA foreign_keys = ON")
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES_WITHOUT}").fetchone()
            with self._transaction() as connection:
                self._prepare(connection)
        except BaseException:
            self._connection.close()
            raise

    def insert(self, record: Record) -> None:
        """Add a record. Raises `RecordExists`."""
        with self._transaction() as connection:
            try:
                connection.execute("INSERT INTO record VALUES (?, ?, ?, ?, ?)", _row(record))
            except sqlite3.IntegrityError:
                raise RecordExists(f"there is a {record.kind} {record.id} already") from None
            self._write_fields(connection, record)

    def get(self, type_: type[R], tenant: str, id_: str) -> R | None:
        """Return a record; None if there is none."""
        with self._reading() as connection:
            found = connection.execute(
                "SELECT body FROM record WHERE kind = ? AND tenant = ? AND id = ?", (type_.kind, tenant, id_)
            ).fetchone()
        return None if found is None else type_.model_validate_json(found[0])

    def replace(self, record: R) -> R:
        """Write a record that was read before; return it with its new version. Raises `RecordChanged`."""
        written = record.model_copy(update={"version": record.version + 1, "updated": now()})
        with self._transaction() as connection:
            kind, tenant, id_, version, body = _row(written)
            done = connection.execute(
                "UPDATE record SET version = ?, body = ? WHERE kind = ? AND tenant = ? AND id = ? AND version = ?",
                (version, body, kind, tenant, id_, record.version),
            ).rowcount
            if not done:
                raise RecordChanged(f"{record.kind} {record.id} has changed")
            self._write_fields(connection, written)
        return written

    def delete(self, record: Record) -> None:
        """Delete a record that was read before. Raises `RecordChanged`."""
        with self._transaction() as connection:
            done = connection.execute(
                "DELETE FROM record WHERE kind = ? AND tenant = ? AND id = ? AND version = ?",
                (record.kind, record.tenant, record.id, record.version),
            ).rowcount
            if not done:
                raise RecordChanged(f"{record.kind} {record.id} has changed")

    def page(
        self,
        type_: type[R],
        tenant: str | None,
        where: Where | None = None,
        *,
        after: str | None = None,
        limit: int = LARGEST_PAGE,
        newest_first: bool = False,
    ) -> list[R]:
        """Return records in the order of their ids, those that follow the id `after`. `tenant`: None for all."""
        query, values = page_query(type_, tenant, where, after=after, limit=limit, newest_first=newest_first)
        with self._reading() as connection:
            found = connection.execute(query, values).fetchall()
        return [type_.model_validate_json(body) for (body,) in found]

    def count(self, type_: type[Record], tenant: str | None, where: Where | None = None) -> int:
        """Return how many records a page without limit would hold."""
        tables, condition, values = _selected(type_, tenant, where)
        query = f"SELECT count(*) FROM {tables} WHERE {condition}"  # noqa: S608  made of constants
        with self._reading() as connection:
            return int(connection.execute(query, values).fetchone()[0])

    def tenants_with(self, type_: type[Record], where: Where | None = None) -> dict[str, int]:
        """Return the number of such records by tenant, tenants without any left out."""
        tables, condition, values = _selected(type_, None, where)
        query = f"SELECT first.tenant, count(*) FROM {tables} WHERE {condition} GROUP BY first.tenant"  # noqa: S608  constants
        with self._reading() as connection:
            return dict(connection.execute(query, values).fetchall())

    def close(self) -> None:
        """Close it; safe to call twice."""
        self._checkpoints.close()
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection for one query, which sees one state of the database without a transaction around it."""
        with self._lock, _translated(self._path):
            yield self._connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _translated(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
                self._checkpoints.committed()
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _prepare(self, connection: sqlite3.Connection) -> None:
        found = connection.execute("PRAGMA application_id").fetchone()[0]
        if found == APPLICATION_ID:
            return
        if found or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise RecordError(f"{self._path} is another database; name a new file")
        for statement in SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")

    @staticmethod
    def _write_fields(connection: sqlite3.Connection, record: Record) -> None:
        connection.executemany(
            "INSERT INTO field VALUES (?, ?, ?, ?, ?) ON CONFLICT (kind, tenant, id, name)"
            " DO UPDATE SET value = excluded.value WHERE value IS NOT excluded.value",  # its indexes stay untouched
            [(record.kind, name, getattr(record, name), record.tenant, record.id) for name in record.indexed],
        )


def _row(record: Record) -> tuple[str, str, str, int, str]:
    return record.kind, record.tenant, record.id, record.version, record.model_dump_json()


def page_query(
    type_: type[Record], tenant: str | None, where: Where | None, *, after: str | None, limit: int, newest_first: bool
) -> tuple[str, list[Any]]:
    """Return the query of a page and its values. Raises `ValueError` for a field that is not indexed."""
    tables, condition, values = _selected(type_, tenant, where)
    if after is not None:
        condition += " AND first.id < ?" if newest_first else " AND first.id > ?"
        values.append(after)
    order = "first.id DESC, first.tenant" if newest_first else "first.id, first.tenant"
    body = "first.body"
    if where:
        body = "record.body"
        tables += " CROSS JOIN record ON " + SAME_RECORD.format("record")  # CROSS: the field is looked up first
    return f"SELECT {body} FROM {tables} WHERE {condition} ORDER BY {order} LIMIT ?", [*values, limit]  # noqa: S608  constants


SAME_RECORD = "{0}.kind = first.kind AND {0}.tenant = first.tenant AND {0}.id = first.id"


def _selected(type_: type[Record], tenant: str | None, where: Where | None) -> tuple[str, str, list[Any]]:
    """Return tables, a condition, and its values; `first` is the table of the first field, or that of records.

    Raises:
        ValueError: a field is not indexed.
    """
    condition, values = "first.kind = ?", [type_.kind]
    if tenant is not None:
        condition += " AND first.tenant = ?"
        values.append(tenant)
    for number, (name, wanted) in enumerate((where or {}).items()):
        if name not in type_.indexed:
            raise ValueError(f"{type_.kind} is not indexed by {name}")
        table = "first" if number == 0 else "other"
        matches, accepted = _matches(table, wanted)
        matches = f"{table}.name = ? AND {matches}"
        if number:
            same = SAME_RECORD.format("other")
            matches = f"EXISTS (SELECT 1 FROM field AS other WHERE {same} AND {matches})"  # noqa: S608  constants
        condition += f" AND {matches}"
        values += [name, *accepted]
    return ("field" if where else "record") + " AS first", condition, values


def _matches(table: str, wanted: str | Sequence[str] | None) -> tuple[str, list[str]]:
    """Return the condition that a field has a wanted value, and its values."""
    if wanted is None:
        return f"{table}.value IS NULL", []
    if isinstance(wanted, str):
        return f"{table}.value = ?", [wanted]
    return f"{table}.value IN ({', '.join('?' for _ in wanted)})", list(wanted)


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise RecordsUnavailable(f"the records in {path} are closed") from error
    except sqlite3.DatabaseError as error:
        raise RecordsUnavailable(f"the records in {path} cannot be used: {error}") from error
    except OSError as error:
        raise RecordsUnavailable(f"the records in {path} cannot be opened: {error.strerror}") from error
