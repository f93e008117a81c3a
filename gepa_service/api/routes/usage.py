"""What a tenant has used this month, and what it may use."""

from fastapi import APIRouter, Request
from pydantic import BaseModel

from gepa_service.api.access import Parts, Reader
from gepa_service.jobs.month_spending import month_of, quotas_of, usage_of
from gepa_service.model.tenant import Quotas
from gepa_service.model.work import OPTIMIZATIONS, Work
from gepa_service.records import id_at, now

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
    start = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    used = usage_of(records, tenant)
    return UsageView(
        month=month_of(moment),
        jobs=sum(1 for _ in records.every(Work, tenant, OPTIMIZATIONS, after=id_at("job", start))),
        usd=used.usd,
        unpriced=used.unpriced,
        requests=request.app.state.counts.of(tenant) + used.requests,
        jobs_queued=records.count(Work, tenant, {"status": "pending"}),
        jobs_running=records.count(Work, tenant, {"status": "running"}),
        quotas=quotas_of(records, tenant),
    )
