"""Queue the events of jobs for the webhooks of their tenants."""

import logging

from gepa_service.model.job import Job, Status
from gepa_service.model.webhook import WebhookEvent
from gepa_service.records.store import RecordError, TenantRecords
from gepa_service.webhooks.outbox import emit

EVENTS: dict[Status, WebhookEvent] = {
    "running": "job.started",
    "paused": "job.paused",
    "completed": "job.completed",
    "failed": "job.failed",
    "cancelled": "job.cancelled",
}
"""Events by the status that a job has from then on."""

_log = logging.getLogger(__name__)


def announce(records: TenantRecords, job: Job) -> None:
    """Queue the event of a job's new status, once its record has it.

    The job does not depend on it: a failure is logged, and a process that dies between the two sends nothing.
    """
    event = EVENTS.get(job.status)
    if event is None:
        return
    payload = {
        "job_id": job.id,
        "status": job.status,
        "reason": job.reason,
        "program_id": job.program_id,
        "seed_score": job.progress.seed_score,
        "best_score": job.progress.best_score,
    }
    try:
        emit(records, event, payload)
    except RecordError as error:
        _log.warning("the webhooks of job %s do not receive %s: %s", job.id, event, error)
