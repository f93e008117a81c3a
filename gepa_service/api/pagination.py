"""Bodies of requests, ids and records as the API shows them: one, or a list in pages."""

from collections.abc import Callable
from typing import Annotated, Any, Generic, Self, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from gepa_service.api.problems import not_found
from gepa_service.model.work import NAMES, What, Work
from gepa_service.records import LONGEST_ID, Record, TenantRecords, Where

R = TypeVar("R", bound=Record)
V = TypeVar("V", bound=BaseModel)
ID_PATTERN = r"^[A-Za-z0-9_.-]+$"
Id = Annotated[str, Field(min_length=1, max_length=LONGEST_ID, pattern=ID_PATTERN)]
DEFAULT_LIMIT, MOST = 50, 200


TIMES = {f"{name}_at": name for name in ("created", "updated", "started", "completed")}
"""Fields of records by what they are called here."""


class View(BaseModel):
    """A record as it is shown: its id as the first field, and its fields that have the name of one here."""

    @classmethod
    def of(cls, record: Record, **more: Any) -> Self:
        """Return what is shown of a record. `more`: fields that the record has not, or not as they are shown."""
        first, *others = cls.model_fields
        fields = {name: TIMES.get(name, name) for name in others if name not in more}
        read = record.model_dump(include=set(fields.values()) & set(type(record).model_fields))
        return cls(**{first: record.id}, **{name: read[of] for name, of in fields.items() if of in read}, **more)


class PageQuery(BaseModel):
    """Which page of a list a request asks for."""

    after: Annotated[
        str | None, Field(max_length=LONGEST_ID, pattern=ID_PATTERN, description="`next` of the page before.")
    ] = None
    limit: Annotated[int, Field(ge=1, le=MOST, description="The largest number of items.")] = DEFAULT_LIMIT


Paging = Annotated[PageQuery, Query()]


class Page(BaseModel, Generic[V]):
    """A page of a list."""

    items: list[V]
    next: str | None = Field(description="What the next page follows; null after the last one.")

    @classmethod
    def read(
        cls,
        show: Callable[[R], V],
        records: TenantRecords,
        type_: type[R],
        query: PageQuery,
        where: Where | None = None,
        *,
        newest_first: bool = False,
    ) -> Self:
        """Return the page that a query selects. Blocks."""
        found = records.page(type_, where, after=query.after, limit=query.limit, newest_first=newest_first)
        return cls(items=[show(each) for each in found], next=next_of(found, query))


def next_of(records: list[R], query: PageQuery) -> str | None:
    """Return what the next page follows; None if this is the last one."""
    return str(getattr(records[-1], records[-1].ordered)) if len(records) == query.limit else None


def known(records: TenantRecords, type_: type[R], id_: str, what: str, field: str | None = None) -> R:
    """Return a record of the tenant, which the API calls `what`. Blocks. Raises `not_found`."""
    found = records.get(type_, id_)
    if found is None:
        raise not_found(what, field)
    return found


def known_work(records: TenantRecords, id_: str, what: What) -> Work:
    """Return work of this kind. Blocks. Raises `not_found`."""
    found = known(records, Work, id_, NAMES[what])
    if found.what != what:
        raise not_found(NAMES[what])
    return found


class RequestBody(BaseModel):
    """What a request gives; a field that is not known here is refused."""

    model_config = ConfigDict(extra="forbid")
