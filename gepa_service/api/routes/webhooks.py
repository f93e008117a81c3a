"""Webhooks of a tenant: registered, listed, tested and deleted, with a log of what was sent."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from gepa_service.api.access import Manager, Parts
from gepa_service.api.documented import documented
from gepa_service.api.pages import Paging, next_of
from gepa_service.api.problems import Problem, not_found
from gepa_service.api.routes.repositories import Id
from gepa_service.api.threads import in_thread
from gepa_service.model.webhook import DeliveryAttempt, DeliveryStatus, Webhook, WebhookDelivery, WebhookEvent
from gepa_service.records.record import new_id
from gepa_service.records.store import RecordChanged, TenantRecords
from gepa_service.repositories.destinations import LONGEST_URL, DestinationRefused, destination_of
from gepa_service.webhooks.outbox import queue
from gepa_service.webhooks.signing import secret_of

router = APIRouter(tags=["webhooks"])

MOST_WEBHOOKS = 20


class WebhookRequest(BaseModel):
    """A URL, and which events it receives."""

    model_config = ConfigDict(extra="forbid")

    url: Annotated[str, Field(min_length=1, max_length=LONGEST_URL)]
    events: Annotated[list[WebhookEvent], Field(min_length=1, max_length=20)]


class WebhookView(BaseModel):
    """A webhook."""

    webhook_id: str
    url: str
    events: list[WebhookEvent]
    created: datetime

    @classmethod
    def of(cls, record: Webhook) -> "WebhookView":
        """Return what is shown of a record."""
        return cls(webhook_id=record.id, url=record.url, events=list(record.events), created=record.created)


class RegisteredWebhook(WebhookView):
    """A new webhook. `secret`: verifies `X-EvolveRPC-Signature`: `t=TIME,v1=` and the HMAC-SHA256 of `TIME.BODY`."""

    secret: str


class WebhookPage(BaseModel):
    """Webhooks. `next`: what the next page follows; null after the last one."""

    items: list[WebhookView]
    next: str | None


class DeliveryView(BaseModel):
    """An event that was sent, or will be. `due`: when it is sent next, if it is pending."""

    delivery_id: str
    event: WebhookEvent
    status: DeliveryStatus
    payload: dict[str, JsonValue]
    attempts: list[DeliveryAttempt]
    due: datetime
    created: datetime

    @classmethod
    def of(cls, record: WebhookDelivery) -> "DeliveryView":
        """Return what is shown of a record."""
        shared = record.model_dump(include=set(cls.model_fields) & set(WebhookDelivery.model_fields))
        return cls(delivery_id=record.id, **shared)


class DeliveryPage(BaseModel):
    """Deliveries, the newest first. `next`: what the next page follows; null after the last one."""

    items: list[DeliveryView]
    next: str | None


@router.post("/webhooks", status_code=201, responses=documented(409))
async def register(asked: WebhookRequest, caller: Manager, service: Parts) -> RegisteredWebhook:
    """Register a webhook. Its secret is shown in this answer."""
    records = service.of(caller)
    try:
        await in_thread(destination_of, asked.url, service.repositories.allow_networks)
    except DestinationRefused as error:
        raise Problem(422, "destination-refused", "URL not allowed", str(error), field="url") from None
    if await in_thread(records.count, Webhook) >= MOST_WEBHOOKS:
        raise Problem(409, "too-many", "Too many webhooks", f"there are {MOST_WEBHOOKS} webhooks: delete one first")
    events = tuple(dict.fromkeys(asked.events))
    record = Webhook(tenant=caller.tenant, id=new_id("webhook"), url=asked.url, events=events, created_by=caller.actor)
    await in_thread(records.insert, record)
    secret = secret_of(service.webhook_key, record.tenant, record.id)
    return RegisteredWebhook(**WebhookView.of(record).model_dump(), secret=secret)


@router.get("/webhooks", responses=documented())
async def webhooks(caller: Manager, service: Parts, query: Paging) -> WebhookPage:
    """List webhooks."""
    records = service.of(caller)
    found = await in_thread(lambda: records.page(Webhook, after=query.after, limit=query.limit))
    return WebhookPage(items=[WebhookView.of(each) for each in found], next=next_of(found, query))


@router.delete("/webhooks/{webhook_id}", status_code=204, responses=documented(404))
async def delete(webhook_id: Id, caller: Manager, service: Parts) -> None:
    """Delete a webhook; what was queued for it is not sent."""
    records = service.of(caller)
    try:
        await in_thread(records.delete, await _known(records, webhook_id))
    except RecordChanged:
        raise not_found("webhook") from None


@router.post("/webhooks/{webhook_id}/ping", status_code=202, responses=documented(404))
async def ping(webhook_id: Id, caller: Manager, service: Parts) -> DeliveryView:
    """Send the event `ping`, to test the receiver."""
    records = service.of(caller)
    found = await _known(records, webhook_id)
    return DeliveryView.of(await in_thread(queue, records, found, "ping", {}))


@router.get("/webhooks/{webhook_id}/deliveries", responses=documented(404))
async def deliveries(webhook_id: Id, caller: Manager, service: Parts, query: Paging) -> DeliveryPage:
    """List what was sent to a webhook, and what will be, the newest first."""
    records = service.of(caller)
    await _known(records, webhook_id)
    where = {"webhook_id": webhook_id}
    found = await in_thread(
        lambda: records.page(WebhookDelivery, where, after=query.after, limit=query.limit, newest_first=True)
    )
    return DeliveryPage(items=[DeliveryView.of(each) for each in found], next=next_of(found, query))


async def _known(records: TenantRecords, webhook_id: str) -> Webhook:
    found = await in_thread(records.get, Webhook, webhook_id)
    if found is None:
        raise not_found("webhook")
    return found
