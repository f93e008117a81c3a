"""Requests a minute, by tenant."""

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from gepa_service.api.problems import Failures
from gepa_service.api.safety import FRESH_S, RequestCounts, RequestLimits
from gepa_service.auth.permissions import Principal
from gepa_service.jobs.month_spending import month_id
from gepa_service.model.tenant import TENANTS, Quotas, Tenant, Usage
from gepa_service.records import RecordStore, RecordsUnavailable, now
from tests.gepa_service.conftest import Clock


@pytest.fixture
def counts() -> RequestCounts:
    return RequestCounts()


@pytest.fixture
def http(records: RecordStore, clock: Clock, counts: RequestCounts) -> httpx.AsyncClient:
    """Requests whose path names tenant and role."""

    async def fine(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("fine")(scope, receive, send)

    limited = RequestLimits(fine, records, counts, (), clock)

    async def called(scope: Scope, receive: Receive, send: Send) -> None:
        _, tenant, role = scope["path"].split("/")
        Request(scope).state.principal = Principal(tenant, role, "key:1") if tenant != "-" else None
        await limited(scope, receive, send)

    return httpx.AsyncClient(transport=httpx.ASGITransport(Failures(called)), base_url="http://service")


def allow(records: RecordStore, tenant: str, count: int) -> None:
    found = records.get(Tenant, TENANTS, tenant)
    if found is None:
        records.insert(Tenant(tenant=TENANTS, id=tenant, name=tenant, quotas=Quotas(requests_per_minute=count)))
    else:
        records.replace(found.model_copy(update={"quotas": Quotas(requests_per_minute=count)}))


async def test_requests_beyond_the_quota_wait_for_their_turn_and_no_other_tenant_does(
    http: httpx.AsyncClient, records: RecordStore, clock: Clock
) -> None:
    allow(records, "acme", 3)
    assert [(await http.get("/acme/viewer")).status_code for _ in range(3)] == [200] * 3
    clock.present += 20
    refused = await http.get("/acme/viewer")
    assert refused.status_code == 429
    assert refused.json()["quota"] == "requests_per_minute"
    assert refused.headers["retry-after"] == "40"
    assert (await http.get("/beta/viewer")).status_code == 200
    clock.present += 40
    assert (await http.get("/acme/viewer")).status_code == 200


async def test_a_changed_quota_holds_within_seconds_and_none_lets_nothing_pass(
    http: httpx.AsyncClient, records: RecordStore, clock: Clock
) -> None:
    allow(records, "acme", 1)
    assert [(await http.get("/acme/viewer")).status_code for _ in range(2)] == [200, 429]
    allow(records, "acme", 5)
    clock.present += FRESH_S
    assert (await http.get("/acme/viewer")).status_code == 200
    allow(records, "acme", 0)
    clock.present += FRESH_S
    assert (await http.get("/acme/viewer")).status_code == 429


async def test_job_tokens_and_requests_without_a_caller_are_not_counted(
    http: httpx.AsyncClient, records: RecordStore, counts: RequestCounts
) -> None:
    allow(records, "acme", 1)
    for _ in range(3):
        assert (await http.get("/acme/job")).status_code == 200
        assert (await http.get("/acme/attempt")).status_code == 200
        assert (await http.get("/-/none")).status_code == 200
    assert counts.of("acme") == 0


def test_counts_are_added_to_the_month_and_kept_while_the_database_is_away(
    records: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = RequestCounts(), RequestCounts()
    for counts, times in ((one, 3), (two, 4)):
        for _ in range(times):
            counts.add("acme")

    def away(*_: object) -> None:
        raise RecordsUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(records, "insert", away)
        with pytest.raises(RecordsUnavailable):
            one.write(records)
    assert one.of("acme") == 3
    for counts in (one, two, one):
        counts.write(records)
    assert one.of("acme") == 0
    assert records.get(Usage, "acme", month_id(now())).requests == 7
