"""Queue an event for the webhooks of a tenant."""

from collections.abc import Mapping
from typing import Any

from gepa_service.model.webhook import Webhook, WebhookDelivery, WebhookEvent
from gepa_service.records.record import new_id
from gepa_service.records.store import LARGEST_PAGE, TenantRecords


def emit(records: TenantRecords, event: WebhookEvent, payload: Mapping[str, Any]) -> int:
    """Queue the event for each webhook that receives it; return for how many."""
    found = [each for each in records.page(Webhook, limit=LARGEST_PAGE) if event in each.events]
    for webhook in found:
        queue(records, webhook, event, payload)
    return len(found)


def queue(records: TenantRecords, webhook: Webhook, event: WebhookEvent, payload: Mapping[str, Any]) -> WebhookDelivery:
    """Queue the event for one webhook."""
    delivery = WebhookDelivery(
        tenant=records.tenant, id=new_id("delivery"), webhook_id=webhook.id, event=event, payload=dict(payload)
    )
    records.insert(delivery)
    return delivery
