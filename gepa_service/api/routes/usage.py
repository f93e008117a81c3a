"""What a tenant has used this month, and what it may use."""

import contextlib
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel

from gepa_client.journal.store import open_store
from gepa_service.api.access import Parts, Reader
from gepa_service.api.app_state import Service
from gepa_service.api.documented import documented
from gepa_service.api.threads import in_thread
from gepa_service.jobs.month_spending import MonthSpending, month_id, month_of
from gepa_service.jobs.tenant_quotas import quotas_of
from gepa_service.model.tenant import Quotas, Usage
from gepa_service.model.work import Work
from gepa_service.records.record import now

router = APIRouter(tags=["usage"])


class UsageView(BaseModel):
    """This month, in UTC.

    `jobs`: submitted this month. `usd`: what jobs, batches and steps have cost this month; at least that, if results
    are `unpriced`. `requests`: to the API. `jobs_queued`, `jobs_running`: jobs, batches and steps now. `quotas`: null
    for no limit.
    """

    month: str
    jobs: int
    usd: float
    unpriced: int
    requests: int
    jobs_queued: int
    jobs_running: int
    quotas: Quotas


@router.get("/usage", responses=documented())
async def usage(request: Request, caller: Reader, service: Parts) -> UsageView:
    """Return what the tenant has used."""
    app = request.app.state
    found = await in_thread(_used, service, caller.tenant, app.spending)
    return UsageView(
        **found, requests=app.counts.of(caller.tenant) + await in_thread(_requests, service, caller.tenant)
    )


def _used(service: Service, tenant: str, reader: Any) -> dict[str, Any]:
    with contextlib.closing(open_store(service.journals)) as journals:
        spent: MonthSpending = reader.of(service.records, journals, tenant)
    return {
        "month": month_of(now()),
        "jobs": spent.jobs,
        "usd": spent.usd,
        "unpriced": spent.unpriced,
        "jobs_queued": service.records.count(Work, tenant, {"status": "pending"}),
        "jobs_running": service.records.count(Work, tenant, {"status": "running"}),
        "quotas": quotas_of(service.records, tenant),
    }


def _requests(service: Service, tenant: str) -> int:
    found = service.records.get(Usage, tenant, month_id(now()))
    return 0 if found is None else found.requests
