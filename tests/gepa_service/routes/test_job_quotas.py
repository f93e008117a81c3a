"""What a tenant's quotas of jobs and money refuse."""

import contextlib
from typing import Any

from gepa_client.journal import open_store
from gepa_service.api.app_state import Service
from gepa_service.model.job import Job
from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from gepa_service.records.record import new_id
from gepa_service.records.store import TenantRecords
from tests.gepa_client.journal.sample_runs import ended as ended_attempt
from tests.gepa_client.journal.sample_runs import run, sent
from tests.gepa_service.routes.conftest import Caller

REQUEST = {"repo_url": "/srv/program", "max_metric_calls": 30}
MONTH_S = 31 * 24 * 3600


def limited(service: Service, **quotas: Any) -> None:
    service.records.insert(Tenant(tenant=TENANTS, id="acme", name="acme", quotas=Quotas(**quotas)))


async def test_who_has_spent_the_money_of_the_month_submits_no_job(
    service: Service, editor: Caller, acme: TenantRecords
) -> None:
    limited(service, usd_per_month=1.0)
    spent = Job(tenant="acme", id=new_id("job"), repo_url="/p", created_by="key:k", status="running")
    acme.insert(spent)
    with contextlib.closing(open_store(service.journals)) as store:
        store.create(run(spent.id), [sent(0), ended_attempt(0, usage={"cost_usd": 0.75})])
        assert (await editor("POST", "/optimize", REQUEST)).status_code == 202
        later = Job(tenant="acme", id=new_id("job"), repo_url="/p", created_by="key:k", status="completed")
        acme.insert(later)
        store.create(run(later.id), [sent(0), ended_attempt(0, usage={"cost_usd": 0.25})])
    refused = await editor("POST", "/optimize", REQUEST)
    assert (refused.status_code, refused.json()["quota"]) == (429, "usd_per_month"), refused.text
    assert 0 < int(refused.headers["Retry-After"]) <= MONTH_S


async def test_a_paused_job_is_resumed_only_if_there_is_room_among_those_that_wait(
    service: Service, editor: Caller
) -> None:
    limited(service, jobs_queued=1)
    paused = (await editor("POST", "/optimize", REQUEST)).json()["job_id"]
    assert (await editor("POST", f"/job/{paused}/pause")).json()["status"] == "paused"
    other = (await editor("POST", "/optimize", REQUEST)).json()["job_id"]
    refused = await editor("POST", f"/job/{paused}/resume")
    assert (refused.status_code, refused.json()["quota"]) == (429, "jobs_queued"), refused.text
    assert int(refused.headers["Retry-After"]) > 0
    assert (await editor("GET", f"/job/{paused}")).json()["status"] == "paused"
    assert (await editor("POST", f"/job/{other}/resume")).status_code == 200, "it waits already"
    await editor("POST", f"/job/{other}/cancel")
    assert (await editor("POST", f"/job/{paused}/resume")).json()["status"] == "pending"
