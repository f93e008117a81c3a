"""One job as a worker runs it: its process, its claim and its token, and how its outcome is recorded."""

import contextlib
import json
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from evolverpc_common.files import remove_tree, replace_file
from evolverpc_common.redaction import Secrets
from gepa_client.errors import JournalError, NoSuchRun
from gepa_client.evolution.checkout import CheckoutError
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.history import seed_score
from gepa_client.journal.store import Store
from gepa_client.run.output_folder import LOG as RUN_LOG
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.jobs.announcements import announce
from gepa_service.jobs.control import BUDGETS
from gepa_service.jobs.front_port import Forward, opened_front
from gepa_service.jobs.git_access import GitAccess
from gepa_service.jobs.job_environment import basic_environment, cache_of
from gepa_service.jobs.job_logs import JobLogs
from gepa_service.jobs.job_order import Ended, Front, JobOrder
from gepa_service.jobs.job_starter import JobProcess, JobStarter
from gepa_service.jobs.month_spending import NOTHING_LEFT, month_of
from gepa_service.jobs.new_version import program_of, with_code
from gepa_service.model.job import Job, JobProgress
from gepa_service.model.program_version import Program
from gepa_service.records.record import now
from gepa_service.records.store import (
    RecordChanged,
    RecordError,
    RecordExists,
    RecordStore,
    RecordsUnavailable,
    TenantRecords,
    changed,
)
from gepa_service.repositories.repository_access import RepositoryRefused
from sandbox_runtime.api.sandbox import SandboxError

TICK_S = 0.1
LOOK_S = 0.5
"""Seconds between two looks at the job's record: a cancelled job ends within this and a tick."""

LOGS_S = 2.0
"""Seconds between two copies of what a job's processes printed."""

RENEW_S = 240.0
"""Seconds after which the token is renewed; it is valid for several times as long."""

BEATS_PER_LEASE = 5
STOP_S = 90.0
"""Seconds that a job process may take to end after it was asked to."""

CANCEL_S = 15.0
MOST_SETBACKS = 5
TRIES_OF_CODE = 2
LONGEST_DELAY_S = 60.0


@dataclass(frozen=True)
class Revealed:
    """A tenant's secrets for a job, batch or step: variables by name, and entries of `secret_headers`.

    `unused`: the values of secrets that no process is given.
    """

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: tuple[str, ...] = ()
    unused: tuple[str, ...] = field(default=(), repr=False)

    @property
    def values(self) -> tuple[str, ...]:
        """Every value, which nothing that is kept may hold."""
        return (*self.variables.values(), *self.unused)


@dataclass(frozen=True)
class WorkerParts:
    """What all jobs of a worker share.

    `api`: the address of the API, as this machine reaches it. `folder`: for the folders of jobs. `cache`: of
    fetched repositories and built environments, by tenant. `lease_s`: after how long without a beat others may take a
    job over. `sandbox`: the backend. `secrets`: returns a tenant's.
    `git`: how repositories are read. `forward`: with the backend `modal`, makes a port of this machine reachable from
    there, and gives its address.
    """

    name: str
    records: RecordStore
    journals: Store
    tokens: JobTokens
    api: str
    folder: Path
    cache: Path
    lease_s: float
    git: GitAccess
    sandbox: str = "bubblewrap"
    secrets: Callable[[str], Revealed] = lambda _tenant: Revealed()
    forward: Forward | None = None


class _Lost(Exception):
    """The job is no longer this worker's to run: it was cancelled, or another worker claimed it."""


class Attempt:
    """Run a claimed job until it ends, is stopped, or is lost. Call `run` in a thread of its own.

    `has_spent_all`: whether the money of a tenant's month is spent; the job then waits in the queue again.
    """

    def __init__(
        self,
        parts: WorkerParts,
        job: Job,
        draining: threading.Event,
        starter: JobStarter,
        has_spent_all: Callable[[str], bool],
    ) -> None:
        self._parts = parts
        self._starter = starter
        self._job = job
        self._draining = draining
        self._has_spent_all = has_spent_all
        self._is_out_of_money = False
        self._folder = parts.folder / job.id
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._secrets = Secrets()
        self._logs = JobLogs(parts.records, job, {}, self._secrets)
        self._beaten = self._looked = self._renewed = self._copied = self._counted = 0.0
        self._stopped: float | None = None

    def run(self) -> None:
        """Run it. What keeps the records from being read or written ends the attempt; another worker continues it."""
        with contextlib.suppress(_Lost):
            if self._job.wanted == "pause":
                self._conclude({"status": "paused", "reason": "paused on request"})
                return
            if self._job.attempts == 1:
                announce(TenantRecords(self._parts.records, self._job.tenant), self._job)
            before = self._release_run()
            try:
                ended = self._process()
            except RepositoryRefused as error:
                failure = {"kind": "repository", "message": str(error)}
                ended = Ended(status="failed", reason=str(error), failure=failure)
            except SandboxError as error:
                ended = Ended(status="interrupted", reason=str(error))
            self._record(ended, before)

    # --- the process --------------------------------------------------------------------------------------------------

    def _process(self) -> Ended:
        with opened_front(self._parts.forward) as front:
            return self._processed(front)

    def _processed(self, front: Front | None) -> Ended:
        order, git = self._prepared(front)
        log = (self._folder / "job.log").open("ab")
        with log:
            process = self._starter.start(self._environment(git), self._folder, log)
        assert process.stdin is not None  # noqa: S101  a pipe
        assert process.stdout is not None  # noqa: S101  a pipe
        threading.Thread(target=self._read, args=(process.stdout,), name=f"messages of {self._job.id}").start()
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(order.model_dump_json().encode() + b"\n")
                process.stdin.flush()
            return self._watched(process)
        except (_Lost, RecordError):
            self._end(process, CANCEL_S, at_once=True)
            raise
        finally:
            self._end(process, STOP_S)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            (self._folder / "token").unlink(missing_ok=True)
            git.unlink(missing_ok=True)
            self._logs.write(last=True)
            if self._stopped is None:
                remove_tree(self._folder / "tmp")

    def _environment(self, git: Path) -> dict[str, str]:
        own = {"GIT_CONFIG_GLOBAL": str(git), "GIT_CONFIG_NOSYSTEM": "1"}
        cache = cache_of(self._job.tenant, self._parts.cache)
        basic = basic_environment(self._folder, at_modal=self._parts.sandbox == "modal")
        return {**basic, **own, "XDG_CACHE_HOME": str(cache)}

    def _watched(self, process: JobProcess) -> Ended:
        """Keep the claim and the token while the process runs; return how it ended."""
        last: Ended | None = None
        while True:
            self._keep(process)
            try:
                line = self._messages.get(timeout=TICK_S)
            except queue.Empty:
                continue
            if line is None:
                break
            with contextlib.suppress(ValidationError):  # nothing else is written by our own process
                last = Ended.model_validate_json(self._secrets.redact_json(line))
        return last or Ended(status="interrupted", reason="the job process ended before its job was over")

    def _keep(self, process: JobProcess) -> None:
        moment = time.monotonic()
        try:
            if moment - self._beaten >= self._parts.lease_s / BEATS_PER_LEASE:
                self._beat()
                self._beaten = self._looked = moment
            elif moment - self._looked >= LOOK_S:
                self._job = self._found()
                self._looked = moment
            if moment - self._counted >= LOOK_S:
                self._counted = moment
                with contextlib.suppress(JournalError):  # it cannot be read now
                    self._is_out_of_money = self._is_out_of_money or self._has_spent_all(self._job.tenant)
        except RecordsUnavailable:  # the database may come back before others may take the job over
            if self._beaten and moment - self._beaten > self._parts.lease_s:
                raise
        if moment - self._renewed >= RENEW_S:
            self._write_token()
        if moment - self._copied >= LOGS_S:
            self._copied = moment
            self._logs.write()
        if self._draining.is_set() or self._job.wanted == "pause" or self._is_out_of_money:
            if self._stopped is None:
                self._stopped = moment
                process.send_signal(signal.SIGTERM)
            elif moment - self._stopped > STOP_S:
                self._end(process, 0.0, at_once=True)

    def _end(self, process: JobProcess, patience_s: float, *, at_once: bool = False) -> None:
        """End the process. `at_once`: examples in flight are given up; sandboxes are ended if there is time."""
        if process.poll() is None and at_once:
            process.send_signal(signal.SIGTERM)
            time.sleep(TICK_S)
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            self._messages.put(line)
        self._messages.put(None)
        lines.close()

    def _prepared(self, front: Front | None) -> tuple[JobOrder, Path]:
        """Return the order, and the file of git's configuration. Raises as `GitAccess.configuration`."""
        job, parts, folder = self._job, self._parts, self._folder
        for path in (folder, folder / "home", folder / "tmp"):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        git = folder / "gitconfig"
        replace_file(git, parts.git.configuration(job), mode=0o600)
        self._write_token()
        revealed = parts.secrets(job.tenant)
        printed = {"job": folder / "job.log", "driver": folder / "results" / RUN_LOG}
        self._secrets = Secrets(revealed.values, declared=True)
        self._logs = JobLogs(parts.records, job, printed, self._secrets)
        self._logs.add(f"attempt {job.attempts} begins")
        settings = {name: value for name, value in job.settings.items() if name not in BUDGETS}
        settings |= {"sandbox": parts.sandbox, "repo": job.repo_url}
        if job.ref is not None:
            settings["ref"] = job.ref
        if revealed.headers:
            settings["secret_headers"] = [*settings.get("secret_headers", []), *revealed.headers]
        order = JobOrder(
            run_id=job.id,
            api=parts.api,
            folder=folder,
            token_file=folder / "token",
            settings=settings,
            budget={name: job.settings[name] for name in BUDGETS if job.settings.get(name) is not None},
            isolated=parts.sandbox == "bubblewrap",
            front=front,
            secrets=dict(revealed.variables),
            redacted=revealed.values,
            allow_networks=tuple(map(str, parts.git.policy.allow_networks)),
        )
        return order, git

    def _write_token(self) -> None:
        replace_file(self._folder / "token", self._parts.tokens.issue(self._job) + "\n", mode=0o600)
        self._renewed = time.monotonic()

    # --- the records --------------------------------------------------------------------------------------------------

    def _release_run(self) -> StoredRun | None:
        """Free the run of a driver whose worker is gone, and whose token ended with that worker's claim."""
        with contextlib.suppress(NoSuchRun):
            run = self._parts.journals.run(self._job.id)
            if run.claim.owner is not None:
                self._parts.journals.release(run.id, run.claim.owner)
            return run
        return None

    def _found(self) -> Job:
        """Return the job as it is now. Raises `_Lost`."""
        found = self._parts.records.get(Job, self._job.tenant, self._job.id)
        if found is None:
            raise _Lost
        return self._mine(found)

    def _mine(self, found: Job) -> Job:
        same = found.claim is not None and found.claim.worker == self._parts.name
        if not same or found.attempts != self._job.attempts or found.status != "running":
            raise _Lost
        return found

    def _beat(self) -> None:
        """Raise the beat and write the progress. Raises `_Lost`."""
        progress, month = self._progress(), month_of(now())

        def beaten(found: Job) -> Job:
            claim = self._mine(found).claim
            assert claim is not None  # noqa: S101  `_mine` has checked it
            raised = claim.model_copy(update={"beat": claim.beat + 1})
            changes: dict[str, Any] = {"claim": raised, "progress": progress or found.progress}
            if found.month != month:
                changes |= {"month": month, "usd_before_month": (progress or found.progress).cost_usd or 0.0}
            return found.model_copy(update=changes)

        self._job = self._changed(beaten)

    def _progress(self) -> JobProgress | None:
        with contextlib.suppress(JournalError):
            return progress_of(self._parts.journals, self._parts.journals.run(self._job.id))
        return None

    def _record(self, ended: Ended, before: StoredRun | None) -> None:
        """Record how the job ended."""
        if ended.status == "completed":
            try:
                program = self._program(ended.artifacts)
            except (JournalError, CheckoutError, RepositoryRefused, SandboxError) as error:
                self._set_back(f"the results cannot be read: {error}", before)
                return
            with contextlib.suppress(RecordExists):  # a worker wrote it that ended before it wrote the job
                self._parts.records.insert(program)
            self._conclude({"status": "completed", "reason": ended.reason, "program_id": program.id, "setbacks": 0})
        elif ended.status == "failed":
            self._conclude({"status": "failed", "reason": ended.reason, "failure": ended.failure})
        elif ended.status == "cancelled":
            self._conclude({"status": "cancelled", "reason": ended.reason})
        elif self._job.wanted == "pause":
            self._conclude({"status": "paused", "reason": "paused on request"})
        elif self._draining.is_set():
            self._conclude({"status": "pending", "reason": "its worker was stopped"})
        elif self._is_out_of_money:
            self._conclude({"status": "pending", "reason": NOTHING_LEFT})
        elif ended.status == "paused":
            self._conclude({"status": "paused", "reason": ended.reason})
        else:
            self._set_back(ended.reason or "interrupted", before, ended.failure)

    def _program(self, artifacts: dict[str, Any]) -> Program:
        """Return the version that the run made, without its change of code if that cannot be read at last.

        Raises:
            JournalError: the run cannot be read. CheckoutError, RepositoryRefused, SandboxError: its code cannot.
        """
        job, parts = self._job, self._parts
        program = program_of(parts.journals, parts.records, job, artifacts)
        try:
            made = with_code(program, parts.journals, partial(parts.git.fetch, job))
            return Program.model_validate_json(self._secrets.redact_json(made.model_dump_json().encode()))
        except (CheckoutError, RepositoryRefused, SandboxError) as error:
            if job.setbacks < TRIES_OF_CODE:
                raise
            self._logs.add(f"the change of the version's code cannot be read: {error}")
            return program

    def _set_back(self, reason: str, before: StoredRun | None, failure: Mapping[str, Any] | None = None) -> None:
        """Let the job be tried again later, unless it was interrupted too often without getting any further.

        `failure`: as of `Ended`.
        """
        was = 0 if before is None else before.counters.get("metric_calls", 0)
        progress = self._progress()
        further = progress is not None and progress.metric_calls > was
        setbacks = 1 if further else self._job.setbacks + 1
        if setbacks > MOST_SETBACKS:
            message = f"it was interrupted {setbacks} times before it got any further, at last because: {reason}"
            recorded = {"kind": "run", **(failure or {}), "message": message}
            self._conclude({"status": "failed", "reason": message, "failure": recorded})
            return
        later = now() + timedelta(seconds=min(0.25 * 2**setbacks, LONGEST_DELAY_S))
        self._conclude({"status": "pending", "reason": reason, "setbacks": setbacks, "not_before": later})

    def _conclude(self, changes: Mapping[str, Any]) -> None:
        progress = self._progress()

        def concluded(found: Job) -> Job:
            self._mine(found)
            kept = {**changes, "claim": None, "progress": progress or found.progress}
            if changes["status"] in ("completed", "failed", "cancelled"):
                kept["completed"] = now()
                if progress is None:  # it ended before it had a run
                    kept["progress"] = found.progress.model_copy(update={"phase": changes["status"]})
            return found.model_copy(update=kept)

        self._job = self._changed(concluded)
        self._logs.add(f"{self._job.status}: {self._job.reason}" if self._job.reason else self._job.status)
        self._logs.write(last=True)
        announce(TenantRecords(self._parts.records, self._job.tenant), self._job)

    def _changed(self, change: Callable[[Job], Job]) -> Job:
        try:
            return changed(self._parts.records, self._job, change)
        except RecordChanged:
            raise _Lost from None


def progress_of(store: Store, run: StoredRun) -> JobProgress:
    """Return how far a run is, from its record."""
    counters, best = run.counters, run.best or {}
    texts = best.get("texts")
    return JobProgress(
        phase=run.status,
        current_iteration=int(counters.get("iteration") or 0),
        metric_calls=int(counters.get("metric_calls") or 0),
        candidates=len(store.candidates(run.id)),
        seed_score=seed_score(store, run),
        best_score=best.get("score"),
        best_candidate=json.loads(json.dumps(texts)) if isinstance(texts, dict) else None,
        cost_usd=counters.get("spent_usd"),
    )
