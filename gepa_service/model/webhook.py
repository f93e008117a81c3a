"""The webhooks that a tenant registered, and what was sent to them."""

from datetime import datetime
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from gepa_service.records.record import Record, now

WebhookEvent = Literal[
    "job.started",
    "job.paused",
    "job.completed",
    "job.failed",
    "job.cancelled",
    "program.promoted",
    "program.delivered",
    "batch.ended",
    "ping",
]
DeliveryStatus = Literal["pending", "delivered", "failed"]


class Webhook(Record):
    """A URL that receives events. Its secret is derived from its id, see `webhooks.sender`."""

    kind: ClassVar[str] = "webhook"

    url: str
    events: tuple[WebhookEvent, ...]
    created_by: str


class DeliveryAttempt(BaseModel):
    """One request. `status`: of the response, None without one; `error`: why there is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: datetime
    status: int | None = None
    error: str | None = None


class WebhookDelivery(Record):
    """An event for one webhook. `due`: when it is sent next; a process that sends it moves this on first."""

    kind: ClassVar[str] = "webhook_delivery"
    indexed: ClassVar[tuple[str, ...]] = ("webhook_id", "status")

    webhook_id: str
    event: WebhookEvent
    payload: dict[str, Any]
    status: DeliveryStatus = "pending"
    due: datetime = Field(default_factory=now)
    begun: int = 0
    attempts: tuple[DeliveryAttempt, ...] = ()
