"""A `Database` in one SQLite file: readable by its owner only, used by one transaction at a time."""

import contextlib
import functools
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from evolverpc_common.installation import installed_version
from gepa_client.errors import JournalError, StoreDamaged, StoreUnavailable, StoreVersionDiffers
from gepa_client.journal.database import (
    SCHEMA_VERSION,
    Compared,
    KeyTaken,
    Order,
    Record,
    Rows,
    Table,
    Where,
    other_version,
)
from gepa_client.journal.stored_fields import decoding, to_json

APPLICATION_ID = 0x45565250  # "EVRP": distinguishes a store from any other database
BUSY_S = 5.0
PATIENCE_S = 20.0
PAUSE_S = 0.05
WAL_BYTES = 64 << 20
CHECKPOINT_PAGES = 8000  # of 4 KiB

T = TypeVar("T")


class SqliteDatabase:
    """A connection that threads share; each use of it is one transaction, tried again while others hold the lock.

    `application_id`: distinguishes the file's kind from any other database.

    Raises `StoreVersionDiffers`, `StoreUnavailable` (locked for `patience_s`, full, unreadable), or `JournalError`
    where the file is no database of ours.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        patience_s: float = PATIENCE_S,
        application_id: int = APPLICATION_ID,
    ) -> None:
        self.url = str(path)
        self.path = Path(path)
        self._patience_s = patience_s
        self._application_id = application_id
        self._lock = threading.Lock()
        self._closed = False
        self._connection = self._open()
        try:
            self._retried(self._prepare)
        except BaseException:
            self._connection.close()
            raise

    def declare(self, tables: Iterable[Table]) -> None:
        # Looked for first: readers of a store that another process has locked need no lock.
        declared = list(tables)

        def create(connection: sqlite3.Connection) -> None:
            for table in declared:
                _create(connection, table)

        if self._retried(lambda: any(_is_missing(self._connection, table) for table in declared)):
            self._retried(lambda: self._transaction("BEGIN IMMEDIATE", create))

    def read(self, work: Callable[[Rows], T]) -> T:
        return self._retried(lambda: self._transaction("BEGIN", lambda connection: work(SqliteRows(connection))))

    def write(self, work: Callable[[Rows], T]) -> T:
        return self._retried(
            lambda: self._transaction("BEGIN IMMEDIATE", lambda connection: work(SqliteRows(connection)))
        )

    def purge(self) -> None:
        def truncate() -> None:
            # It would wait for readers with all writers behind it: the next call finds what this one leaves.
            wait_ms = self._connection.execute("PRAGMA busy_timeout").fetchone()[0]
            self._connection.execute("PRAGMA busy_timeout = 0")
            try:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {wait_ms}")

        self._retried(truncate)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._connection.close()

    def _open(self) -> sqlite3.Connection:
        try:
            if self.path.is_dir():
                raise JournalError(f"the store {self.path} is a folder; name a file in it")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._create_file()
        except OSError as error:
            raise StoreUnavailable(
                f"the store {self.path} cannot be opened: {error.strerror}; choose another place as `store`"
            ) from error
        with self._translated_errors():
            return sqlite3.connect(
                self.path, timeout=min(BUSY_S, self._patience_s), isolation_level=None, check_same_thread=False
            )

    def _create_file(self) -> None:
        """Create the file if it is absent, for its owner only: SQLite gives -wal and -shm the mode of the file itself.

        A file that exists is not opened here: to close any descriptor of a file releases all locks that the process
        holds on it, those of other connections included (https://sqlite.org/howtocorrupt.html, section 2.2).
        """
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def _prepare(self) -> None:
        connection = self._connection
        self._transaction("BEGIN", self._check_version)
        # Asked for only where needed: changing the mode wants the file to itself.
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        # A checkpoint waits for the disk, and with it every example about to be sent: one for 32 MB rather than for 4.
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")  # one huge answer does not swell it for good
        connection.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten
        if self._version(connection) == 0:
            self._transaction("BEGIN IMMEDIATE", self._create)

    def _create(self, connection: sqlite3.Connection) -> None:
        self._check_version(connection)  # another process may have been here first
        if self._version(connection) == SCHEMA_VERSION:
            return
        connection.execute("CREATE TABLE written_by (evolverpc TEXT NOT NULL)")
        connection.execute("INSERT INTO written_by VALUES (?)", [installed_version()])
        connection.execute(f"PRAGMA application_id = {self._application_id}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _version(self, connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])

    def _check_version(self, connection: sqlite3.Connection) -> None:
        # In a transaction, whose reads see one state: between two of them another process may create the tables.
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if application != self._application_id:
            if connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                raise JournalError(f"{self.path} is a database of something else; name another file")
            return
        if (version := self._version(connection)) != SCHEMA_VERSION:
            found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'written_by'").fetchone()
            written_by = connection.execute("SELECT evolverpc FROM written_by").fetchone() if found else None
            raise StoreVersionDiffers(other_version(self.path, version, None if written_by is None else written_by[0]))

    def _transaction(self, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        if connection.in_transaction:  # a signal's exception came between two lines
            connection.execute("ROLLBACK")
        connection.execute(begin)
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite itself rolls back when the disk is full
                connection.execute("ROLLBACK")
            raise
        return result

    def _retried(self, work: Callable[[], T]) -> T:
        give_up = time.monotonic() + self._patience_s
        while True:
            with self._lock:
                if self._closed:
                    raise JournalError(f"the store {self.path} is closed")
                with self._translated_errors():
                    try:
                        return work()
                    except sqlite3.OperationalError as error:
                        if _code(error) not in _HELD or time.monotonic() >= give_up:
                            raise
            time.sleep(PAUSE_S)  # without the lock: another thread's turn may come

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = _code(error)
            if code in _PASSING:
                raise StoreUnavailable(f"the store {self.path} {_PASSING[code]} ({error})") from error
            if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
                raise StoreDamaged(
                    f"{self.path} is not a database, or is damaged ({error}); choose another file as `store`, or put "
                    "back a copy of it"
                ) from error
            raise JournalError(f"the store {self.path}: {error}") from error
        except OverflowError as error:  # of the Python module: a number of more than 64 bits
            raise JournalError(f"the store {self.path} cannot hold a number: {error}") from error
        except UnicodeEncodeError as error:  # a lone surrogate
            raise JournalError(f"the store {self.path} cannot hold a text: {error}") from error


_HELD = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_PASSING = {
    sqlite3.SQLITE_BUSY: "is locked by another process; end that one, or try again later",
    sqlite3.SQLITE_LOCKED: "is locked by another process; end that one, or try again later",
    sqlite3.SQLITE_FULL: "has no room left; free some space on its disk and resume",
    sqlite3.SQLITE_IOERR: "cannot be read or written; check its disk (full, over quota, gone?) and resume",
    sqlite3.SQLITE_READONLY: "may not be written; give yourself the right to write the file and its folder",
    sqlite3.SQLITE_PERM: "may not be opened; give yourself the right to read and write it",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that its folder is there and may be written",
}


def _code(error: sqlite3.Error) -> int:
    """Return the primary code; errors of the Python module itself have none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


class SqliteRows:
    """`Rows` within a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def insert(self, table: Table, rows: Sequence[Record]) -> None:
        try:
            self._connection.executemany(_insert(table), _values(table, table.columns, rows))
        except sqlite3.IntegrityError as error:
            raise KeyTaken(f"{table.name}: {error}") from error

    def update(self, table: Table, where: Where, changes: Record, *, counter: str | None = None) -> bool:
        conditions, values = _conditions(where)
        [stored] = _values(table, tuple(changes), [changes])
        statement = _update(table, tuple(changes), conditions, counter)
        return self._connection.execute(statement, [*stored, *values]).rowcount > 0

    def update_each(self, table: Table, rows: Sequence[Record]) -> bool:
        if not rows:
            return True
        others = tuple(name for name in rows[0] if name not in table.key)
        statement = _update(table, others, _of_key(table))
        values = _values(table, (*others, *table.key), rows)
        return self._connection.executemany(statement, values).rowcount == len(rows)

    def find(
        self,
        table: Table,
        where: Where,
        order: Order = (),
        *,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[Record]:
        names = table.columns if columns is None else tuple(columns)
        conditions, values = _conditions(where)
        values.append(-1 if limit is None else limit)
        statement = _select(table, names, conditions, tuple(order))
        return (_read(table, names, row) for row in self._connection.execute(statement, values))

    def sums(self, table: Table, where: Where, by: Sequence[str], of: Sequence[str] = ()) -> list[Record]:
        conditions, values = _conditions(where)
        # TOTAL, as SUM gives up where integers grow beyond 64 bits.
        selected = ", ".join([*by, "COUNT(*)", *(f"TOTAL({name})" for name in of)])
        grouped = f"GROUP BY {', '.join(by)}" if by else ""
        found = self._connection.execute(f"SELECT {selected} FROM {table.name} {_where(conditions)} {grouped}", values)  # noqa: S608 (our names)
        return [dict(zip((*by, "count", *of), row, strict=True)) for row in found]

    def delete(self, table: Table, where: Where) -> int:
        conditions, values = _conditions(where)
        return self._connection.execute(f"DELETE FROM {table.name} {_where(conditions)}", values).rowcount  # noqa: S608 (our names)


def _is_missing(connection: sqlite3.Connection, table: Table) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table.name]).fetchone() is None


def _create(connection: sqlite3.Connection, table: Table) -> None:
    """Create a table with its indexes unless it is there. Columns have no types: values keep their own."""
    columns, key = ", ".join(table.columns), ", ".join(table.key)
    connection.execute(f"CREATE TABLE IF NOT EXISTS {table.name} ({columns}, UNIQUE ({key}))")
    for index in table.indexes:
        name = "_".join((table.name, *index))
        connection.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {table.name} ({', '.join(index)})")


@functools.cache
def _insert(table: Table) -> str:
    places = ", ".join("?" * len(table.columns))
    return f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({places})"  # noqa: S608 (our names)


@functools.cache
def _update(table: Table, columns: tuple[str, ...], conditions: tuple[str, ...], counter: str | None = None) -> str:
    sets = [f"{name} = ?" for name in columns] + ([f"{counter} = {counter} + 1"] if counter else [])
    return f"UPDATE {table.name} SET {', '.join(sets)} {_where(conditions)}"  # noqa: S608 (our names)


@functools.cache
def _select(table: Table, columns: tuple[str, ...], conditions: tuple[str, ...], order: tuple[str, ...]) -> str:
    """Return a SELECT whose last value is the limit."""
    statement = f"SELECT {', '.join(columns)} FROM {table.name} {_where(conditions)}"  # noqa: S608 (our names)
    if order:
        statement += f" ORDER BY {', '.join(f'{name[1:]} DESC' if name[0] == '-' else name for name in order)}"
    return f"{statement} LIMIT ?"


def _where(conditions: tuple[str, ...]) -> str:
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""


@functools.cache
def _of_key(table: Table) -> tuple[str, ...]:
    return tuple(f"{name} = ?" for name in table.key)


def _conditions(where: Where) -> tuple[tuple[str, ...], list[Any]]:
    """Return conditions in SQL, and their values."""
    conditions, values = list[str](), list[Any]()
    for name, wanted in where.items():
        operator, value = wanted if isinstance(wanted, Compared) else ("=", wanted)
        if isinstance(value, list):
            conditions.append(f"{name} IN (SELECT value FROM json_each(?))")  # noqa: S608 (our names)
            value = to_json(value)
        elif operator == "!=":
            conditions.append(f"{name} IS NOT ?")
        else:
            conditions.append(f"{name} IS ?" if value is None else f"{name} {operator} ?")
        values.append(value)
    return tuple(conditions), values


def _values(table: Table, columns: Sequence[str], rows: Iterable[Record]) -> list[list[Any]]:
    if table.json.isdisjoint(columns):
        return [list(map(row.get, columns)) for row in rows]
    return [[_stored(table, name, row.get(name)) for name in columns] for row in rows]


def _stored(table: Table, name: str, value: Any) -> Any:
    return to_json(value) if name in table.json and value is not None else value


def _read(table: Table, names: Sequence[str], row: Sequence[Any]) -> Record:
    record = dict(zip(names, row, strict=True))
    if table.json:
        with decoding(f"a row of {table.name}"):
            for name in table.json.intersection(names):
                record[name] = None if record[name] is None else json.loads(record[name])
    return record
