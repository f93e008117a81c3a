"""Read all records of a tenant, a page at a time."""

from collections.abc import Iterator
from typing import TypeVar

from gepa_service.records.record import Record
from gepa_service.records.store import LARGEST_PAGE, RecordStore, Where

R = TypeVar("R", bound=Record)


def every(
    records: RecordStore, type_: type[R], tenant: str | None, where: Where | None = None, *, after: str | None = None
) -> Iterator[R]:
    """Yield records in the order of their ids, those that follow the id `after`. `tenant`: None for all tenants.

    Those that are added meanwhile may be left out. Raises `RecordsUnavailable`.
    """
    while page := records.page(type_, tenant, where, after=after, limit=LARGEST_PAGE):
        yield from page
        after = page[-1].id
