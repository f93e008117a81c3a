"""Lists in pages: the query that selects a page, and the id that the next one follows."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

from fastapi import Depends, Query
from pydantic import BaseModel

from gepa_service.records.record import LONGEST_ID, Record

R = TypeVar("R", bound=Record)
ID_PATTERN = r"^[A-Za-z0-9_.-]+$"
DEFAULT_LIMIT, MOST = 50, 200


class PageQuery(BaseModel):
    """`after`: the `next` of the page before. `limit`: the largest number of items."""

    after: str | None = None
    limit: int = DEFAULT_LIMIT


def page_query(
    after: Annotated[
        str | None, Query(max_length=LONGEST_ID, pattern=ID_PATTERN, description="`next` of the page before.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST, description="The largest number of items.")] = DEFAULT_LIMIT,
) -> PageQuery:
    """Return the query of a request."""
    return PageQuery(after=after, limit=limit)


Paging = Annotated[PageQuery, Depends(page_query)]


def next_of(records: Sequence[R], query: PageQuery) -> str | None:
    """Return what the next page follows; None if this is the last one."""
    return records[-1].id if len(records) == query.limit else None
