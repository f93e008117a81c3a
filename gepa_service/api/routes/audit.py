"""The log of what callers wrote."""

import functools
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from gepa_service.api.access import Manager, Parts
from gepa_service.api.pages import Page, Paging, View
from gepa_service.auth.keys import actor_name
from gepa_service.model.tenant import AuditEntry

router = APIRouter(tags=["audit"])


class AuditView(View):
    """A write. `actor_name`: of the key of `actor`, or its subject.

    `status`: of its response; 0 if the API was ended before it answered: its outcome is not known.
    """

    audit_id: str
    actor: str
    actor_name: str
    action: str
    resource: str
    status: int
    created_at: datetime


class AuditPage(Page[AuditView]):
    """Writes, the newest first."""


@router.get("/audit")
def audit(
    caller: Manager,
    query: Paging,
    service: Parts,
    actor: Annotated[str | None, Query(max_length=300, description="Only writes of this caller.")] = None,
) -> AuditPage:
    """List the writes of all callers of the tenant."""
    where = None if actor is None else {"actor": actor}
    name = functools.cache(functools.partial(actor_name, service.records))

    def shown(entry: AuditEntry) -> AuditView:
        return AuditView.of(entry, actor_name=name(entry.actor))

    return AuditPage.read(shown, caller.records, AuditEntry, query, where, newest_first=True)
