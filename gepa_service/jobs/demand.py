"""How many workers have something to do, for a platform that starts workers as they are needed."""

import math

from gepa_service.jobs.tenant_quotas import quotas_of
from gepa_service.model.job import Job
from gepa_service.model.rollouts import ProgramWork
from gepa_service.model.webhook import WebhookDelivery
from gepa_service.records.store import RecordStore


def workers_wanted(records: RecordStore, jobs_each: int, most: int) -> int:
    """Return how many workers have something to do, at most `most`. `jobs_each`: the jobs that each runs at once.

    Jobs that wait because their tenant runs as many as its quota allows are not counted.

    Raises:
        RecordsUnavailable: the database does not answer.
    """
    running = records.tenants_with(Job, {"status": "running"})
    jobs = sum(running.values())
    for tenant, waiting in records.tenants_with(Job, {"status": "pending"}).items():
        jobs += max(0, min(waiting, quotas_of(records, tenant).jobs_at_once - running.get(tenant, 0)))
    work = sum(records.count(ProgramWork, None, {"status": status}) for status in ("queued", "running"))
    webhooks = records.count(WebhookDelivery, None, {"status": "pending"})
    return min(most, max(math.ceil(jobs / jobs_each), work, 1 if webhooks else 0))
