"""The records of one attempt: what it gets from the service, what it reports, and how the end of the work is written.

Any process of the service may take each report: all that counts is read from the records.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from evolverpc_common.redaction import Secrets
from gepa_service.jobs.kept_results import KeptResults, KeptRun, NotEnded
from gepa_service.jobs.messages import Begun, Ended, LogLines, Report, Spent, Stopped, Wanted, failed
from gepa_service.jobs.month_spending import NOTHING_LEFT, has_spent_all
from gepa_service.model.work import ENDED, LogChunk, LogLine, Status, Work
from gepa_service.records import RecordChanged, RecordExists, RecordsUnavailable, TenantRecords, changed, new_id, now
from gepa_service.repositories.destinations import DestinationRefused
from gepa_service.secrets.envelope import SecretDamaged
from gepa_service.secrets.master_key import MasterKeyError
from gepa_service.service import Service
from gepa_service.webhooks import announce
from sandbox_runtime.api.sandbox import SandboxError

PATIENCE_S = 20.0
"""Seconds for which the end of work is written again while the database is away: it may have taken minutes to read."""

TICK_S = 0.1
MOST_SETBACKS = 5
LONGEST_DELAY_S = 60.0


class _Lost(Exception):
    """The work is not, or no longer, that of this attempt."""


class AttemptRecords:
    """The side of the service, of the attempt `number` at a work. As of `AttemptService`."""

    def __init__(self, service: Service, tenant: str, work_id: str, number: int) -> None:
        self._service, self._tenant, self._id, self._number = service, tenant, work_id, number
        self._present: KeptRun | KeptResults | None = None

    def begin(self) -> Begun | None:
        """As of `AttemptService`. What prevents the work from being begun is recorded."""
        with contextlib.suppress(_Lost):
            work = self._mine()
            if work.wanted == "pause":
                self._conclude({"status": "paused", "reason": "paused on request"})
                return None
            if work.setbacks > MOST_SETBACKS:
                self._give_up(work.setbacks, "its attempts ended before the work was over")
                return None
            try:
                return self._begun(work)
            except DestinationRefused as error:
                self._end(failed("repository", str(error)))
            except (MasterKeyError, SecretDamaged) as error:
                self._end(failed("secrets", str(error)))
            except SandboxError as error:
                self._set_back(str(error))
        return None

    def report(self, report: Report) -> Wanted:
        """As of `AttemptService`. After cancelled work, what it has spent and printed is taken still."""
        try:
            work = self._own()
            for each in report.logs:
                self._log(each)
            if work.status == "cancelled":
                self._settle(work, report)
            self._mine(work)
            if isinstance(report.message, Ended):
                self._record(work, report, report.message)
                self._present = None
                return Wanted(is_over=True)
            if report.message is not None:
                self._kept(work).take(report.message)
            if report.progress:
                self._kept(work).count()
                work = self._changed(self._further)
            return self._wanted(work)
        except _Lost:
            self._present = None
            return Wanted(is_over=True)

    # --- what is given out --------------------------------------------------------------------------------------------

    def _begun(self, work: Work) -> Begun:
        """Return what the attempt gets. Raises as `git_configuration` and `revealed` of `Service`."""
        git, revealed = self._service.git_configuration(work), self._service.revealed(work.tenant)
        kept = self._kept(work)
        done = kept.begin()
        work = self._changed(lambda found: found.model_copy(update=kept.changes(found, "running")))
        if work.attempts == 1:
            announce(TenantRecords(self._service.records, self._tenant), work)
        return Begun(
            work=work,
            token=self._service.job_tokens.issue(work),
            git=git,
            secrets=dict(revealed.variables),
            headers=revealed.headers,
            redacted=revealed.values,
            allow_networks=tuple(map(str, self._service.repositories.allow_networks)),
            done=done,
        )

    def _wanted(self, work: Work) -> Wanted:
        stop: Stopped | None = "pause" if work.wanted == "pause" else None
        if stop is None and work.what != "step":  # what a step has done would be lost
            stop = "money" if has_spent_all(self._service.records, work.tenant) else None
        tokens = self._service.job_tokens
        return Wanted(stop=stop, token=tokens.issue(work), attempt_token=tokens.issue(work, role="attempt"))

    # --- the record ---------------------------------------------------------------------------------------------------

    def _own(self) -> Work:
        """Return the record, if no other attempt has begun. Raises `_Lost`."""
        found = self._service.records.get(Work, self._tenant, self._id)
        if found is None or found.attempts != self._number:
            raise _Lost
        return found

    def _mine(self, found: Work | None = None) -> Work:
        """Return the record, that of `found` or as it is now, if the attempt runs. Raises `_Lost`."""
        found = found or self._own()
        if found.attempts != self._number or found.status != "running":
            raise _Lost
        return found

    def _kept(self, work: Work) -> KeptRun | KeptResults:
        if self._present is None:
            self._present = (KeptRun if work.what == "optimize" else KeptResults)(self._service, work)
        return self._present

    def _log(self, logs: LogLines) -> None:
        with contextlib.suppress(RecordExists):  # it was delivered before
            self._service.records.insert(LogChunk(tenant=self._tenant, id=logs.id, job_id=self._id, lines=logs.lines))

    def _add_line(self, text: str) -> None:
        self._log(LogLines(id=new_id("log"), lines=(LogLine(at=now(), source="attempt", text=text),)))

    def _further(self, found: Work) -> Work:
        """Return the record with how far the work is, itself if that is no news."""
        kept = self._kept(found)
        changes = kept.changes(found, found.status)
        if found.setbacks and kept.is_further(found):
            changes["setbacks"] = 0
        changed = found.model_copy(update=changes)
        return found if changed == found else changed

    def _settle(self, work: Work, report: Report) -> None:
        """Count what the process of cancelled work has spent, and state in the record how far it came."""
        kept = self._kept(work)
        kept.count()
        if isinstance(report.message, Spent):
            kept.take(report.message)
        with contextlib.suppress(RecordChanged):  # it was deleted
            changed(self._service.records, self._own(), self._further)

    def _record(self, work: Work, report: Report, ended: Ended) -> None:
        """Record how the work ended."""
        if ended.status in ("completed", "failed"):
            self._end(ended, Secrets(report.redacted, declared=True))
        elif ended.status == "cancelled":
            self._conclude({"status": "cancelled", "reason": ended.reason})
        elif work.wanted == "pause":
            self._conclude({"status": "paused", "reason": "paused on request"})
        elif report.stopped == "service":
            self._conclude({"status": "pending", "reason": "the service was stopped"})
        elif report.stopped == "money":
            self._conclude({"status": "pending", "reason": NOTHING_LEFT})
        elif ended.status == "paused":
            self._conclude({"status": "paused", "reason": ended.reason})
        else:
            self._set_back(ended.reason or "interrupted", ended.failure)

    def _end(self, ended: Ended, secrets: Secrets | None = None) -> None:
        try:
            changes = self._kept(self._mine()).ended(ended, secrets or Secrets(), self._add_line)
        except NotEnded as error:
            self._set_back(str(error))
        else:
            self._conclude(changes)

    def _set_back(self, reason: str, failure: Mapping[str, Any] | None = None) -> None:
        """Let the work be tried again later, unless it was interrupted too often without getting any further.

        `failure`: as of `Ended`.
        """
        work = self._mine()
        setbacks = 1 if self._kept(work).is_further(work) else work.setbacks + 1
        if setbacks > MOST_SETBACKS:
            self._give_up(setbacks, reason, failure)
            return
        later = now() + timedelta(seconds=min(0.25 * 2**setbacks, LONGEST_DELAY_S))
        self._conclude({"status": "pending", "reason": reason, "setbacks": setbacks, "not_before": later})

    def _give_up(self, setbacks: int, reason: str, failure: Mapping[str, Any] | None = None) -> None:
        message = f"it was interrupted {setbacks} times before it got any further, at last because: {reason}"
        recorded = {"kind": "run", **(failure or {}), "message": message}
        self._end(Ended(status="failed", reason=message, failure=recorded))

    def _conclude(self, changes: Mapping[str, Any]) -> None:
        status: Status = changes["status"]
        with contextlib.suppress(RecordsUnavailable):  # what is not counted is at most of some seconds
            self._kept(self._mine()).count()

        def concluded(found: Work) -> Work:
            kept = {**self._kept(found).changes(found, status), **changes}
            return found.model_copy(update={**kept, "completed": now()} if status in ENDED else kept)

        work = self._changed(concluded, PATIENCE_S)
        announce(TenantRecords(self._service.records, self._tenant), work)
        self._add_line(f"{work.status}: {work.reason}" if work.reason else work.status)

    def _changed(self, change: Callable[[Work], Work], patience_s: float = 0.0) -> Work:
        until = time.monotonic() + patience_s
        while True:
            try:
                return changed(self._service.records, self._mine(), lambda found: change(self._mine(found)))
            except RecordChanged:
                raise _Lost from None
            except RecordsUnavailable:
                if time.monotonic() >= until:
                    raise
                time.sleep(TICK_S)
