"""Work on programs, in the worker: it claims batches and steps, starts their processes, and keeps their results."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from gepa_client.errors import JournalError
from gepa_client.settings.groups import SandboxKind
from gepa_service.jobs.attempt import Revealed
from gepa_service.jobs.front_port import Forward, opened_front
from gepa_service.jobs.job_environment import basic_environment, cache_of
from gepa_service.jobs.job_logs import without_secrets
from gepa_service.jobs.job_order import Front
from gepa_service.jobs.month_spending import NOTHING_LEFT, month_id
from gepa_service.jobs.month_usage import add_usage
from gepa_service.jobs.program_messages import (
    MESSAGES,
    StepDone,
    TaskDone,
    WorkFailed,
    WorkLog,
    WorkMessage,
    WorkOrder,
    WorkOver,
    WorkSpent,
)
from gepa_service.model.job import JobClaim
from gepa_service.model.rollouts import WORK_ENDED, ProgramWork, TaskResult, WorkStatus, task_result_id
from gepa_service.model.tenant import Usage
from gepa_service.records.record import now
from gepa_service.records.store import (
    LARGEST_PAGE,
    RecordChanged,
    RecordExists,
    RecordStore,
    RecordsUnavailable,
    TenantRecords,
    changed,
)
from gepa_service.repositories.policy import RepositoryPolicy
from gepa_service.repositories.repository_access import RepositoryRefused, allowed_repository, git_configuration
from gepa_service.secrets.envelope import SecretDamaged
from gepa_service.secrets.master_key import MasterKeyError
from gepa_service.webhooks.outbox import emit
from sandbox_runtime.api.sandbox import SandboxError

IDLE_S = 0.2
BEAT_S = 2.0
LEASE_S = 20.0
"""Seconds without a beat, by the watching worker's own clock, after which work is taken over."""

MOST_ATTEMPTS = 3
END_S = 90.0
"""Seconds that a process may take to end its sandboxes."""

LAST_MESSAGES_S = 1.0
"""Seconds that an ended process's last message may take to be read."""

LATE_S = 300.0
"""Seconds beside `timeout_s` for the start of the sandboxes; then the process is ended."""

KEPT_LOG = 20
"""Lines of a process that the reason of a failure repeats."""

INCONCLUSIVE = frozenset({"infra_error", "cancelled"})
"""Statuses of results that are not of the program."""


@dataclass(frozen=True)
class Machine:
    """What processes of this worker may use.

    `cache`: of fetched repositories and built environments, by tenant. `secrets`: returns a tenant's.
    `git_credentials`: user and password for a repository, None without an installation of the GitHub App. `forward`:
    as of `WorkerParts`.
    """

    sandbox: SandboxKind
    policy: RepositoryPolicy
    cache: Path
    secrets: Callable[[str], Revealed] = field(repr=False)
    git_credentials: Callable[[ProgramWork], tuple[str, str] | None] = field(repr=False)
    forward: Forward | None = None


class ProgramWorker:
    """Does work of all tenants in turn, one at a time. `name`: different for each process and thread.

    `is_busy`: whether it does any now. `has_spent_all`: whether a tenant's money of this month is spent.
    """

    def __init__(self, records: RecordStore, machine: Machine, name: str, has_spent_all: Callable[[str], bool]) -> None:
        self._records, self._machine, self._name = records, machine, name
        self._has_spent_all = has_spent_all
        self._seen: dict[str, tuple[JobClaim, float]] = {}
        self.is_busy = False

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set; what is being done then is left to other workers."""
        while not stop.is_set():
            try:
                if not self.once(stop):
                    stop.wait(IDLE_S)
            except RecordsUnavailable:
                stop.wait(BEAT_S)

    def once(self, stop: threading.Event) -> bool:
        """Do one batch or step, if there is one; return whether there was. Raises `RecordsUnavailable`."""
        work = self._claimed()
        if work is None:
            return False
        self.is_busy = True
        try:
            self._do(work, stop)
        finally:
            self.is_busy = False
        return True

    # --- claims -------------------------------------------------------------------------------------------------------

    def _claimed(self) -> ProgramWork | None:
        """Claim the oldest work of the tenant that has the least under way, or what a dead worker left."""
        under_way = self._records.tenants_with(ProgramWork, {"status": "running"})
        waiting = self._records.tenants_with(ProgramWork, {"status": "queued"})
        for tenant in sorted(waiting, key=lambda each: (under_way.get(each, 0), each)):
            for found in self._records.page(ProgramWork, tenant, {"status": "queued"}, limit=1):
                try:
                    if self._has_spent_all(tenant):
                        self._note(found, NOTHING_LEFT)
                        continue
                except JournalError:  # what jobs have cost cannot be read now
                    continue
                if (work := self._claim(found)) is not None:
                    return work
        return self._taken_over()

    def _note(self, work: ProgramWork, reason: str) -> None:
        """State in the record of queued work why it waits."""
        if work.reason != reason:
            with contextlib.suppress(RecordChanged):
                self._records.replace(work.model_copy(update={"reason": reason}))

    def _taken_over(self) -> ProgramWork | None:
        running = self._records.page(ProgramWork, None, {"status": "running"}, limit=LARGEST_PAGE)
        present = time.monotonic()
        for found in running:
            claim, since = self._seen.get(found.id, (None, present))
            if found.claim is None or claim != found.claim:
                self._seen[found.id] = (found.claim or JobClaim(worker=""), present)
            elif present - since > LEASE_S and (work := self._claim(found)) is not None:
                return work
        self._seen = {each.id: self._seen[each.id] for each in running if each.id in self._seen}
        return None

    def _claim(self, found: ProgramWork) -> ProgramWork | None:
        changes: dict[str, Any] = {
            "status": "running",
            "claim": JobClaim(worker=self._name),
            "started": found.started or now(),
            "reason": None,
        }
        try:
            return self._records.replace(found.model_copy(update={**changes, "attempts": found.attempts + 1}))
        except RecordChanged:
            return None

    # --- one piece of work --------------------------------------------------------------------------------------------

    def _do(self, work: ProgramWork, stop: threading.Event) -> None:
        if work.wanted == "cancel" or work.attempts > MOST_ATTEMPTS:
            cancelled = work.wanted == "cancel"
            reason = "cancelled" if cancelled else f"{MOST_ATTEMPTS} workers died over it"
            self._end(work, "cancelled" if cancelled else "failed", reason)
            return
        with tempfile.TemporaryDirectory(prefix="gepa-work-") as folder:
            try:
                environment = self._environment(work, Path(folder))
                revealed = self._machine.secrets(work.tenant)
            except (RepositoryRefused, SandboxError, MasterKeyError, SecretDamaged) as error:
                self._end(work, "failed", str(error))
                return
            with opened_front(self._machine.forward) as front:
                order = self._order(work, front, revealed)
                _Run(self, work, environment, Path(folder), order).to_end(stop)

    def _environment(self, work: ProgramWork, folder: Path) -> dict[str, str]:
        """Return the environment of the process: what it needs of the machine."""
        repository = allowed_repository(work.repo_url, self._machine.policy)
        configuration = folder / "gitconfig"
        configuration.touch(mode=0o600)
        configuration.write_text(git_configuration(repository, self._machine.git_credentials(work)), encoding="utf-8")
        for name in ("home", "tmp"):
            (folder / name).mkdir()
        return {
            **basic_environment(folder, at_modal=self._machine.sandbox == "modal"),
            "XDG_CACHE_HOME": str(cache_of(work.tenant, self._machine.cache)),
            "GIT_CONFIG_GLOBAL": str(configuration),
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def _end(self, work: ProgramWork, status: WorkStatus, reason: str | None, **more: Any) -> None:
        def change(found: ProgramWork) -> ProgramWork:
            if found.status in WORK_ENDED or found.claim is None or found.claim.worker != self._name:
                return found
            ended = {"status": status, "reason": reason, "completed": now(), "claim": None, **more}
            return found.model_copy(update=ended)

        written = changed(self._records, work, change)
        if written.status == status and work.what == "rollouts":
            counts = {"batch_id": work.id, "done": written.done, "failed": written.failed, "total": len(work.tasks)}
            emit(TenantRecords(self._records, work.tenant), "batch.ended", {**counts, "status": status})

    def _order(self, work: ProgramWork, front: Front | None, revealed: Revealed) -> WorkOrder:
        """Return what the process does: the tasks that have no result yet."""
        done = {each.index for each in self._results(work)}
        tasks = tuple((index, task) for index, task in enumerate(work.tasks) if index not in done)
        headers = [*work.settings.get("secret_headers", []), *revealed.headers]
        return WorkOrder(
            id=work.id,
            what=work.what,
            settings={**work.settings, "sandbox": self._machine.sandbox, "secret_headers": headers},
            candidate=work.candidate,
            mutation=work.mutation,
            tasks=tasks,
            traces=work.traces,
            parallelism=work.parallelism,
            task_timeout_s=work.task_timeout_s,
            timeout_s=work.timeout_s,
            allow_networks=tuple(map(str, self._machine.policy.allow_networks)),
            front=front,
            secrets=dict(revealed.variables),
        )

    def _results(self, work: ProgramWork) -> Iterator[TaskResult]:
        after: str | None = None
        while True:
            page = self._records.page(TaskResult, work.tenant, {"work_id": work.id}, after=after, limit=LARGEST_PAGE)
            yield from page
            if len(page) < LARGEST_PAGE:
                return
            after = page[-1].id


class _Run:
    """The process of one piece of work."""

    def __init__(
        self,
        worker: ProgramWorker,
        work: ProgramWork,
        environment: dict[str, str],
        folder: Path,
        order: WorkOrder,
    ) -> None:
        self._worker, self._work, self._folder, self._order = worker, work, folder, order
        self._lines: queue.SimpleQueue[WorkMessage | None] = queue.SimpleQueue()
        self._log: list[str] = []
        self._results = {each.index: each.result for each in worker._results(work)}
        self._step: dict[str, Any] | None = None
        self._failure: WorkFailed | None = None
        self._over: WorkOver | None = None
        self._spent = self._counted = WorkSpent(usd=0.0, unpriced=0)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gepa_service.jobs.program_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )

    def to_end(self, stop: threading.Event) -> None:
        """Follow the process to its end, or end it if the work is cancelled, is another worker's, or `stop` is set."""
        deadline = time.monotonic() + self._work.timeout_s + LATE_S
        try:
            self._begin()
            beat = time.monotonic()
            while (message := self._next()) is not None or self._process.poll() is None:
                if message is not None:
                    self._take(message)
                    if isinstance(message, WorkOver | WorkFailed):
                        break
                if stop.is_set():
                    return  # another worker takes it over
                if time.monotonic() > deadline:
                    self._failure = WorkFailed(message=f"it took longer than {self._work.timeout_s + LATE_S:g} s")
                    break
                if time.monotonic() - beat >= BEAT_S:
                    beat = time.monotonic()
                    if not self._beat():
                        return
                    if self._waits_for_money():
                        return
            self._count_cost()
            self._finish()
        finally:
            self._kill()
            self._count_cost()

    def _begin(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None, "pipes"  # noqa: S101
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        with contextlib.suppress(BrokenPipeError):  # it has ended, which its output shows
            self._process.stdin.write(self._order.model_dump_json().encode() + b"\n")
            self._process.stdin.close()

    def _read(self, lines: IO[bytes]) -> None:
        with contextlib.suppress(ValueError):  # closed
            for line in lines:
                try:
                    self._lines.put(MESSAGES.validate_json(line))
                except ValidationError:
                    self._lines.put(WorkFailed(message="the process printed what is no message"))
        self._lines.put(None)

    def _next(self) -> WorkMessage | None:
        try:
            return self._lines.get(timeout=BEAT_S / 4)
        except queue.Empty:
            return None

    def _take(self, message: WorkMessage) -> None:
        match message:
            case TaskDone():
                self._keep(message)
            case StepDone():
                self._step = message.result
            case WorkSpent():
                self._spent = message
            case WorkLog():
                self._log = [*self._log, message.text][-KEPT_LOG:]
            case WorkFailed():
                self._failure = message
            case WorkOver():
                self._over = message

    def _keep(self, done: TaskDone) -> None:
        work, records = self._work, self._worker._records
        while done.index not in self._results:
            record = TaskResult(
                tenant=work.tenant,
                id=task_result_id(work.id, len(self._results)),
                work_id=work.id,
                index=done.index,
                result=done.result,
            )
            try:
                records.insert(record)
            except RecordExists:  # written by a worker that was thought dead
                self._results = {each.index: each.result for each in self._worker._results(work)}
            else:
                self._results[done.index] = done.result

    def _counts(self) -> dict[str, int]:
        failed = sum(each["status"] in INCONCLUSIVE for each in self._results.values())
        return {"done": len(self._results), "failed": failed}

    def _count_cost(self) -> None:
        """Add what the process has spent to the tenant's month and to the work."""
        spent, records = self._spent, self._worker._records
        usd, unpriced = spent.usd - self._counted.usd, spent.unpriced - self._counted.unpriced
        if not usd and not unpriced:
            return
        month = Usage(tenant=self._work.tenant, id=month_id(now()), work_usd=usd, work_unpriced=unpriced)
        add_usage(records, month)
        self._counted = spent
        self._work = changed(
            records, self._work, lambda found: found.model_copy(update={"cost_usd": found.cost_usd + usd})
        )

    def _waits_for_money(self) -> bool:
        """Return the tasks of a batch that have no result to the queue if the tenant's money of the month is spent.

        A step continues: what it has done would be lost.
        """
        try:
            if self._work.what != "rollouts" or not self._worker._has_spent_all(self._work.tenant):
                return False
        except JournalError:  # what jobs have cost cannot be read now
            return False
        self._requeue(NOTHING_LEFT, attempts=self._work.attempts - 1)
        return self._work.status == "queued"

    def _requeue(self, reason: str, attempts: int) -> None:
        """Return the work to the queue, unless it is to be cancelled or is another worker's by now."""
        name, counts = self._worker._name, self._counts()

        def change(found: ProgramWork) -> ProgramWork:
            is_ours = found.claim is not None and found.claim.worker == name and found.status == "running"
            if not is_ours or found.wanted == "cancel":
                return found
            waits = {"status": "queued", "claim": None, "reason": reason, "attempts": attempts}
            return found.model_copy(update={**waits, **counts})

        self._work = changed(self._worker._records, self._work, change)

    def _beat(self) -> bool:
        """Write a beat and the progress; return whether the work continues here."""
        self._count_cost()
        name, counts = self._worker._name, self._counts()

        def change(found: ProgramWork) -> ProgramWork:
            if found.claim is None or found.claim.worker != name or found.status != "running":
                return found
            beat = JobClaim(worker=name, beat=found.claim.beat + 1)
            return found.model_copy(update={"claim": beat, **counts})

        self._work = changed(self._worker._records, self._work, change)
        if self._work.wanted == "cancel":
            self._kill()
            self._worker._end(self._work, "cancelled", "cancelled", **self._counts())
            return False
        return self._work.claim is not None and self._work.claim.worker == name and self._work.status == "running"

    def _finish(self) -> None:
        counts = self._counts()
        failure = self._failure or (None if self._over is not None else WorkFailed(message="the process ended early"))
        if failure is not None and failure.interrupted and self._work.attempts < MOST_ATTEMPTS:
            self._requeue(self._without_secrets(failure.message), attempts=self._work.attempts)
        elif failure is not None:
            why = self._without_secrets("\n".join([failure.message, *self._log]))
            status: WorkStatus = "partial" if counts["done"] > counts["failed"] else "failed"
            self._worker._end(self._work, status, why, **counts)
        elif self._work.what == "step":
            self._worker._end(self._work, "completed", None, result=self._step, **counts)
        else:
            reason = "the time of the batch was over" if self._over is not None and self._over.timed_out else None
            whole: WorkStatus = "completed" if not counts["failed"] else "partial"
            nothing = counts["done"] and counts["failed"] == counts["done"]
            self._worker._end(self._work, "failed" if nothing else whole, reason, **counts)

    def _without_secrets(self, text: str) -> str:
        return without_secrets(text, self._order.secrets).strip()

    def _kill(self) -> None:
        """End the process, which ends its sandboxes, and read its last messages; kill it if that takes too long."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with contextlib.suppress(queue.Empty):  # its end was read before
            while (message := self._lines.get(timeout=LAST_MESSAGES_S)) is not None:
                if isinstance(message, WorkSpent | TaskDone):
                    self._take(message)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
