"""How many workers there is work for."""

from typing import Any

from gepa_service.jobs.demand import workers_wanted
from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from gepa_service.model.work import ProgramWork, Status, Work
from gepa_service.records.record import new_id
from gepa_service.records.store import RecordStore


def add_jobs(records: RecordStore, tenant: str, count: int, status: Status = "pending") -> None:
    for _ in range(count):
        job = Work(tenant=tenant, id=new_id("job"), repo_url="https://x.example/y", settings={}, created_by="key:test")
        records.insert(job.model_copy(update={"status": status}))


def test_no_work_needs_no_worker_and_ended_jobs_are_no_work(records: RecordStore) -> None:
    add_jobs(records, "acme", 3, "completed")
    assert workers_wanted(records, 4, 20) == 0


def test_jobs_share_workers_up_to_the_most(records: RecordStore) -> None:
    records.insert(Tenant(tenant=TENANTS, id="acme", name="acme", quotas=Quotas(jobs_at_once=100)))
    add_jobs(records, "acme", 5)
    add_jobs(records, "acme", 4, "running")
    assert workers_wanted(records, 4, 20) == 3
    assert workers_wanted(records, 4, 2) == 2


def test_jobs_beyond_a_tenants_quota_start_no_worker(records: RecordStore) -> None:
    records.insert(Tenant(tenant=TENANTS, id="acme", name="acme", quotas=Quotas(jobs_at_once=2)))
    add_jobs(records, "acme", 1000)
    add_jobs(records, "acme", 1, "running")
    add_jobs(records, "other", 1)
    assert workers_wanted(records, 1, 20) == 3


def test_batches_and_steps_share_workers_beside_jobs(records: RecordStore) -> None:
    add_jobs(records, "acme", 2)
    for what, status in (("rollouts", "pending"), ("rollouts", "running"), ("step", "pending"), ("step", "completed")):
        made: Any = {"what": what, "status": status, "program": ProgramWork()}
        records.insert(Work(tenant="acme", id=new_id(what), repo_url="https://x.example/y", created_by="k", **made))
    assert [workers_wanted(records, each, 20) for each in (4, 2, 1)] == [1, 2, 3]
