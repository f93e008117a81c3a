"""Refuse work that a tenant's quotas do not allow, before it is stored."""

from collections.abc import Mapping
from typing import Any

from gepa_service.api.app_state import Service
from gepa_service.api.problems import Problem
from gepa_service.jobs.month_spending import has_spent_all, quotas_of
from gepa_service.model.tenant import Quotas
from gepa_service.model.work import Work

QUEUE_RETRY_S, MONEY_RETRY_S = 60, 3600


def refuse_beyond_quotas(service: Service, tenant: str, settings: Mapping[str, Any]) -> None:
    """Raise a problem if the tenant may not submit work of these settings now. Blocks."""
    quotas = quotas_of(service.records, tenant)
    asked = int(settings.get("sandboxes") or 0)
    if asked > quotas.sandboxes:
        detail = f"`sandboxes`: the tenant may use {quotas.sandboxes}: ask for fewer"
        raise Problem(422, "quota", "Beyond a quota", detail, field="sandboxes", quota="sandboxes")
    refuse_full_queue(service, tenant, quotas)
    if has_spent_all(service.records, tenant):
        detail = f"the tenant's {quotas.usd_per_month:g} USD of this month are spent: raise the quota, or wait"
        raise _used_up("usd_per_month", detail, MONEY_RETRY_S)


def refuse_full_queue(service: Service, tenant: str, quotas: Quotas) -> None:
    """Raise a problem if no more work of the tenant may wait. Blocks."""
    if service.records.count(Work, tenant, {"status": "pending"}) >= quotas.jobs_queued:
        waiting = f"{quotas.jobs_queued} jobs, batches and steps of the tenant wait already"
        detail = f"{waiting}: cancel one, or send this again later"
        raise _used_up("jobs_queued", detail, QUEUE_RETRY_S)


def _used_up(quota: str, detail: str, retry_s: int) -> Problem:
    headers = {"Retry-After": str(retry_s)}
    return Problem(429, "quota", "A quota is used up", detail, headers=headers, quota=quota)
