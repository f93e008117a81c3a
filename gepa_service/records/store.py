"""The interface of the store of records, the view of it that one tenant has, and its errors, as a tree.

RecordError
├── RecordExists        a record of this kind, tenant and id is there already
├── RecordChanged       the record was written since it was read; read it again
└── RecordsUnavailable  the database cannot be used now (full, locked, unreachable): trying later can help
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gepa_service.records.record import Record

R = TypeVar("R", bound=Record)
LARGEST_PAGE = 200
ATTEMPTS = 20
"""Writes of one change that others may come before; more means that two processes change it without end."""

Where = Mapping[str, str | Sequence[str] | None]
"""Conditions by indexed field: a value, or a list that contains the value."""


class RecordError(Exception):
    """A failure of the store of records."""


class RecordExists(RecordError):
    """A record of this kind, tenant and id is there already."""


class RecordChanged(RecordError):
    """The record was written, or deleted, since it was read."""


class RecordsUnavailable(RecordError):
    """The database cannot be used now; trying later can help."""


class RecordStore(Protocol):
    """Records of all tenants. Safe to use from several threads, and the same database from several processes.

    Every method may raise `RecordsUnavailable`. Only the worker, the command line and the check of keys use it
    directly; routes use a `TenantRecords`.
    """

    def insert(self, record: Record) -> None:
        """Add a record. Raises `RecordExists`."""
        ...

    def get(self, type_: type[R], tenant: str, id_: str) -> R | None:
        """Return a record; None if there is none."""
        ...

    def replace(self, record: R) -> R:
        """Write a record that was read before; return it with its new version. Raises `RecordChanged`."""
        ...

    def delete(self, record: Record) -> None:
        """Delete a record that was read before. Raises `RecordChanged`."""
        ...

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
        """Return records in the order of their ids, those that follow the id `after`. `tenant`: None for all tenants.

        Raises:
            ValueError: `where` names a field that is not indexed.
        """
        ...

    def count(self, type_: type[Record], tenant: str | None, where: Where | None = None) -> int:
        """Return how many records a page without limit would hold."""
        ...

    def tenants_with(self, type_: type[Record], where: Where | None = None) -> dict[str, int]:
        """Return the number of such records by tenant, tenants without any left out."""
        ...

    def close(self) -> None:
        """Close it; safe to call twice."""
        ...


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

    def delete(self, record: Record) -> None:
        """Delete a record that was read before. Raises `RecordChanged`."""
        self.store.delete(self._own(record))

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
