"""The log of what callers wrote."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from gepa_service.api.access import Manager, Parts
from gepa_service.api.documented import documented
from gepa_service.api.pages import Paging, next_of
from gepa_service.api.threads import in_thread
from gepa_service.model.tenant import AuditEntry

router = APIRouter(tags=["audit"])


class AuditView(BaseModel):
    """A write. `status`: of its response; 0 if the API was ended before it answered: its outcome is not known."""

    audit_id: str
    actor: str
    action: str
    resource: str
    status: int
    created: datetime

    @classmethod
    def of(cls, record: AuditEntry) -> "AuditView":
        """Return what is shown of a record."""
        return cls(audit_id=record.id, **record.model_dump(include=set(cls.model_fields)))


class AuditPage(BaseModel):
    """Writes, the newest first. `next`: what the next page follows; null after the last one."""

    items: list[AuditView]
    next: str | None


@router.get("/audit", responses=documented())
async def audit(
    caller: Manager,
    service: Parts,
    query: Paging,
    actor: Annotated[str | None, Query(max_length=300, description="Only writes of this caller.")] = None,
) -> AuditPage:
    """List the writes of all callers of the tenant."""
    where = None if actor is None else {"actor": actor}
    found = await in_thread(
        lambda: service.of(caller).page(AuditEntry, where, after=query.after, limit=query.limit, newest_first=True)
    )
    return AuditPage(items=[AuditView.of(each) for each in found], next=next_of(found, query))
