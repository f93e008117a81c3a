"""Queue the events of work for the webhooks of their tenants."""

import logging
from typing import Any

from gepa_service.model.webhook import WebhookEvent
from gepa_service.model.work import ENDED, Status, Work
from gepa_service.records.store import RecordError, TenantRecords
from gepa_service.webhooks.outbox import emit

EVENTS: dict[Status, WebhookEvent] = {
    "running": "job.started",
    "paused": "job.paused",
    "completed": "job.completed",
    "failed": "job.failed",
    "cancelled": "job.cancelled",
}
"""Events by the status that an optimization has from then on."""

_log = logging.getLogger(__name__)


def announce(records: TenantRecords, work: Work) -> None:
    """Queue the event of a work's new status, once its record has it.

    The work does not depend on it: a failure is logged, and a process that dies between the two sends nothing.
    """
    event, payload = _event(work)
    if event is None:
        return
    try:
        emit(records, event, {**payload, "status": work.status})
    except RecordError as error:
        _log.warning("the webhooks of %s do not receive %s: %s", work.id, event, error)


def _event(work: Work) -> tuple[WebhookEvent | None, dict[str, Any]]:
    if work.what == "optimize":
        progress = work.progress
        scores = {"seed_score": progress.seed_score, "best_score": progress.best_score}
        return EVENTS.get(work.status), {
            "job_id": work.id,
            "reason": work.reason,
            "program_id": work.program_id,
            **scores,
        }
    if work.what == "rollouts" and work.status in ENDED and work.program is not None:
        counts = {"total": len(work.program.tasks), "completed": work.done - work.failed, "failed": work.failed}
        return "batch.ended", {"batch_id": work.id, **counts}
    return None, {}
