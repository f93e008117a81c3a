"""What a tenant's quotas of jobs and money refuse."""

from typing import Any

from gepa_service.api.app_state import Service
from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from tests.gepa_service.routes.conftest import Caller

REQUEST = {"repo_url": "/srv/program", "max_metric_calls": 30}


def limited(service: Service, **quotas: Any) -> None:
    service.records.insert(Tenant(tenant=TENANTS, id="acme", name="acme", quotas=Quotas(**quotas)))


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
