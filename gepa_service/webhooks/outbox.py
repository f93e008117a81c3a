"""Queue events for the webhooks of a tenant."""

import logging
from collections.abc import Mapping
from typing import Any

from gepa_service.model.webhook import Webhook, WebhookDelivery, WebhookEvent
from gepa_service.model.work import ENDED, Status, Work
from gepa_service.records.record import new_id
from gepa_service.records.store import LARGEST_PAGE, RecordError, TenantRecords

EVENTS: dict[Status, WebhookEvent] = {
    "running": "job.started",
    "paused": "job.paused",
    "completed": "job.completed",
    "failed": "job.failed",
    "cancelled": "job.cancelled",
}
"""Events by the status that an optimization has from then on."""

_log = logging.getLogger(__name__)


def emit(records: TenantRecords, event: WebhookEvent, payload: Mapping[str, Any]) -> None:
    """Queue the event for each webhook that receives it."""
    for webhook in records.page(Webhook, limit=LARGEST_PAGE):
        if event in webhook.events:
            queue(records, webhook, event, payload)


def queue(records: TenantRecords, webhook: Webhook, event: WebhookEvent, payload: Mapping[str, Any]) -> WebhookDelivery:
    """Queue the event for one webhook."""
    delivery = WebhookDelivery(
        tenant=records.tenant, id=new_id("delivery"), webhook_id=webhook.id, event=event, payload=dict(payload)
    )
    records.insert(delivery)
    return delivery


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
