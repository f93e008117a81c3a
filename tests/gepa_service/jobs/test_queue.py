"""Tenants take turns; quotas hold."""

from datetime import timedelta
from typing import Any

from gepa_service.jobs.dispatcher import Queue
from gepa_service.jobs.month_spending import month_id
from gepa_service.model.tenant import TENANTS, Quotas, Tenant, Usage
from gepa_service.model.work import ProgramWork, Work
from gepa_service.records import RecordStore, now


def submit(records: RecordStore, tenant: str, **fields: Any) -> Work:
    job = Work(tenant=tenant, id=f"job_{records.count(Work, None):032d}", repo_url="/r", created_by="key:x", **fields)
    records.insert(job)
    return job


def taken(queue: Queue, count: int) -> list[str]:
    """The tenants of the next jobs."""
    found = [queue.take() for _ in range(count)]
    return [job.tenant for job in found if job is not None]


def test_one_who_submits_many_does_not_hold_up_anothers_first(records: RecordStore) -> None:
    for _ in range(6):
        submit(records, "many")
    submit(records, "few")
    submit(records, "few")
    queue = Queue(records)
    assert taken(queue, 5) == ["few", "many", "few", "many", "many"]
    running = [job.tenant for job in records.page(Work, None, {"status": "running"})]
    assert sorted(running) == ["few", "few", "many", "many", "many"]


def test_of_tenants_with_as_many_running_jobs_the_one_served_longest_ago_comes_first(records: RecordStore) -> None:
    queue = Queue(records)
    order = []
    for tenants in ("cabcab", "a", "ab"):
        for tenant in tenants:
            submit(records, tenant)
        for _ in tenants:
            job = queue.take()
            assert job is not None
            order.append(job.tenant)
            records.replace(job.model_copy(update={"status": "completed"}))
    assert order == [*"abcabc", "a", *"ba"]


def test_a_tenants_oldest_job_comes_first_unless_it_waits_after_a_setback(records: RecordStore) -> None:
    submit(records, "a", not_before=now() + timedelta(hours=1))
    due, later = submit(records, "a"), submit(records, "a")
    queue = Queue(records)
    assert [job.id for job in (queue.take(), queue.take()) if job is not None] == [due.id, later.id]
    assert queue.take() is None


def test_quotas_of_jobs_and_sandboxes_hold(records: RecordStore) -> None:
    quotas = Quotas(jobs_at_once=2, sandboxes=3)
    records.insert(Tenant(tenant=TENANTS, id="a", name="a", quotas=quotas))
    first = submit(records, "a", settings={"sandboxes": 2})
    wide = submit(records, "a", settings={"sandboxes": 3})
    narrow = submit(records, "a", settings={"sandboxes": 1})
    submit(records, "a", settings={"sandboxes": 1})
    queue = Queue(records)
    assert [job.id for job in (queue.take(), queue.take()) if job is not None] == [first.id, narrow.id]
    assert queue.take() is None, "two jobs run"
    assert records.get(Work, "a", wide.id) == wide
    alone = submit(records, "b", settings={"sandboxes": 10**6})
    assert [job.id for job in (queue.take(),) if job is not None] == [alone.id]


def test_batches_and_steps_wait_for_no_optimization_and_have_the_same_quotas(records: RecordStore) -> None:
    quotas = Quotas(jobs_at_once=2, sandboxes=9)
    records.insert(Tenant(tenant=TENANTS, id="a", name="a", quotas=quotas))
    jobs = [submit(records, "a", settings={"sandboxes": 1}) for _ in range(3)]
    kinds = ("step", "rollouts", "step")
    short = [submit(records, "a", what=what, settings={"sandboxes": 1}, program=ProgramWork()) for what in kinds]
    queue = Queue(records)
    taken_ = [work.id for _ in range(5) if (work := queue.take()) is not None]
    assert taken_ == [each.id for each in (*short[:2], *jobs[:2])]
    other = submit(records, "b", what="step", settings={"sandboxes": 9}, program=ProgramWork())
    assert Queue(records, at_once=2).take() is None, "as many run in each lane as may"
    assert [work.id for work in (queue.take(),) if work is not None] == [other.id]


def test_a_job_waits_with_the_reason_while_its_tenant_has_spent_its_money_of_the_month(records: RecordStore) -> None:
    records.insert(Tenant(tenant=TENANTS, id="a", name="a", quotas=Quotas(usd_per_month=2.0)))
    for tenant, usd in (("a", 2.5), ("b", 9.0)):
        records.insert(Usage(tenant=tenant, id=month_id(now()), usd=usd))
    mine, other = submit(records, "a"), submit(records, "b")
    queue = Queue(records)
    taken_ = queue.take()
    assert taken_ is not None
    assert taken_.id == other.id
    assert queue.take() is None
    waiting = records.get(Work, "a", mine.id)
    assert waiting is not None
    assert (waiting.status, "usd_per_month" in (waiting.reason or "")) == ("pending", True)
    assert records.remove(Usage, "a") == 1
    taken_ = queue.take()
    assert taken_ is not None
    assert (taken_.id, taken_.reason) == (mine.id, None)
