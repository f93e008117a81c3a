"""One SQLite file: readable by its owner only, used by one transaction at a time, its errors translated."""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from evolverpc_common.installation import installed_version
from gepa_client.errors import JournalError, StoreDamaged, StoreUnavailable, StoreVersionDiffers
from gepa_client.journal.stored_fields import SCHEMA_VERSION, other_version

APPLICATION_ID = 0x45565250  # "EVRP": distinguishes a store from any other database
BUSY_S = 5.0
PATIENCE_S = 20.0
PAUSE_S = 0.05
WAL_BYTES = 64 << 20
CHECKPOINT_PAGES = 8000  # of 4 KiB

T = TypeVar("T")


class SqliteFile:
    """A connection that threads share; each use of it is one transaction, tried again while others hold the lock.

    Raises `StoreVersionDiffers`, `StoreUnavailable` (locked for `patience_s`, full, unreadable), or `JournalError`
    where the file is no database of ours.
    """

    def __init__(self, path: Path, schema: str, *, patience_s: float = PATIENCE_S) -> None:
        self.path = path
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._closed = False
        self._connection = self._open()
        try:
            self._retried(lambda: self._prepare(schema))
        except BaseException:
            self._connection.close()
            raise

    def transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work in one transaction that may write; any exception rolls it back. It may run twice."""
        return self._retried(lambda: self._transaction("BEGIN IMMEDIATE", work))

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work in one transaction that sees one state of the file."""
        return self._retried(lambda: self._transaction("BEGIN", work))

    def close(self) -> None:
        """Close the connection; safe to call twice."""
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

    def _prepare(self, schema: str) -> None:
        connection = self._connection
        self._transaction("BEGIN", self._check_version)
        # Asked for only where needed: changing the mode wants the file to itself.
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        # A checkpoint waits for the disk, and with it every example about to be sent: one for 32 MB rather than for 4.
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")  # one huge answer does not swell it for good
        connection.execute("PRAGMA foreign_keys = ON")
        if self._version(connection) == 0:
            self._transaction("BEGIN IMMEDIATE", lambda open_: self._create(open_, schema))

    def _create(self, connection: sqlite3.Connection, schema: str) -> None:
        self._check_version(connection)  # another process may have been here first
        if self._version(connection) == SCHEMA_VERSION:
            return
        for statement in schema.split(";"):
            connection.execute(statement)
        connection.execute("INSERT INTO written_by VALUES (?)", [installed_version()])
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _version(self, connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])

    def _check_version(self, connection: sqlite3.Connection) -> None:
        # In a transaction, whose reads see one state: between two of them another process may create the tables.
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if application != APPLICATION_ID:
            if connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                raise JournalError(f"{self.path} is a database of something else; choose another file as `store`")
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
