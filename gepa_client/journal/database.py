"""What stores need of a database, SQLite or MongoDB: rows of declared tables, added, changed, found and summed.

The methods of a store, and what they promise, are written once above it (`gepa_client.journal.store`, and
`gepa_service.records`).
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from evolverpc_common.installation import installed_version
from gepa_client.errors import JournalError

SCHEMA_VERSION = 13
"""Raised by each change of a table; a database of another version is refused."""

Record = dict[str, Any]
T = TypeVar("T")


class Compared(NamedTuple):
    """A condition of a column: its value is less, greater or another one than `value`; `!=` holds for None too."""

    operator: Literal["<", ">", ">=", "!="]
    value: Any


Where = Mapping[str, Any]
"""Conditions by column: a value, None, a `Compared`, or a list that contains the value."""

Order = Sequence[str]
"""Columns; one with a `-` before it descends."""


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of one kind. Values are texts, numbers, None, and those of the columns that are named here.

    `key`: columns whose values no two rows share; `indexes`: further columns that rows are found by, and their order.
    `json`: columns of JSON values, text in SQLite and documents in MongoDB. `times`: columns of times as
    `gepa_client.journal.entries.now` writes them, text in SQLite and dates in MongoDB. `blob`: a column of bytes of any
    length; the rows have their number in `size`.
    """

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    indexes: tuple[tuple[str, ...], ...] = ()
    json: frozenset[str] = frozenset()
    times: frozenset[str] = frozenset()
    blob: str | None = None

    def place(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values of the key."""
        return tuple(row[name] for name in self.key)

    def of_key(self, row: Mapping[str, Any]) -> "Where":
        """Return the conditions of the row that has the same key."""
        return {name: row[name] for name in self.key}


class KeyTaken(JournalError):
    """A row of the same key is there already."""


class Rows(Protocol):
    """The rows of a database within one `Database.write` or `Database.read`."""

    def insert(self, table: Table, rows: Sequence[Record]) -> None:
        """Add rows in their order. Raises `KeyTaken`; without transactions those before it stay."""
        ...

    def update(self, table: Table, where: Where, changes: Record, *, counter: str | None = None) -> bool:
        """Change the row that fulfils the conditions, and return whether there is one; `counter` grows by 1."""
        ...

    def update_each(self, table: Table, rows: Sequence[Record]) -> bool:
        """Change the other columns of the rows of these keys; return whether all were there."""
        ...

    def find(
        self,
        table: Table,
        where: Where,
        order: Order = (),
        *,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[Record]:
        """Yield the rows that fulfil the conditions. `columns`: the ones that are needed.

        Raises `StoreDamaged` at a row that cannot be read.
        """
        ...

    def sums(self, table: Table, where: Where, by: Sequence[str], of: Sequence[str] = ()) -> list[Record]:
        """Return `count`, and the sums of the columns `of`, for each of the values of the columns `by`, unordered."""
        ...

    def delete(self, table: Table, where: Where) -> int:
        """Delete the rows that fulfil the conditions, and return their number."""
        ...


class Database(Protocol):
    """A database that several threads use, and several processes.

    `work` may run again: where a lock was held, or a connection lost. All that it writes in SQLite is there, or
    nothing; in MongoDB what an end of the process or an exception leaves half done stays, in the order of writing, so
    that `work` is made to be repeated over it.

    Raises `StoreUnavailable` (full, locked, unreachable), `StoreDamaged`, and `JournalError`, also if it is closed.
    """

    url: str

    def declare(self, tables: Iterable[Table]) -> None:
        """Create what is absent of these tables, and of their indexes."""
        ...

    def read(self, work: Callable[[Rows], T]) -> T:
        """Do the work, which changes nothing; in SQLite on one state of the database."""
        ...

    def write(self, work: Callable[[Rows], T]) -> T:
        """Do the work; in SQLite an exception undoes it."""
        ...

    def purge(self) -> None:
        """Remove from the files what was deleted, as far as no other process reads them now."""
        ...

    def close(self) -> None:
        """Close it; safe to call twice."""
        ...


OTHERS = 3
"""How often another process may insert the same row between a look and an insertion."""


def inserted(database: Database, work: Callable[[Rows, bool], T]) -> T:
    """Do work that inserts rows. Its second argument is true if some may be there already: it then looks for them."""
    try:
        return database.write(lambda rows: work(rows, False))
    except KeyTaken:
        for _ in range(OTHERS):
            with contextlib.suppress(KeyTaken):
                return database.write(lambda rows: work(rows, True))
        raise


def other_version(database: object, version: object, written_by: str | None) -> str:
    """Return why a database of another version is refused. `written_by`: the version of evolverpc that made it."""
    by = "an earlier evolverpc" if written_by is None else f"evolverpc {written_by}"
    return (
        f"the store {database} has version {version}, written by {by}; this evolverpc, {installed_version()}, reads "
        f"version {SCHEMA_VERSION}: use the one that wrote it, of a clone its commit, or name another one as `store`"
    )
