"""What a tenant has used this month, and what it may use."""

from fastapi import APIRouter, Request
from pydantic import BaseModel

from gepa_service.api.access import Parts, Reader
from gepa_service.jobs.month_spending import month_id, month_of
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


@router.get("/usage")
def usage(request: Request, caller: Reader, service: Parts) -> UsageView:
    """Return what the tenant has used."""
    tenant, records, moment = caller.tenant, service.records, now()
    with service.opened_journals() as journals:
        spent = service.spending.of(records, journals, tenant)
    counted = records.get(Usage, tenant, month_id(moment))
    return UsageView(
        month=month_of(moment),
        jobs=spent.jobs,
        usd=spent.usd,
        unpriced=spent.unpriced,
        requests=request.app.state.counts.of(tenant) + (0 if counted is None else counted.requests),
        jobs_queued=records.count(Work, tenant, {"status": "pending"}),
        jobs_running=records.count(Work, tenant, {"status": "running"}),
        quotas=quotas_of(records, tenant),
    )
