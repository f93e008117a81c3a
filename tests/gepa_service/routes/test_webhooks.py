"""Outgoing webhooks: signed, retried a bounded number of times, and never sent to a private network."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import pytest
from aiohttp import web

from gepa_service.model.program_version import Program
from gepa_service.records import TenantRecords, now
from gepa_service.service import Service
from gepa_service.webhooks import MOST_ATTEMPTS, Sender, Webhook, WebhookDelivery
from tests.gepa_service.routes.conftest import LOOPBACK, Caller
from tests.support.web_hosts import web_host


@dataclass
class Receiver:
    """`status`: what it answers. `received`: bodies with headers."""

    url: str = ""
    status: int = 200
    received: list[tuple[bytes, dict[str, str]]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        self.received.append((await request.read(), dict(request.headers)))
        return web.Response(status=self.status, headers={"Location": "http://127.0.0.1:1/"})


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    async with web_host(receiver.take) as host:
        receiver.url = f"http://{host}/hook"
        yield receiver


@pytest.fixture
def owner(client: httpx.AsyncClient) -> Caller:
    return Caller(client, "acme-owner")


@pytest.fixture
def sender(service: Service) -> Sender:
    return Sender(service.records, service.webhook_key, LOOPBACK, first_pause_s=0.0)


async def registered(owner: Caller, url: str, *events: str) -> dict[str, Any]:
    made = await owner("POST", "/webhooks", {"url": url, "events": list(events or ["ping"])})
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found


def due_now(acme: TenantRecords) -> list[WebhookDelivery]:
    """Make what is pending due."""
    pending = acme.page(WebhookDelivery, {"status": "pending"})
    return [acme.replace(each.model_copy(update={"due": now() - timedelta(seconds=1)})) for each in pending]


async def test_a_promotion_is_sent_once_signed_with_the_secret_of_the_webhook(
    owner: Caller, receiver: Receiver, sender: Sender, acme: TenantRecords
) -> None:
    receiver.status = 204
    webhook = await registered(owner, receiver.url, "program.promoted")
    other = await registered(owner, receiver.url, "job.completed")
    assert other["secret"] != webhook["secret"]
    acme.insert(
        Program(tenant="acme", id="p", line="l", job_id="j", repo_url="r", texts={"a": "b"}, verdict="improved")
    )
    await owner("POST", "/program/p/promote", {})
    assert await sender.once() == 1
    assert await sender.once() == 0
    ((body, headers),) = receiver.received
    stamp, _, sent = headers["X-EvolveRPC-Signature"].partition(",v1=")
    expected = hmac.new(webhook["secret"].encode(), stamp[2:].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert sent == expected
    read = json.loads(body)
    assert (read["event"], read["program_id"], read["actor"]) == ("program.promoted", "p", "key:acme-owner")
    logged = (await owner("GET", f"/webhooks/{webhook['webhook_id']}/deliveries")).json()["items"]
    assert [(each["status"], each["attempts"][0]["status"]) for each in logged] == [("delivered", 204)]


async def test_a_receiver_that_fails_is_tried_again_a_bounded_number_of_times(
    owner: Caller, receiver: Receiver, sender: Sender, acme: TenantRecords
) -> None:
    receiver.status = 503
    webhook = await registered(owner, receiver.url)
    await owner("POST", f"/webhooks/{webhook['webhook_id']}/ping")
    for _ in range(MOST_ATTEMPTS + 2):
        await sender.once()
        due_now(acme)
    assert len(receiver.received) == MOST_ATTEMPTS
    (logged,) = (await owner("GET", f"/webhooks/{webhook['webhook_id']}/deliveries")).json()["items"]
    assert logged["status"] == "failed"
    assert [each["status"] for each in logged["attempts"]] == MOST_ATTEMPTS * [503]


async def test_pauses_of_one_delivery_grow(
    owner: Caller, receiver: Receiver, service: Service, acme: TenantRecords
) -> None:
    receiver.status = 500
    webhook = await registered(owner, receiver.url)
    await owner("POST", f"/webhooks/{webhook['webhook_id']}/ping")
    pauses = []
    for _ in range(3):
        due_now(acme)
        await Sender(service.records, service.webhook_key, LOOPBACK).once()
        (pending,) = acme.page(WebhookDelivery)
        pauses.append((pending.due - now()).total_seconds())
    assert pauses[0] < pauses[1] < pauses[2]
    await owner("POST", f"/webhooks/{webhook['webhook_id']}/ping")
    assert await Sender(service.records, service.webhook_key, LOOPBACK).once() == 1, "one that pauses holds up no other"


async def test_two_senders_send_an_event_once(owner: Caller, receiver: Receiver, service: Service) -> None:
    webhook = await registered(owner, receiver.url)
    for _ in range(5):
        await owner("POST", f"/webhooks/{webhook['webhook_id']}/ping")
    senders = [Sender(service.records, service.webhook_key, LOOPBACK) for _ in range(4)]
    await asyncio.gather(*(each.once() for each in senders))
    assert len(receiver.received) == 5


async def test_a_redirect_is_a_failure_that_is_not_followed_and_a_receiver_that_is_gone_is_asked_no_more(
    owner: Caller, receiver: Receiver, sender: Sender, acme: TenantRecords
) -> None:
    receiver.status = 302
    webhook = await registered(owner, receiver.url)
    await owner("POST", f"/webhooks/{webhook['webhook_id']}/ping")
    await sender.once()
    (logged,) = acme.page(WebhookDelivery)
    assert (logged.status, logged.attempts[0].status) == ("pending", 302)
    receiver.status = 410
    due_now(acme)
    await sender.once()
    await owner("POST", f"/webhooks/{webhook['webhook_id']}/ping")
    await owner("DELETE", f"/webhooks/{webhook['webhook_id']}")
    assert await sender.once() == 0
    assert [each.status for each in acme.page(WebhookDelivery)] == ["failed", "failed"]


async def test_a_name_that_became_private_gets_nothing(
    owner: Caller, receiver: Receiver, service: Service, acme: TenantRecords
) -> None:
    webhook = await registered(owner, receiver.url)
    await owner("POST", f"/webhooks/{webhook['webhook_id']}/ping")
    await Sender(service.records, service.webhook_key).once()
    (logged,) = acme.page(WebhookDelivery)
    assert logged.attempts[0].error is not None
    assert "public" in logged.attempts[0].error
    assert receiver.received == []


WRONG: list[dict[str, Any]] = [
    {"url": "https://10.0.0.1/hook", "events": ["ping"]},
    {"url": "http://93.184.216.34/hook", "events": ["ping"]},
    {"url": "file:///etc/passwd", "events": ["ping"]},
    {"url": "https://a@93.184.216.34/", "events": ["ping"]},
    {"url": "https://[::1", "events": ["ping"]},
    {"url": "https://example.com:99999/", "events": ["ping"]},
    {"url": "https://93.184.216.34/", "events": []},
    {"url": "https://93.184.216.34/", "events": ["everything"]},
    {"url": "x" * 3000, "events": ["ping"]},
    {},
]


async def test_a_wrong_webhook_is_refused(owner: Caller) -> None:
    for body in WRONG:
        assert (await owner("POST", "/webhooks", body)).status_code == 422
    assert (await owner("GET", "/webhooks")).json()["items"] == []


async def test_there_is_a_largest_number(owner: Caller, acme: TenantRecords, receiver: Receiver) -> None:
    for at in range(20):
        acme.insert(Webhook(tenant="acme", id=f"w{at}", url=receiver.url, events=("ping",), created_by="k"))
    refused = await owner("POST", "/webhooks", {"url": receiver.url, "events": ["ping"]})
    assert refused.status_code == 409
