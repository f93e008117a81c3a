"""Work on programs, in the worker: it claims batches and steps in turn, and starts a process for each."""

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolverpc_common.redaction import Secrets
from gepa_client.errors import JournalError
from gepa_client.settings.groups import SandboxKind
from gepa_service.jobs.attempt import Revealed
from gepa_service.jobs.front_port import Forward, opened_front
from gepa_service.jobs.job_environment import basic_environment, cache_of
from gepa_service.jobs.job_order import Front
from gepa_service.jobs.month_spending import NOTHING_LEFT
from gepa_service.jobs.program_claim import ClaimedWork
from gepa_service.jobs.program_messages import WorkOrder
from gepa_service.jobs.program_process import ProgramProcess
from gepa_service.jobs.program_run import MOST_ATTEMPTS, ProgramRun
from gepa_service.model.job import JobClaim
from gepa_service.model.rollouts import ProgramWork
from gepa_service.records.record import now
from gepa_service.records.store import LARGEST_PAGE, RecordChanged, RecordStore, RecordsUnavailable
from gepa_service.repositories.policy import RepositoryPolicy
from gepa_service.repositories.repository_access import RepositoryRefused, allowed_repository, git_configuration
from gepa_service.secrets.envelope import SecretDamaged
from gepa_service.secrets.master_key import MasterKeyError
from sandbox_runtime.api.sandbox import SandboxError

IDLE_S = 0.2
RETRY_S = 2.0
LEASE_S = 20.0
"""Seconds without a beat, by the watching worker's own clock, after which work is taken over."""


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
                stop.wait(RETRY_S)

    def once(self, stop: threading.Event) -> bool:
        """Do one batch or step, if there is one; return whether there was. Raises `RecordsUnavailable`."""
        work = self._claimed()
        if work is None:
            return False
        self.is_busy = True
        try:
            self._do(ClaimedWork(self._records, work, self._name), stop)
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

    def _do(self, claimed: ClaimedWork, stop: threading.Event) -> None:
        work = claimed.record
        if work.wanted == "cancel":
            claimed.end("cancelled", "cancelled")
            return
        if work.attempts > MOST_ATTEMPTS:
            claimed.end("failed", f"{MOST_ATTEMPTS} workers died over it")
            return
        with tempfile.TemporaryDirectory(prefix="gepa-work-") as folder:
            try:
                environment = self._environment(work, Path(folder))
                revealed = self._machine.secrets(work.tenant)
            except (RepositoryRefused, SandboxError, MasterKeyError, SecretDamaged) as error:
                claimed.end("failed", str(error))
                return
            with opened_front(self._machine.forward) as front:
                order = self._order(claimed, front, revealed)
                process = ProgramProcess(environment, Path(folder), Secrets(revealed.values, declared=True))
                ProgramRun(claimed, process, order, self._has_spent_all).to_end(stop)

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

    def _order(self, claimed: ClaimedWork, front: Front | None, revealed: Revealed) -> WorkOrder:
        """Return what the process does: the tasks that have no result yet."""
        work = claimed.record
        tasks = tuple((index, task) for index, task in enumerate(work.tasks) if index not in claimed.results)
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
