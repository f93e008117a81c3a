"""What the service stores besides journals: records of tenants, their store above any database, and its errors.

RecordError
├── RecordExists        a record of this kind, tenant and id is there already
├── RecordChanged       the record was written since it was read; read it again
└── RecordsUnavailable  the database cannot be used now (full, locked, unreachable): trying later can help
"""

import contextlib
import functools
import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from evolverpc_common.display_text import without_password
from gepa_client.errors import JournalError, StoreUnavailable
from gepa_client.journal.database import Compared, Database, Rows, Table, inserted
from gepa_client.journal.store import looks_like_a_url

RANDOM_DIGITS = 15
LONGEST_ID = 64

LARGEST_PAGE = 200
ATTEMPTS = 20
"""Writes of one change that others may come before; more means that two processes change it without end."""

Where = Mapping[str, str | Sequence[str] | Compared | None]
"""Conditions by indexed field: a value, a list that contains the value, or what the value comes before or after."""

APPLICATION_ID = 0x45565253  # "EVRS": distinguishes a file of records from a store of journals
SQLITE_PATIENCE_S, MONGO_PATIENCE_S = 20.0, 5.0
"""How long a lock, or a server that does not answer, is waited for: callers over HTTP wait as long."""


def now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


def new_id(prefix: str) -> str:
    """Return `PREFIX_` with 32 hex digits: milliseconds since 1970, nanoseconds of this one, then random ones.

    Ids that one thread makes sort in the order in which it made them, as long as the machine's clock is not set back.
    """
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    return f"{prefix}_{milliseconds:012x}{nanoseconds:05x}{secrets.randbits(4 * RANDOM_DIGITS):015x}"


def id_at(prefix: str, moment: datetime) -> str:
    """Return what sorts after the ids of this prefix that were made before the moment, and before all others."""
    return f"{prefix}_{int(moment.timestamp() * 1000):012x}"


class Record(BaseModel):
    """A document of one tenant; (`kind`, `tenant`, `id`) is unique.

    `kind`: names the type in the store. `indexed`: the fields that a page of records can be selected by, whose values
    are texts or None. `ordered`: the field of unique texts by which pages are sorted. `version`: the
    number of times it was written; a write that does not know the present one fails.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: ClassVar[str]
    indexed: ClassVar[tuple[str, ...]] = ()
    ordered: ClassVar[str] = "id"

    tenant: str
    id: str = Field(max_length=LONGEST_ID)
    version: int = 0
    created: datetime = Field(default_factory=now)
    updated: datetime = Field(default_factory=now)


R = TypeVar("R", bound=Record)


class RecordError(Exception):
    """A failure of the store of records."""


class RecordExists(RecordError):
    """A record of this kind, tenant and id is there already."""


class RecordChanged(RecordError):
    """The record was written, or deleted, since it was read."""


class RecordsUnavailable(RecordError):
    """The database cannot be used now; trying later can help."""


class RecordStore:
    """Records of all tenants. Safe to use from several threads, and the same database from several processes.

    `write` of a row names the write that made it: one whose response was lost is repeated, and recognized.

    Every method may raise `RecordsUnavailable`. Only the dispatcher, attempts, the command line and the check of keys
    use it directly; routes use a `TenantRecords`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._declared: set[Table] = set()
        self._closed = False

    def insert(self, record: Record) -> None:
        """Add a record. Raises `RecordExists`."""
        row = _row(record)

        def work(rows: Rows, looks: bool) -> None:
            if not looks:
                rows.insert(table_of(type(record)), [row])
            elif not _written(rows, record, row):
                raise RecordExists(f"there is a {record.kind} {record.id} already")

        with self._used(type(record)):
            inserted(self._database, work)

    def get(self, type_: type[R], tenant: str, id_: str) -> R | None:
        """Return a record; None if there is none."""
        found = self._bodies(type_, {"tenant": tenant, "id": id_})
        return type_.model_validate_json(found[0]) if found else None

    def replace(self, record: R) -> R:
        """Write a record that was read before; return it with its new version. Raises `RecordChanged`."""
        written = record.model_copy(update={"version": record.version + 1, "updated": now()})
        row = _row(written)
        as_read = {"tenant": record.tenant, "id": record.id, "version": record.version}
        changes = {name: value for name, value in row.items() if name not in ("tenant", "id")}

        def work(rows: Rows) -> None:
            if not rows.update(table_of(type(record)), as_read, changes) and not _written(rows, record, row):
                raise RecordChanged(f"{record.kind} {record.id} has changed")

        with self._used(type(record)):
            self._database.write(work)
        return written

    def remove(
        self,
        type_: type[Record],
        tenant: str | None,
        where: Where | None = None,
        *,
        id_: str | None = None,
        before: str | None = None,
    ) -> int:
        """Delete records, also those that were written since they were read; return how many there were.

        `id_`: only that of this id. `before`: only those whose ids come before it.
        """
        condition = _selected(type_, tenant, where)
        if id_ is not None:
            condition["id"] = id_
        elif before is not None:
            condition["id"] = Compared("<", before)
        with self._used(type_):
            return self._database.write(lambda rows: rows.delete(table_of(type_), condition))

    def known(self, type_: type[Record], ids: Sequence[str]) -> set[str]:
        """Return those of the ids that a record of any tenant has."""
        with self._used(type_):
            return self._database.read(
                lambda rows: {each["id"] for each in rows.find(table_of(type_), {"id": list(ids)}, columns=["id"])}
            )

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
        """Return records in their order, those that follow the place `after`. `tenant`: None for all tenants.

        Raises:
            ValueError: `where` names a field that is not indexed.
        """
        condition, place = _selected(type_, tenant, where), type_.ordered
        if after is not None:
            condition[place] = Compared("<" if newest_first else ">", after)
        order = (f"-{place}" if newest_first else place, "tenant")
        return [type_.model_validate_json(body) for body in self._bodies(type_, condition, order, limit)]

    def every(
        self, type_: type[R], tenant: str | None, where: Where | None = None, *, after: str | None = None
    ) -> Iterator[R]:
        """Yield records as `page` returns them, a page at a time; those that are added meanwhile may be left out."""
        while page := self.page(type_, tenant, where, after=after):
            yield from page
            after = getattr(page[-1], type_.ordered)

    def count(self, type_: type[Record], tenant: str | None, where: Where | None = None) -> int:
        """Return how many records a page without limit would hold."""
        return sum(found["count"] for found in self._counts(type_, _selected(type_, tenant, where), []))

    def tenants_with(self, type_: type[Record], where: Where | None = None) -> dict[str, int]:
        """Return the number of such records by tenant, tenants without any left out."""
        found = self._counts(type_, _selected(type_, None, where), ["tenant"])
        return {each["tenant"]: each["count"] for each in found}

    def purge(self) -> None:
        """Remove from the files what was deleted, as far as no other process reads them now."""
        self._database.purge()

    def close(self) -> None:
        """Close it; safe to call twice."""
        self._closed = True
        self._database.close()

    def _bodies(
        self, type_: type[Record], where: Mapping[str, Any], order: Sequence[str] = (), limit: int | None = None
    ) -> list[str]:
        def work(rows: Rows) -> list[str]:
            found = rows.find(table_of(type_), where, order, columns=["body"], limit=limit)
            return [each["body"] for each in found]

        with self._used(type_):
            return self._database.read(work)

    def _counts(self, type_: type[Record], where: Mapping[str, Any], by: Sequence[str]) -> list[dict[str, Any]]:
        with self._used(type_):
            return self._database.read(lambda rows: rows.sums(table_of(type_), where, by))

    @contextlib.contextmanager
    def _used(self, type_: type[Record]) -> Iterator[None]:
        """Have a table for the type, and raise the errors of this module for those of the database."""
        if self._closed:
            raise RecordsUnavailable("the records are closed")
        table = table_of(type_)
        with translated():
            if table not in self._declared:
                self._database.declare([table])
                self._declared.add(table)
            yield


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise the errors of this module for those of a database."""
    try:
        yield
    except StoreUnavailable as error:
        raise RecordsUnavailable(str(error)) from error
    except JournalError as error:
        raise RecordError(str(error)) from error


@functools.cache
def table_of(type_: type[Record]) -> Table:
    """Return the table of a type; it has a column for each field that records are selected by."""
    fields, key, place = tuple(f"by_{name}" for name in type_.indexed), ("tenant", "id"), type_.ordered
    orders = [(*by, *others) for by in ((), *zip(fields)) for others in (("tenant", place), (place, "tenant"))]
    columns = dict.fromkeys((*key, place, "version", "write", "body", *fields))
    return Table(f"record_{type_.kind}", key, tuple(columns), tuple(each for each in orders if each != key))


def _row(record: Record) -> dict[str, Any]:
    fields = {f"by_{name}": getattr(record, name) for name in record.indexed}
    written = {"version": record.version, "write": uuid.uuid4().hex, "body": record.model_dump_json()}
    place = {record.ordered: getattr(record, record.ordered)}
    return {"tenant": record.tenant, "id": record.id, **place, **written, **fields}


def _written(rows: Rows, record: Record, row: dict[str, Any]) -> bool:
    """Whether the record is as this write left it: the response to an earlier try was lost."""
    table = table_of(type(record))
    return [found["write"] for found in rows.find(table, table.of_key(row))] == [row["write"]]


def _selected(type_: type[Record], tenant: str | None, where: Where | None) -> dict[str, Any]:
    """Return the conditions of a query. Raises `ValueError` for a field that is not indexed."""
    condition: dict[str, Any] = {} if tenant is None else {"tenant": tenant}
    for name, wanted in (where or {}).items():
        if name not in type_.indexed:
            raise ValueError(f"{type_.kind} is not indexed by {name}")
        condition[f"by_{name}"] = wanted if wanted is None or isinstance(wanted, str | Compared) else list(wanted)
    return condition


def changed(store: RecordStore, record: R, change: Callable[[R], R]) -> R:
    """Write what `change` makes of the record, again from the stored one if it was written meanwhile.

    `change` returns its argument if nothing is to be written; what it raises is raised.

    Raises:
        RecordChanged: the record was deleted, or others came before `ATTEMPTS` times.
    """
    for _ in range(ATTEMPTS):
        wanted = change(record)
        if wanted is record:
            return record
        try:
            return store.replace(wanted)
        except RecordChanged:
            found = store.get(type(record), record.tenant, record.id)
            if found is None:
                raise
            record = found
    raise RecordChanged(f"{record.kind} {record.id} is written by others all the time")


def stored(store: RecordStore, made: R, over: Callable[[R], R]) -> R:
    """Add a record, or write what `over` makes of the one of its id that is there, as `changed`; return it.

    Raises:
        RecordChanged: others came before `ATTEMPTS` times.
    """
    for _ in range(ATTEMPTS):
        found = store.get(type(made), made.tenant, made.id)
        with contextlib.suppress(RecordExists, RecordChanged):  # it was added, or deleted, meanwhile
            if found is not None:
                return changed(store, found, over)
            store.insert(made)
            return made
    raise RecordChanged(f"{made.kind} {made.id} is written by others all the time")


@dataclass(frozen=True)
class TenantRecords:
    """The records of one tenant, and of no other. What a route may use."""

    store: RecordStore
    tenant: str

    def insert(self, record: Record) -> None:
        """Add a record. Raises `RecordExists`, or `ValueError` for a record of another tenant."""
        self.store.insert(self._own(record))

    def get(self, type_: type[R], id_: str) -> R | None:
        """Return a record; None if this tenant has none of this id."""
        return self.store.get(type_, self.tenant, id_)

    def replace(self, record: R) -> R:
        """Write a record that was read before; return it with its new version. Raises `RecordChanged`."""
        return self.store.replace(self._own(record))

    def change(self, record: R, change: Callable[[R], R]) -> R:
        """As `changed`."""
        return changed(self.store, self._own(record), change)

    def remove(self, type_: type[Record], id_: str) -> int:
        """Delete a record; return 0 if this tenant has none of this id."""
        return self.store.remove(type_, self.tenant, id_=id_)

    def page(self, type_: type[R], where: Where | None = None, **options: Any) -> list[R]:
        """As `RecordStore.page`, of this tenant."""
        return self.store.page(type_, self.tenant, where, **options)

    def count(self, type_: type[Record], where: Where | None = None) -> int:
        """As `RecordStore.count`, of this tenant."""
        return self.store.count(type_, self.tenant, where)

    def _own(self, record: R) -> R:
        if record.tenant != self.tenant:
            raise ValueError(f"a {record.kind} of another tenant")
        return record


def open_records(url_or_path: str, application_id: int = APPLICATION_ID) -> RecordStore:
    """Open the records of a `mongodb://` or `mongodb+srv://` URL, or of a SQLite file, which is created if absent.

    A MongoDB database may hold runs too. `application_id`: of the kind of SQLite file.

    Raises:
        RecordError: what is named is no database of records. RecordsUnavailable: it cannot be opened now.
    """
    scheme, separator, _ = url_or_path.partition("://")
    if looks_like_a_url(url_or_path) and scheme not in {"mongodb", "mongodb+srv"}:
        raise RecordError(f"{without_password(url_or_path)} is no database: give a path or a mongodb:// URL")
    with translated():
        if not separator:
            from gepa_client.journal.sqlite import SqliteDatabase

            return RecordStore(SqliteDatabase(url_or_path, patience_s=SQLITE_PATIENCE_S, application_id=application_id))
        from gepa_client.journal.mongo import MongoDatabase

        return RecordStore(MongoDatabase(url_or_path, patience_s=MONGO_PATIENCE_S))
