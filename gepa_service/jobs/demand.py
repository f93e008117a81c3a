"""How many workers have something to do, for a platform that starts workers as they are needed."""

import math

from gepa_service.jobs.tenant_quotas import quotas_of
from gepa_service.model.webhook import WebhookDelivery
from gepa_service.model.work import LANES, Work
from gepa_service.records.store import RecordStore


def workers_wanted(records: RecordStore, jobs_each: int, most: int) -> int:
    """Return how many workers have something to do, at most `most`. `jobs_each`: as `Worker.at_once`.

    Work that waits because its tenant has as much under way as its quota allows is not counted.

    Raises:
        RecordsUnavailable: the database does not answer.
    """
    wanted = min(1, records.count(WebhookDelivery, None, {"status": "pending"}))
    for lane in LANES:
        running = records.tenants_with(Work, {"what": lane, "status": "running"})
        works = sum(running.values())
        for tenant, waiting in records.tenants_with(Work, {"what": lane, "status": "pending"}).items():
            works += max(0, min(waiting, quotas_of(records, tenant).jobs_at_once - running.get(tenant, 0)))
        wanted = max(wanted, math.ceil(works / jobs_each))
    return min(most, wanted)
