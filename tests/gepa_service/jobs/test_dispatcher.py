"""One dispatcher places work: tenants take turns, quotas hold.

Each work continues, also if its engine reports an end late, wrongly or never.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gepa_service.engines.engine import EngineUnavailable, LocalEngine
from gepa_service.jobs import control, month_spending
from gepa_service.jobs.attempt_records import AttemptRecords
from gepa_service.jobs.dispatcher import Dispatcher, Queue
from gepa_service.jobs.dispatcher_lease import LEASE_S, DispatcherLease, holder_in
from gepa_service.jobs.messages import Ended, Report, Spent
from gepa_service.model.program_version import Program
from gepa_service.model.tenant import TENANTS, Quotas, Tenant, Usage
from gepa_service.model.work import ProgramWork, Work
from gepa_service.records import RecordStore, RecordsUnavailable, new_id, now
from tests.gepa_service.conftest import Clock
from tests.gepa_service.platform import Platform
from tests.support.waiting import until


@dataclass
class Engine:
    """Reports as a test wants: `known` are the attempts that it believes to run."""

    known: set[tuple[str, int]] = field(default_factory=set)
    stopped: list[str] = field(default_factory=list)
    is_away: bool = False

    def start(self, work: Work) -> None:
        if self.is_away:
            raise EngineUnavailable("the cluster does not answer")
        self.known.add((work.id, work.attempts))

    def stop(self, work: Work) -> None:
        self.stopped.append(work.id)

    def ended(self, running: Sequence[Work]) -> list[Work]:
        return [work for work in running if (work.id, work.attempts) not in self.known]


def submit(records: RecordStore, tenant: str = "acme", **fields: Any) -> Work:
    job = Work(tenant=tenant, id=new_id("job"), repo_url="/r", created_by="key:x", **fields)
    records.insert(job)
    return job


def now_of(records: RecordStore, job: Work) -> Work:
    found = records.get(Work, job.tenant, job.id)
    assert found is not None
    return found


def dispatcher(records: RecordStore, engine: Engine, *, is_held: bool = True) -> Dispatcher:
    return Dispatcher(records, Queue(records), engine, SimpleNamespace(is_held=is_held, renew=lambda: None))  # type: ignore[arg-type]


def turn(placing: Dispatcher) -> bool:
    placing.agree()
    return placing.place()


def test_work_whose_attempt_ended_or_is_not_known_is_placed_again_and_a_late_report_changes_nothing(
    records: RecordStore,
) -> None:
    engine, job = Engine(), submit(records)
    first = dispatcher(records, engine)
    assert turn(first)
    assert not turn(first)
    engine.known.clear()
    dispatcher(records, engine, is_held=False).agree()
    begun = now_of(records, job)
    assert begun.status == "running", "one that has lost its lease changes nothing"
    second = dispatcher(records, engine)  # which finds it running, and has not started it
    assert turn(second)
    again = now_of(records, job)
    assert again.started == begun.started
    assert (again.status, again.attempts, again.setbacks, engine.known) == ("running", 2, 1, {(job.id, 2)})
    engine.known.add((job.id, 1))  # it was thought dead
    assert not turn(second)
    assert now_of(records, job) == again


def test_an_engine_that_never_reports_an_end_holds_up_no_other_work(records: RecordStore) -> None:
    engine, job = Engine(), submit(records)
    placing = dispatcher(records, engine)
    assert turn(placing)
    records.replace(now_of(records, job).model_copy(update={"status": "completed"}))
    other = submit(records)
    assert turn(placing)
    assert not turn(placing)
    assert now_of(records, other).status == "running"
    assert engine.stopped == [job.id]


def test_work_waits_without_a_setback_while_the_engine_is_away_and_can_be_cancelled_meanwhile(
    service: Platform,
) -> None:
    records, engine = service.records, Engine(is_away=True)
    job, placing = submit(records), dispatcher(records, engine)
    for _ in range(10):
        with pytest.raises(EngineUnavailable):
            turn(placing)
    waiting = now_of(records, job)
    assert (waiting.status, waiting.setbacks, "engine" in (waiting.reason or "")) == ("pending", 0, True)
    control.cancel(service.of("acme"), service.journals, waiting, "key:ann")
    engine.is_away = False
    assert not turn(placing)
    assert engine.known == set()


def test_two_dispatchers_at_once_place_no_attempt_twice(records: RecordStore) -> None:
    for number in range(12):
        submit(records, f"t{number % 4}")
    known, placed = set[tuple[str, int]](), list[tuple[str, int]]()

    class Cluster(Engine):
        """Both dispatchers reach it."""

        def start(self, work: Work) -> None:
            super().start(work)
            placed.append((work.id, work.attempts))

    def place() -> None:
        placing = dispatcher(records, Cluster(known))
        while turn(placing):
            pass

    threads = [threading.Thread(target=place) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(placed) == len(set(placed))
    assert {work.status for work in records.page(Work, None)} == {"running"}


def test_the_lease_is_taken_over_once_it_was_not_renewed_for_its_time_and_its_holder_notices(
    records: RecordStore, clock: Clock
) -> None:
    one, two = (DispatcherLease(records, name, clock) for name in ("one", "two"))
    one.renew()
    two.renew()
    assert (one.is_held, two.is_held) == (True, False)
    for _ in range(3):
        clock.present += LEASE_S - 1
        one.renew()
        two.renew()
        assert (one.is_held, two.is_held) == (True, False)
    clock.present += LEASE_S
    assert not one.is_held, "another may have it by now"
    two.renew()
    assert two.is_held
    one.renew()
    assert not one.is_held


def test_a_dispatcher_whose_machine_slept_puts_nothing_back_if_another_has_its_lease(
    records: RecordStore, clock: Clock
) -> None:
    asleep = Clock()
    first, other = DispatcherLease(records, "one", asleep), DispatcherLease(records, "two", clock)
    engine, job = Engine(), submit(records)
    first.renew()
    placing = Dispatcher(records, Queue(records), engine, first)
    assert turn(placing)
    other.renew()
    clock.present += LEASE_S
    other.renew()
    assert (first.is_held, other.is_held) == (True, True), "its clock stood still"
    engine.known.clear()
    placing.agree()
    assert (first.is_held, now_of(records, job).status) == (False, "running")


def test_a_database_that_is_away_ends_no_lease(
    records: RecordStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (DispatcherLease(records, name, clock) for name in ("one", "two"))
    one.renew()
    two.renew()
    with monkeypatch.context() as patch:
        patch.setattr(RecordStore, "get", raising(RecordsUnavailable("away")))
        for _ in range(40):
            clock.present += 1
            with pytest.raises(RecordsUnavailable):
                two.renew()
    two.renew()
    one.renew()
    assert (one.is_held, two.is_held) == (True, False)


def test_a_dispatcher_that_is_started_again_in_its_folder_is_the_same_holder_and_another_beside_it_is_not(
    tmp_path: Path,
) -> None:
    with holder_in(tmp_path) as one, holder_in(tmp_path) as beside:
        assert one != beside
    with holder_in(tmp_path) as again:
        assert again == one


def test_attempts_of_the_local_engine_hand_back_at_its_end_and_end_if_they_fail(records: RecordStore) -> None:
    handed_back = list[str]()

    def run(work: Work, stop: threading.Event) -> None:
        if work.tenant == "fails":
            raise ValueError("a bug")
        assert stop.wait(60)
        handed_back.append(work.id)

    one, two = submit(records), submit(records, "fails")
    with LocalEngine(run) as engine:
        engine.start(one)
        engine.start(two)
        until(lambda: engine.ended([one, two]) == [two])
        engine.start(submit(records))
    assert one.id in handed_back
    assert len(handed_back) == 2


def step_of(
    service: Platform, then: Callable[[Work], object] = lambda _: None, parent: str | None = None
) -> Callable[[str], Work]:
    """A running step, whose attempts make a version with a text; `then` is called before an attempt ends."""
    made = ProgramWork(tasks=({"text": "a"},), makes=new_id("program"), parent=parent)
    step = Work(tenant="acme", id=new_id("step"), what="step", repo_url="/r", created_by="k", program=made)
    service.records.insert(step.model_copy(update={"status": "running", "attempts": 1}))
    service.tenant("acme", usd_per_month=0.0)

    def attempt(text: str) -> Work:
        records = AttemptRecords(service.parts(), "acme", step.id, service.get(step).attempts)
        assert records.begin() is not None
        assert records.report(Report()).stop is None, "what a step has done would be lost"
        then(service.get(step))
        result = {"candidate": {"t": text}, "program": "p", "program_json": None, "base_commit": "c"}
        ended = Ended(status="completed", result={**result, "bundles": [], "tried": []})
        records.report(Report(message=ended))
        assert ended.result is not None and "bundles" in ended.result, "it may be reported again"
        return service.get(step)

    return attempt


def test_a_step_stores_no_version_of_an_attempt_that_another_one_replaced(service: Platform) -> None:
    def replace(found: Work) -> None:
        service.records.replace(found.model_copy(update={"attempts": 2}))

    after = step_of(service, replace)("old")
    assert (after.status, after.attempts, service.records.page(Program, "acme")) == ("running", 2, [])


def test_a_step_fails_whose_version_another_step_has_made_meanwhile(service: Platform) -> None:
    def make(found: Work) -> None:
        fields = {"line": "l", "job_id": "step_other", "repo_url": "/r", "texts": {"t": "other"}}
        service.records.insert(Program(tenant="acme", id=found.program.makes, **fields))  # type: ignore[union-attr]

    after = step_of(service, make)("mine")
    assert (after.status, after.program_id, after.result) == ("failed", None, None)


def test_the_result_of_a_step_is_the_version_that_an_earlier_attempt_stored(service: Platform) -> None:
    attempt = step_of(service)
    first = attempt("first")
    service.records.replace(first.model_copy(update={"status": "running", "attempts": 2, "result": None}))
    second = attempt("second")  # the first died before its end was recorded
    assert second.result is not None
    assert second.result["candidate"] == {"t": "first"}
    assert [each.texts for each in service.records.page(Program, "acme")] == [{"t": "first"}]


def test_a_version_that_changes_texts_alone_has_the_code_of_its_parent(service: Platform) -> None:
    code = {"commit": "c" * 40, "diff": "d", "patch": "p", "bundles": ("Yg==",)}
    fields = {"line": "l", "job_id": "j", "repo_url": "/r", "texts": {}, **code}
    service.records.insert(Program(tenant="acme", id="parent", **fields))
    step_of(service, parent="parent")("text")
    [made] = [each for each in service.records.page(Program, "acme") if each.id != "parent"]
    assert made.model_dump(include=set(code)) == code


def test_what_a_month_could_not_be_given_is_added_by_the_next_report(
    service: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ProgramWork(tasks=({"text": "a"},))
    batch = Work(tenant="acme", id=new_id("batch"), what="rollouts", repo_url="/r", created_by="k", program=made)
    service.records.insert(batch.model_copy(update={"status": "running", "attempts": 1}))
    attempt = AttemptRecords(service.parts(), "acme", batch.id, 1)
    spent = Report(message=Spent(usd=0.5, unpriced=1))
    add = month_spending.add_usage
    monkeypatch.setattr(month_spending, "add_usage", raising(RecordsUnavailable("away")))
    with pytest.raises(RecordsUnavailable):
        attempt.report(spent)
    monkeypatch.setattr(month_spending, "add_usage", add)
    for _ in range(2):
        attempt.report(spent)
    before = service.get(batch)
    service.records.replace(before.model_copy(update={"attempts": 2}))
    month_spending.count_spending(service.records, before, 9.0, 9)  # a report of the attempt before, which is late
    [month] = service.records.page(Usage, "acme")
    assert (month.usd, month.unpriced, service.get(batch).cost_usd) == (0.5, 1, 0.5)


def raising(error: Exception) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise error

    return call


def taken(queue: Queue, count: int) -> list[Work]:
    """What is next, at most so many."""
    return [work for _ in range(count) if (work := queue.take()) is not None]


def test_one_who_submits_many_does_not_hold_up_anothers_first(records: RecordStore) -> None:
    for _ in range(6):
        submit(records, "many")
    submit(records, "few")
    submit(records, "few")
    queue = Queue(records)
    assert [job.tenant for job in taken(queue, 5)] == ["few", "many", "few", "many", "many"]
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
    assert [job.id for job in taken(queue, 3)] == [due.id, later.id]


def test_quotas_of_jobs_and_sandboxes_hold(records: RecordStore) -> None:
    quotas = Quotas(jobs_at_once=2, sandboxes=3)
    records.insert(Tenant(tenant=TENANTS, id="a", name="a", quotas=quotas))
    first = submit(records, "a", settings={"sandboxes": 2})
    wide = submit(records, "a", settings={"sandboxes": 3})
    narrow = submit(records, "a", settings={"sandboxes": 1})
    submit(records, "a", settings={"sandboxes": 1})
    queue = Queue(records)
    assert [job.id for job in taken(queue, 3)] == [first.id, narrow.id], "two jobs run"
    assert records.get(Work, "a", wide.id) == wide
    alone = submit(records, "b", settings={"sandboxes": 10**6})
    assert [job.id for job in taken(queue, 1)] == [alone.id]


def test_batches_and_steps_wait_for_no_optimization_and_have_the_same_quotas(records: RecordStore) -> None:
    quotas = Quotas(jobs_at_once=2, sandboxes=9)
    records.insert(Tenant(tenant=TENANTS, id="a", name="a", quotas=quotas))
    jobs = [submit(records, "a", settings={"sandboxes": 1}) for _ in range(3)]
    kinds = ("step", "rollouts", "step")
    short = [submit(records, "a", what=what, settings={"sandboxes": 1}, program=ProgramWork()) for what in kinds]
    queue = Queue(records)
    assert [work.id for work in taken(queue, 5)] == [each.id for each in (*short[:2], *jobs[:2])]
    other = submit(records, "b", what="step", settings={"sandboxes": 9}, program=ProgramWork())
    assert Queue(records, at_once=2).take() is None, "as many run in each lane as may"
    assert [work.id for work in taken(queue, 1)] == [other.id]


def test_a_job_waits_with_the_reason_while_its_tenant_has_spent_its_money_of_the_month(records: RecordStore) -> None:
    records.insert(Tenant(tenant=TENANTS, id="a", name="a", quotas=Quotas(usd_per_month=2.0)))
    for tenant, usd in (("a", 2.5), ("b", 9.0)):
        records.insert(Usage(tenant=tenant, id=month_spending.month_id(now()), usd=usd))
    mine, other = submit(records, "a"), submit(records, "b")
    queue = Queue(records)
    assert [job.id for job in taken(queue, 2)] == [other.id]
    waiting = now_of(records, mine)
    assert (waiting.status, "usd_per_month" in (waiting.reason or "")) == ("pending", True)
    assert records.remove(Usage, "a") == 1
    assert [(job.id, job.reason) for job in taken(queue, 1)] == [(mine.id, None)]
