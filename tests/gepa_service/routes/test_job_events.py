"""Streams, pages of events, logs, reports and certificates of jobs."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from gepa_client.page.page_events import COLUMNS, KEYS
from gepa_service.api import job_streams
from gepa_service.api.app import create_app
from gepa_service.api.routes import job_events
from gepa_service.api.routes.jobs import BudgetChange, OptimizeRequest
from gepa_service.client import ServiceClient, ServiceProblem
from gepa_service.model.work import LogChunk, LogLine, Work
from gepa_service.records import TenantRecords, new_id, now
from gepa_service.service import Service
from tests.gepa_service.routes.conftest import Caller, Keys
from tests.gepa_service.serving import served_app
from tests.support.waiting import until

WAIT_S = 40
SECRETS = ("journals.db", "runs.db", "127.0.0.1:")


@dataclass
class Received:
    """What a stream sent: ids and events in order, and the names of other events."""

    ids: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    comments: int = 0


@asynccontextmanager
async def streaming(
    url: str, job_id: str, key: str = "acme-viewer", last: str | None = None
) -> AsyncIterator[AsyncIterator[str]]:
    """Yield the lines of a stream, which stays open for the block."""
    headers = {"Authorization": f"Bearer {key}", **({"Last-Event-ID": last} if last is not None else {})}
    limits, other = httpx.Timeout(WAIT_S), {"after": "ab-3"} if last is not None else {}
    async with (
        httpx.AsyncClient(timeout=limits) as client,
        client.stream("GET", f"{url}/job/{job_id}/stream", params=other, headers=headers) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield response.aiter_lines()


async def read(lines: AsyncIterator[str], events: int | None = None) -> Received:
    """Read a stream to its end, or until it has sent so many events."""
    received, name = Received(), None
    async with asyncio.timeout(WAIT_S):
        async for line in lines:
            if line.startswith("event: "):
                name = line[7:]
                received.named.append(name)
            elif line.startswith("id: "):
                received.ids.append(line[4:])
            elif line.startswith("data: ") and name is None:
                received.events.append(json.loads(line[6:]))
            elif line.startswith(":"):
                received.comments += 1
            elif not line:
                name = None
                if events is not None and len(received.events) >= events:
                    break
    return received


def state(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What a page shows after these events: of those that replace each other, the last one."""
    found: dict[str, Any] = {}
    for event in events:
        kind = event["event"]
        key = event["numbers"][0] if kind == COLUMNS else event.get(KEYS.get(kind, ""))
        found[f"{kind} {key}"] = event
    return found


@pytest.fixture
def url(service: Service) -> Iterator[str]:
    with served_app(create_app(service)) as address:
        yield address


async def test_a_stream_has_every_event_once_and_ends_with_its_job(ended: Work, url: str) -> None:
    async with streaming(url, ended.id) as lines:
        whole = await read(lines)
    assert whole.named == ["end"]
    assert len(set(whole.ids)) == len(whole.ids)
    kinds = {event["event"] for event in whole.events}
    assert {"job", "run", "rows", "candidate", "position", "summary"} <= kinds
    assert not [secret for secret in SECRETS if secret in json.dumps(whole.events)]
    for cut in (1, len(whole.ids) // 2, len(whole.ids)):
        async with streaming(url, ended.id, last=whole.ids[cut - 1]) as lines:
            rest = await read(lines)
        assert set(rest.ids) <= set(whole.ids[cut:])
        assert state(whole.events[:cut] + rest.events) == state(whole.events)
        assert rest.named == ["end"]
    async with httpx.AsyncClient(
        base_url=url, headers={"Authorization": "Bearer acme-viewer"}, timeout=WAIT_S
    ) as client:
        by_address = await client.get(f"/job/{ended.id}/stream", params={"after": whole.ids[-1]})
    assert "event: end" in by_address.text and "event: reset" not in by_address.text and "\nid: " not in by_address.text


async def test_a_stream_shows_the_status_of_its_job_as_it_changes(url: str, acme: TenantRecords) -> None:
    job = Work(tenant="acme", id=new_id("job"), repo_url="/p", created_by="key:k")
    acme.insert(job)
    async with streaming(url, job.id) as lines:
        reading = asyncio.create_task(read(lines))
        paused = acme.replace(job.model_copy(update={"status": "paused", "attempts": 1}))
        await asyncio.sleep(2 * job_streams.POLL_S)
        acme.replace(paused.model_copy(update={"status": "cancelled", "reason": "cancelled by key:k"}))
        received = await reading
    assert [event["status"] for event in received.events] == ["pending", "paused", "cancelled"]
    assert received.events[-1]["reason"] == "cancelled by key:k"


async def test_a_revoked_key_ends_its_stream_and_no_other(url: str, keys: Keys, acme: TenantRecords) -> None:
    job = Work(tenant="acme", id=new_id("job"), repo_url="/p", created_by="key:k")
    acme.insert(job)
    async with streaming(url, job.id, "acme-viewer") as one, streaming(url, job.id, "acme-editor") as other:
        first = asyncio.create_task(read(one))
        second = asyncio.create_task(read(other))
        await asyncio.sleep(0.2)
        keys.revoked.add("acme-viewer")
        assert (await asyncio.wait_for(first, 3 * job_streams.CHECK_S)).named == ["revoked"]
        assert not second.done()
        acme.replace(job.model_copy(update={"status": "failed"}))
        assert (await second).named == ["end"]


async def test_a_stream_that_is_woken_without_news_sends_its_heartbeats_too(
    service: Service, acme: TenantRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_events, "HEARTBEAT_S", 0.3)
    job = Work(tenant="acme", id=new_id("job"), repo_url="/p", created_by="key:k")
    acme.insert(job)
    app = create_app(service)
    with served_app(app) as address:
        async with streaming(address, job.id) as lines:
            reading = asyncio.create_task(read(lines))
            await asyncio.to_thread(until, lambda: app.state.streams.open == 1)
            for _ in range(20):
                app.state.streams.get(job).log.wake()
                await asyncio.sleep(0.1)
            acme.replace(job.model_copy(update={"status": "cancelled"}))
            assert (await reading).comments >= 2


async def test_a_job_that_cannot_be_read_ends_no_stream_of_another(
    service: Service, acme: TenantRecords, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [Work(tenant="acme", id=new_id("job"), repo_url="/p", created_by="key:k") for _ in range(2)]
    for job in jobs:
        acme.insert(job)
    damaged, records, get = set[str](), type(service.records), type(service.records).get

    def read_unless_damaged(store: Any, kind: Any, tenant: str, id_: str) -> Any:
        if id_ in damaged:
            raise ValueError("the record is damaged")
        return get(store, kind, tenant, id_)

    monkeypatch.setattr(records, "get", read_unless_damaged)
    monkeypatch.setattr(job_streams, "POLL_S", 0.02)
    app = create_app(service)
    with served_app(app) as address:
        opened = [asyncio.create_task(followed(address, job)) for job in jobs]
        await asyncio.to_thread(until, lambda: app.state.streams.open == 2)
        damaged.add(jobs[0].id)
        acme.replace(jobs[1].model_copy(update={"status": "cancelled"}))
        assert (await opened[1]).named == ["end"]
        await asyncio.to_thread(until, lambda: f"job {jobs[0].id} cannot be followed" in caplog.text)
        damaged.clear()
        acme.remove(Work, jobs[0].id)
        assert (await opened[0]).named == ["end"]
        await asyncio.to_thread(until, lambda: app.state.streams.open == 0)


def test_the_python_client_submits_follows_and_reads_jobs(
    url: str, program: str, ended: Work, stored: tuple[Path, str]
) -> None:
    written = json.loads((stored[0] / "runs" / stored[1] / "certificate.json").read_text())
    with ServiceClient(url, "acme-editor") as client:
        request = OptimizeRequest(repo_url=program, max_metric_calls=30)
        submitted = client.optimize(request, idempotency_key="once")
        assert client.optimize(request, idempotency_key="once") == submitted
        client.cancel(submitted.job_id)
        assert [event["status"] for event in client.follow(submitted.job_id)] == ["cancelled"]
        assert client.job(submitted.job_id).reason == "cancelled by key:acme-editor"
        assert {"job", "run", "candidate"} <= {event["event"] for event in client.follow(ended.id)}
        assert client.events(ended.id).events
        assert client.certificate(ended.id).model_dump(mode="json") == written
        assert b"<!doctype html>" in client.report(ended.id)
        with pytest.raises(ServiceProblem) as refused:
            client.change_budget(ended.id, BudgetChange(max_metric_calls=900))
        assert (refused.value.status, refused.value.type) == (409, "urn:evolverpc:wrong-status")


async def test_pages_of_events_are_those_of_the_stream(ended: Work, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with streaming(url, ended.id) as lines:
        whole = await read(lines)
    headers = {"Authorization": "Bearer acme-viewer"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=WAIT_S) as client:
        page = (await client.get(f"/job/{ended.id}/events")).json()
        assert (page["complete"], page["reset"]) == (True, False)
        assert state(page["events"]) == state(whole.events)
        after = (await client.get(f"/job/{ended.id}/events", params={"after": whole.ids[2]})).json()
        assert after["events"] == page["events"][-len(after["events"]) :]
        other = (await client.get(f"/job/{ended.id}/events", params={"after": "ab-3"})).json()
        assert (other["events"], other["reset"]) == (page["events"], True)
        assert (await client.get(f"/job/{ended.id}/events", params={"after": "x"})).status_code == 422
        monkeypatch.setattr(job_events, "PAGE_BYTES", 100)
        first = (await client.get(f"/job/{ended.id}/events")).json()
        assert (first["complete"], len(first["events"]) < len(page["events"])) == (False, True)


async def test_the_report_is_a_page_with_no_address_of_the_service(editor: Caller, ended: Work) -> None:
    answered = await editor("GET", f"/job/{ended.id}/report")
    assert answered.status_code == 200, answered.text
    assert answered.headers["content-type"].startswith("text/html")
    assert not [secret for secret in SECRETS if secret in answered.text]


async def test_a_job_without_a_run_has_neither(editor: Caller, acme: TenantRecords) -> None:
    for status, attempts in (("pending", 0), ("failed", 1)):
        job = Work(tenant="acme", id=new_id("job"), repo_url="/p", created_by="k", status=status, attempts=attempts)  # type: ignore[arg-type]
        acme.insert(job)
        for what in ("report", "certificate"):
            assert (await editor("GET", f"/job/{job.id}/{what}")).status_code == 409


async def test_logs_are_read_in_pages(editor: Caller, acme: TenantRecords) -> None:
    job = Work(tenant="acme", id=new_id("job"), repo_url="/p", created_by="k")
    acme.insert(job)
    for at in range(3):
        line = LogLine(at=now(), source="driver", text=f"line {at}")
        acme.insert(LogChunk(tenant="acme", id=f"log_{at}", job_id=job.id, lines=(line,)))
    first = (await editor("GET", f"/job/{job.id}/logs?limit=2")).json()
    rest = (await editor("GET", f"/job/{job.id}/logs?after={first['next']}")).json()
    assert [line["text"] for line in first["lines"] + rest["lines"]] == ["line 0", "line 1", "line 2"]


async def test_a_tenant_whose_streams_follow_its_most_jobs_holds_up_no_other_tenant(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_streams, "MOST_FOLLOWED_OF_TENANT", 2)
    jobs = [Work(tenant="acme", id=new_id("job"), repo_url="/p", created_by="key:k") for _ in range(3)]
    foreign = jobs[0].model_copy(update={"tenant": "other", "id": new_id("job")})
    for job in (*jobs, foreign):
        service.records.insert(job)
    app = create_app(service)
    with served_app(app) as address:
        async with streaming(address, jobs[0].id) as first, streaming(address, jobs[1].id) as second:
            assert [len((await read(each, 1)).events) for each in (first, second)] == [1, 1]
            async with httpx.AsyncClient(timeout=WAIT_S) as client:
                headers = {"Authorization": "Bearer acme-viewer"}
                refused = await client.get(f"{address}/job/{jobs[2].id}/stream", headers=headers)
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "5")
            async with streaming(address, foreign.id, "other-viewer") as other:
                assert len((await read(other, 1)).events) == 1


async def followed(url: str, job: Work) -> Received:
    async with streaming(url, job.id) as lines:
        return await read(lines)
