"""One attempt at a work: its process, and how its outcome is recorded."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from evolverpc_common.files import remove_tree, replace_file
from evolverpc_common.redaction import Secrets
from gepa_client.errors import JournalError
from gepa_client.run.output_folder import LOG as RUN_LOG
from gepa_service.jobs.announcements import announce
from gepa_service.jobs.front_port import opened_front
from gepa_service.jobs.hosts import HostKey
from gepa_service.jobs.job_environment import basic_environment, cache_of
from gepa_service.jobs.job_logs import JobLogs
from gepa_service.jobs.kept import Kept, ResultsUnread
from gepa_service.jobs.kept_results import KeptResults
from gepa_service.jobs.kept_run import KeptRun
from gepa_service.jobs.month_spending import NOTHING_LEFT
from gepa_service.jobs.parts import AttemptParts, folder_of
from gepa_service.jobs.work_order import Ended, Front, Message, Order, ProgramOrder, Spent, failed
from gepa_service.jobs.work_process import TICK_S, RunningWork, WorkProcess
from gepa_service.model.work import ENDED, Status, Work
from gepa_service.records.record import now
from gepa_service.records.store import RecordChanged, RecordError, RecordsUnavailable, TenantRecords, changed
from gepa_service.repositories.destinations import DestinationRefused
from gepa_service.secrets.envelope import SecretDamaged
from gepa_service.secrets.master_key import MasterKeyError
from sandbox_runtime.api.sandbox import SandboxError

LOOK_S = 0.5
"""Seconds between two looks at the work's record: cancelled work ends within this and a tick."""

LOGS_S = 2.0
"""Seconds between two copies of what the processes printed."""

PROGRESS_S = 2.0
"""Seconds between two records of how far the work is."""

AWAY_S = 60.0
"""Seconds without the records after which an attempt gives up, as the next one may have been placed."""

STOP_S = 90.0
"""Seconds that a process may take to end after it was asked to."""

CANCEL_S = 15.0
MOST_SETBACKS = 5
GIT = "gitconfig"
LONGEST_DELAY_S = 60.0


class _Lost(Exception):
    """The work is no longer this attempt's: it was cancelled, or another attempt has begun."""


class Attempt:
    """Do work until it ends, is stopped, or is lost. Call `run` in a thread of its own.

    `stop`: set to have the work handed back. `has_spent_all`: whether the money of a tenant's month is spent; the work
    then waits in the queue again.
    """

    def __init__(
        self, parts: AttemptParts, work: Work, stop: threading.Event, has_spent_all: Callable[[str], bool]
    ) -> None:
        self._parts = parts
        self._work = work
        self._stop = stop
        self._has_spent_all = has_spent_all
        self._is_out_of_money = False
        self._folder = folder_of(parts, work)
        self._kept: Kept
        self._secrets = Secrets()
        self._logs = JobLogs(parts.records, work, {}, self._secrets)
        self._written = self._looked = time.monotonic()
        self._copied = 0.0
        self._stopped: float | None = None

    def run(self) -> None:
        """Run it. What keeps the records from being read or written ends the attempt; the next one continues it."""
        with contextlib.suppress(_Lost):
            self._look()
            self._kept = (KeptRun if self._work.what == "optimize" else KeptResults)(self._parts, self._work)
            if self._work.wanted == "pause":
                self._conclude({"status": "paused", "reason": "paused on request"})
                return
            if self._work.setbacks > MOST_SETBACKS:
                self._set_back("its attempts ended before the work was over")
                return
            if self._work.attempts == 1:
                announce(TenantRecords(self._parts.records, self._work.tenant), self._work)
            try:
                ended = self._process()
            except DestinationRefused as error:
                ended = failed("repository", str(error))
            except (MasterKeyError, SecretDamaged) as error:
                ended = failed("secrets", str(error))
            except SandboxError as error:
                ended = Ended(status="interrupted", reason=str(error))
            self._record(ended)

    # --- the process --------------------------------------------------------------------------------------------------

    def _process(self) -> Ended:
        with opened_front(self._parts.forward) as front:
            return self._processed(front)

    def _processed(self, front: Front | None) -> Ended:
        with contextlib.ExitStack() as after:
            after.callback(self._clean)
            process = self._begun(*self._prepared(front))
            after.callback(process.end, STOP_S)
            try:
                return self._watched(process)
            except (_Lost, RecordError):
                process.end(CANCEL_S, at_once=True)
                self._settle(process)
                raise

    def _begun(self, order: Order, git: Path) -> RunningWork:
        """Begin the work: an optimization in a process of its own."""
        environment = self._environment(git)
        if isinstance(order, ProgramOrder):
            work, parts = self._work, self._parts
            key = HostKey.of(work.tenant, work.repo_url, order)
            return parts.hosts.begin(key, order, environment, git.read_text(), self._secrets, parts.folder)
        with (self._folder / "job.log").open("ab") as log:
            process = WorkProcess(environment, self._folder, log, self._secrets)
        process.begin(order)
        return process

    def _clean(self) -> None:
        self._kept.close()
        (self._folder / GIT).unlink(missing_ok=True)
        self._logs.write(last=True)
        for earlier in range(1, self._work.attempts):
            remove_tree(folder_of(self._parts, self._work, earlier))
        remove_tree(self._folder / "tmp" if self._work.what == "optimize" else self._folder)

    def _environment(self, git: Path) -> dict[str, str]:
        own = {"GIT_CONFIG_GLOBAL": str(git), "GIT_CONFIG_NOSYSTEM": "1"}
        cache = cache_of(self._work.tenant, self._parts.cache)
        basic = basic_environment(self._folder, at_modal=self._parts.sandbox == "modal")
        return {**basic, **own, "XDG_CACHE_HOME": str(cache)}

    def _watched(self, process: RunningWork) -> Ended:
        """Keep what the process reports while it runs; return how it ended."""
        last: Ended | None = None
        held: Message | None = None
        late = time.monotonic() + self._kept.longest_s
        while held is not None or not process.is_silent:
            self._keep(process)
            if time.monotonic() > late:
                process.end(CANCEL_S, at_once=True)
                last, late = failed("run", f"it took longer than {self._kept.longest_s:g} s"), math.inf
            held = held or process.next()
            if isinstance(held, Ended):
                last = last or held
            elif held is not None:
                try:
                    self._kept.take(held)
                except RecordsUnavailable:  # `_keep` raises it in the end
                    time.sleep(TICK_S)
                    continue
            held = None
        return last or Ended(status="interrupted", reason="the process ended before its work was over")

    def _keep(self, process: RunningWork) -> None:
        moment = time.monotonic()
        stops_now = self._stop.is_set() and self._stopped is None
        try:
            if moment - self._looked >= LOOK_S or stops_now:  # the work may have been cancelled
                self._look()
                self._looked = moment
                if moment - self._written >= PROGRESS_S:
                    self._write_progress()
                    self._written = moment
        except RecordsUnavailable:
            if moment - self._looked > AWAY_S:
                raise
        self._kept.keep()
        if moment - self._copied >= LOGS_S:
            self._copied = moment
            self._logs.write()
        if self._stop.is_set() or self._work.wanted == "pause" or self._is_out_of_money:
            if self._stopped is None:
                self._stopped = moment
                process.stop()
            elif moment - self._stopped > STOP_S:
                process.end(0.0, at_once=True)

    def _look(self) -> None:
        """Read the record, and what the tenant has spent. Raises `_Lost`."""
        found = self._parts.records.get(Work, self._work.tenant, self._work.id)
        if found is None:
            raise _Lost
        self._work = self._mine(found)
        if self._work.what != "step":  # what a step has done would be lost
            with contextlib.suppress(JournalError):  # it cannot be read now
                self._is_out_of_money = self._is_out_of_money or self._has_spent_all(self._work.tenant)

    def _settle(self, process: RunningWork) -> None:
        """Count what the ended process has spent, and state in the record of cancelled work how far it came."""
        while not process.is_silent:
            message = process.next()
            if isinstance(message, Spent):
                self._kept.take(message)

        def settled(found: Work) -> Work:
            if found.status != "cancelled" or found.attempts != self._work.attempts:
                return found
            return found.model_copy(update=self._kept.changes(found, found.status))

        found = self._parts.records.get(Work, self._work.tenant, self._work.id)
        if found is not None:
            with contextlib.suppress(RecordChanged):  # it was deleted
                changed(self._parts.records, found, settled)

    def _prepared(self, front: Front | None) -> tuple[Order, Path]:
        """Return the order, and the file of git's configuration. Raises as `GitAccess.configuration` and `secrets`."""
        work, parts, folder = self._work, self._parts, self._folder
        configuration, revealed = parts.git.configuration(work), parts.secrets(work.tenant)
        for path in (folder, folder / "home", folder / "tmp"):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        git = folder / GIT
        replace_file(git, configuration, mode=0o600)
        printed = {"job": folder / "job.log", "driver": folder / "results" / RUN_LOG}
        self._secrets = Secrets(revealed.values, declared=True)
        self._logs = JobLogs(parts.records, work, printed, self._secrets)
        self._logs.add(f"attempt {work.attempts} begins")
        settings = {**work.settings, "sandbox": parts.sandbox, "repo": work.repo_url}
        if work.ref is not None:
            settings["ref"] = work.ref
        if revealed.headers:
            settings["secret_headers"] = [*settings.get("secret_headers", []), *revealed.headers]
        common = {
            "id": work.id,
            "front": front,
            "secrets": dict(revealed.variables),
            "redacted": revealed.values,
            "allow_networks": tuple(map(str, parts.git.policy.allow_networks)),
        }
        return self._kept.order(folder, settings, common), git

    # --- the record ---------------------------------------------------------------------------------------------------

    def _mine(self, found: Work) -> Work:
        if found.attempts != self._work.attempts or found.status != "running":
            raise _Lost
        return found

    def _write_progress(self) -> None:
        """Write how far the work is, if that is news. Raises `_Lost`."""

        def further(found: Work) -> Work:
            changes = self._kept.changes(self._mine(found), "running")
            if found.setbacks and self._kept.is_further:
                changes["setbacks"] = 0
            changed = found.model_copy(update=changes)
            return found if changed == found else changed

        self._work = self._changed(further)

    def _record(self, ended: Ended) -> None:
        """Record how the work ended."""
        if ended.status in ("completed", "failed"):
            self._end(ended)
        elif ended.status == "cancelled":
            self._conclude({"status": "cancelled", "reason": ended.reason})
        elif self._work.wanted == "pause":
            self._conclude({"status": "paused", "reason": "paused on request"})
        elif self._stop.is_set():
            self._conclude({"status": "pending", "reason": "the service was stopped"})
        elif self._is_out_of_money:
            self._conclude({"status": "pending", "reason": NOTHING_LEFT})
        elif ended.status == "paused":
            self._conclude({"status": "paused", "reason": ended.reason})
        else:
            self._set_back(ended.reason or "interrupted", ended.failure)

    def _end(self, ended: Ended) -> None:
        try:
            changes = self._kept.ended(ended, self._secrets, self._logs.add)
        except ResultsUnread as error:
            self._set_back(str(error))
        else:
            self._conclude(changes)

    def _set_back(self, reason: str, failure: Mapping[str, Any] | None = None) -> None:
        """Let the work be tried again later, unless it was interrupted too often without getting any further.

        `failure`: as of `Ended`.
        """
        setbacks = 1 if self._kept.is_further else self._work.setbacks + 1
        if setbacks > MOST_SETBACKS:
            message = f"it was interrupted {setbacks} times before it got any further, at last because: {reason}"
            recorded = {"kind": "run", **(failure or {}), "message": message}
            self._end(Ended(status="failed", reason=message, failure=recorded))
            return
        later = now() + timedelta(seconds=min(0.25 * 2**setbacks, LONGEST_DELAY_S))
        self._conclude({"status": "pending", "reason": reason, "setbacks": setbacks, "not_before": later})

    def _conclude(self, changes: Mapping[str, Any]) -> None:
        status: Status = changes["status"]

        def concluded(found: Work) -> Work:
            self._mine(found)
            kept = {**self._kept.changes(found, status), **changes}
            return found.model_copy(update={**kept, "completed": now()} if status in ENDED else kept)

        self._work = self._changed(concluded, AWAY_S)  # what it has done would be lost
        self._logs.add(f"{self._work.status}: {self._work.reason}" if self._work.reason else self._work.status)
        self._logs.write(last=True)
        announce(TenantRecords(self._parts.records, self._work.tenant), self._work)

    def _changed(self, change: Callable[[Work], Work], patience_s: float = 0.0) -> Work:
        until = time.monotonic() + patience_s
        while True:
            try:
                return changed(self._parts.records, self._work, change)
            except RecordChanged:
                raise _Lost from None
            except RecordsUnavailable:
                if time.monotonic() >= until:
                    raise
                time.sleep(TICK_S)
