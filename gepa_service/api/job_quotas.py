"""Refuse jobs of a tenant whose queue is full, or who has spent the money of the month."""

import contextlib
from datetime import datetime, timedelta

from gepa_client.journal.store import open_store
from gepa_service.api.problems import Problem
from gepa_service.api.service import Service
from gepa_service.jobs.month_spending import SpendingReader
from gepa_service.model.job import Job
from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from gepa_service.records.record import now

QUEUE_RETRY_S = 30


def check_job_quotas(service: Service, spending: SpendingReader, tenant: str) -> None:
    """Raise a 429 problem if the tenant may have no further job waiting. Blocks.

    Of requests at the same time, each may be the last that is accepted.

    Raises:
        RecordsUnavailable, StoreUnavailable: a database cannot be read.
    """
    found = service.records.get(Tenant, TENANTS, tenant)
    quotas = Quotas() if found is None else found.quotas
    if service.records.count(Job, tenant, {"status": "pending"}) >= quotas.jobs_queued:
        detail = f"{quotas.jobs_queued} jobs of the tenant are waiting, its most: wait for some, or cancel some"
        raise _reached("jobs_queued", "Queue full", detail, QUEUE_RETRY_S)
    if quotas.usd_per_month is None:
        return
    with contextlib.closing(open_store(service.journals)) as journals:
        spent = spending.of(service.records, journals, tenant).usd
    if spent >= quotas.usd_per_month:
        detail = f"the tenant has spent {spent:.2f} of {quotas.usd_per_month:.2f} USD this month: wait for the next one"
        raise _reached("usd_per_month", "Money of the month spent", detail, _rest_of_month_s(now()))


def _reached(quota: str, title: str, detail: str, retry_s: int) -> Problem:
    return Problem(429, "quota-reached", title, detail, headers={"Retry-After": str(retry_s)}, quota=quota)


def _rest_of_month_s(moment: datetime) -> int:
    start = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = (start + timedelta(days=32)).replace(day=1)
    return int((following - moment).total_seconds()) + 1
