"""Webhooks of a tenant: registered, listed, tested and deleted, with a log of what was sent."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field, JsonValue

from gepa_service.api.access import Manager, Parts
from gepa_service.api.pagination import Id, Page, Paging, RequestBody, View, known
from gepa_service.api.problems import Problem, documented, not_found
from gepa_service.records import new_id
from gepa_service.repositories.destinations import LONGEST_URL, DestinationRefused, destination_of
from gepa_service.webhooks import (
    DeliveryAttempt,
    DeliveryStatus,
    Webhook,
    WebhookDelivery,
    WebhookEvent,
    queue,
    secret_of,
)

router = APIRouter(tags=["webhooks"])

MOST_WEBHOOKS = 20


class WebhookRequest(RequestBody):
    """A URL, and which events it receives."""

    url: Annotated[str, Field(min_length=1, max_length=LONGEST_URL)]
    events: Annotated[list[WebhookEvent], Field(min_length=1, max_length=20)]


class WebhookView(View):
    """A webhook."""

    webhook_id: str
    url: str
    events: list[WebhookEvent]
    created_at: datetime


class RegisteredWebhook(WebhookView):
    """A new webhook. `secret`: verifies `X-EvolveRPC-Signature`: `t=TIME,v1=` and the HMAC-SHA256 of `TIME.BODY`."""

    secret: str


class WebhookPage(Page[WebhookView]):
    """Webhooks."""


class DeliveryView(View):
    """An event that was sent, or will be. `due`: when it is sent next, if it is pending."""

    delivery_id: str
    event: WebhookEvent
    status: DeliveryStatus
    payload: dict[str, JsonValue]
    attempts: list[DeliveryAttempt]
    due: datetime
    created_at: datetime


class DeliveryPage(Page[DeliveryView]):
    """Deliveries, the newest first."""


@router.post("/webhooks", status_code=201)
def register(asked: WebhookRequest, caller: Manager, service: Parts) -> RegisteredWebhook:
    """Register a webhook. Its secret is shown in this answer."""
    try:
        destination_of(asked.url, service.repositories.allow_networks)
    except DestinationRefused as error:
        raise Problem(422, "destination-refused", "URL not allowed", str(error), field="url") from None
    if caller.records.count(Webhook) >= MOST_WEBHOOKS:
        raise Problem(409, "too-many", "Too many webhooks", f"there are {MOST_WEBHOOKS} webhooks: delete one first")
    events = tuple(dict.fromkeys(asked.events))
    record = Webhook(tenant=caller.tenant, id=new_id("webhook"), url=asked.url, events=events, created_by=caller.actor)
    caller.records.insert(record)
    return RegisteredWebhook.of(record, secret=secret_of(service.webhook_key, record.tenant, record.id))


@router.get("/webhooks")
def webhooks(caller: Manager, query: Paging) -> WebhookPage:
    """List webhooks."""
    return WebhookPage.read(WebhookView.of, caller.records, Webhook, query)


@router.delete("/webhooks/{webhook_id}", status_code=204, responses=documented(404))
def delete(webhook_id: Id, caller: Manager) -> None:
    """Delete a webhook; what was queued for it is not sent."""
    if not caller.records.remove(Webhook, webhook_id):
        raise not_found("webhook")


@router.post("/webhooks/{webhook_id}/ping", status_code=202, responses=documented(404))
def ping(webhook_id: Id, caller: Manager) -> DeliveryView:
    """Send the event `ping`, to test the receiver."""
    return DeliveryView.of(queue(caller.records, known(caller.records, Webhook, webhook_id, "webhook"), "ping", {}))


@router.get("/webhooks/{webhook_id}/deliveries", responses=documented(404))
def deliveries(webhook_id: Id, caller: Manager, query: Paging) -> DeliveryPage:
    """List what was sent to a webhook, and what will be, the newest first."""
    where = {"webhook_id": known(caller.records, Webhook, webhook_id, "webhook").id}
    return DeliveryPage.read(DeliveryView.of, caller.records, WebhookDelivery, query, where, newest_first=True)
