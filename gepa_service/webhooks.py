"""Webhooks of tenants: what happened is queued for their own servers, then sent, signed and retried."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import logging
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal

import aiohttp
from pydantic import BaseModel, ConfigDict, Field

from evolverpc_common.judged_http import AddressRefused, ask
from evolverpc_common.network_addresses import Network
from gepa_service.model.work import ENDED, Status, Work
from gepa_service.records import (
    LARGEST_PAGE,
    Record,
    RecordChanged,
    RecordError,
    RecordStore,
    RecordsUnavailable,
    TenantRecords,
    changed,
    new_id,
    now,
)

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

EVENTS: dict[Status, WebhookEvent] = {
    "running": "job.started",
    "paused": "job.paused",
    "completed": "job.completed",
    "failed": "job.failed",
    "cancelled": "job.cancelled",
}
"""Events by the status that an optimization has from then on."""

_log = logging.getLogger(__name__)
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 3600.0
MOST_ATTEMPTS = 8
REQUEST_S = 10.0
AT_ONCE = 16
IDLE_S = 1.0
RESTART_S = 5.0
WEBHOOK_PREFIX = "whsec_"
SIGNATURE = "X-EvolveRPC-Signature"


class Webhook(Record):
    """A URL that receives events. Its secret is derived from its id, see `secret_of`."""

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


@dataclass(frozen=True)
class Sender:
    """Sends what is due. `key`: of `secret_of`. `networks`: besides the public ones that the operator allows.

    `first_pause_s`: seconds before the second attempt, three times as long before each further one.
    """

    records: RecordStore
    key: bytes = field(repr=False)
    networks: Sequence[Network] = ()
    first_pause_s: float = FIRST_PAUSE_S

    def run(self, stop: threading.Event) -> None:
        """Send until `stop` is set."""
        while not stop.is_set():
            try:
                pause_s = 0.0 if asyncio.run(self.once()) else IDLE_S
            except RecordsUnavailable:
                pause_s = IDLE_S
            except Exception:  # noqa: BLE001  one webhook that cannot be sent may not stop the others
                _log.exception("webhooks: an error; continued in %g s", RESTART_S)
                pause_s = RESTART_S
            stop.wait(pause_s)

    async def once(self) -> int:
        """Send what is due now; return how many requests were made. Raises `RecordsUnavailable`."""
        due = await asyncio.to_thread(self._begun)
        gate = asyncio.Semaphore(AT_ONCE)

        async def send(delivery: WebhookDelivery, webhook: Webhook) -> None:
            async with gate:
                attempt = await self._attempt(delivery, webhook)
            await asyncio.to_thread(self._record, delivery, attempt)

        await asyncio.gather(*(send(*each) for each in due))
        return len(due)

    def _begun(self) -> list[tuple[WebhookDelivery, Webhook]]:
        """Claim what is due: its next time is moved on first, so that no other process sends it too."""
        found: list[tuple[WebhookDelivery, Webhook]] = []
        for delivery in self.records.every(WebhookDelivery, None, {"status": "pending"}):
            if delivery.due > now() or len(found) >= LARGEST_PAGE:
                continue
            webhook = self.records.get(Webhook, delivery.tenant, delivery.webhook_id)
            gone = {
                "status": "failed",
                "attempts": (*delivery.attempts, DeliveryAttempt(at=now(), error="it was deleted")),
            }
            due = now() + timedelta(seconds=REQUEST_S + self._pause(delivery.begun))
            changes: dict[str, Any] = {"due": due, "begun": delivery.begun + 1} if webhook is not None else gone
            with contextlib.suppress(RecordChanged):
                claimed = self.records.replace(delivery.model_copy(update=changes))
                if webhook is not None:
                    found.append((claimed, webhook))
        return found

    def _pause(self, begun: int) -> float:
        """Return the seconds before the next attempt, spread so that not all receivers are asked at once."""
        pause: float = min(LONGEST_PAUSE_S, self.first_pause_s * 3**begun)
        return pause * random.uniform(0.8, 1.2)  # noqa: S311  no secret depends on it

    async def _attempt(self, delivery: WebhookDelivery, webhook: Webhook) -> DeliveryAttempt:
        present = int(time.time())
        whole = {
            "id": delivery.id,
            "event": delivery.event,
            "created": delivery.created.isoformat(),
            **delivery.payload,
        }
        body = json.dumps(whole, separators=(",", ":")).encode()
        secret = secret_of(self.key, webhook.tenant, webhook.id)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "evolverpc",
            "X-EvolveRPC-Event": delivery.event,
            "X-EvolveRPC-Delivery": delivery.id,
            SIGNATURE: signature(secret, body, present),
        }
        try:
            answer = await ask(
                "POST", webhook.url, allowed=self.networks, headers=headers, data=body, timeout_s=REQUEST_S
            )
            return DeliveryAttempt(at=now(), status=answer.status)
        except AddressRefused as error:
            return DeliveryAttempt(at=now(), error=str(error))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return DeliveryAttempt(at=now(), error=f"no response: {type(error).__name__}")

    def _record(self, delivery: WebhookDelivery, attempt: DeliveryAttempt) -> None:
        status: DeliveryStatus = "pending"
        if attempt.status is not None and 200 <= attempt.status < 300:
            status = "delivered"
        elif delivery.begun >= MOST_ATTEMPTS or attempt.status == 410:
            status = "failed"

        def change(found: WebhookDelivery) -> WebhookDelivery:
            due = now() + timedelta(seconds=self._pause(found.begun - 1))
            update = {"attempts": (*found.attempts, attempt), "status": status, "due": due}
            return found.model_copy(update=update)

        with contextlib.suppress(RecordChanged):  # deleted with its webhook
            changed(self.records, delivery, change)


def secret_of(key: bytes, tenant: str, webhook_id: str) -> str:
    """Return the secret of a webhook: derived from the key of the service, so that it is stored nowhere."""
    made = hmac.digest(key, f"webhook 1 {tenant} {webhook_id}".encode(), hashlib.sha256)
    return WEBHOOK_PREFIX + base64.urlsafe_b64encode(made).decode().rstrip("=")


def signature(secret: str, body: bytes, at: int) -> str:
    """Return the value of the header: the time of sending, and the HMAC-SHA256 of `TIME.BODY` in hex."""
    made = hmac.digest(secret.encode(), b"%d." % at + body, hashlib.sha256).hex()
    return f"t={at},v1={made}"
