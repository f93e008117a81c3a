"""What is kept of an optimization beside the work's record: its run, and the version that it makes."""

import contextlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from evolverpc_common.git import GitError
from evolverpc_common.redaction import Secrets
from gepa_client.analysis.mutation_outcomes import code_history
from gepa_client.errors import JournalError, NoSuchRun
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.history import seed_score
from gepa_client.journal.store import Store
from gepa_service.jobs.kept import Kept, NotEnded
from gepa_service.jobs.month_spending import count_spending
from gepa_service.jobs.new_version import program_of, with_code
from gepa_service.jobs.work_order import Ended
from gepa_service.model.program_version import Program
from gepa_service.model.work import ENDED, JobProgress, Status, Work
from gepa_service.records import RecordError, RecordExists
from gepa_service.repositories.destinations import DestinationRefused
from gepa_service.service import Service
from sandbox_runtime.api.sandbox import SandboxError

TRIES_OF_CODE = 2


class KeptRun(Kept):
    """Of an optimization."""

    def __init__(self, service: Service, work: Work) -> None:
        self._service, self._work = service, work

    def begin(self) -> frozenset[int]:
        """As of `Kept`: free the run of the attempt before, whose token ended with it."""
        self.count()
        with contextlib.suppress(NoSuchRun):
            run = self._service.store.run(self._work.id)
            if run.claim.owner is not None:
                self._service.store.release(run.id, run.claim.owner)
        return frozenset()

    def is_further(self, found: Work) -> bool:
        """As of `Kept`."""
        progress = self._progress()
        return progress is not None and progress.metric_calls > found.progress.metric_calls

    def changes(self, found: Work, status: Status) -> dict[str, Any]:
        """As of `Kept`."""
        progress = self._progress()
        if progress is None:  # it has no run, or that cannot be read
            ended = {"phase": status} if status in ENDED else {}
            progress = found.progress.model_copy(update=ended)
        return {"progress": progress}

    def count(self) -> None:
        """As of `Kept`: what the journal states."""
        with contextlib.suppress(JournalError, RecordError):  # there is no run yet; or the next report counts it
            spent = self._service.store.spending(self._work.id)
            usd, unpriced = sum(each.cost_usd for each in spent), sum(each.unpriced - each.unreported for each in spent)
            self._work = count_spending(self._service.records, self._work, usd, unpriced)

    def ended(self, ended: Ended, secrets: Secrets, log: Callable[[str], None]) -> dict[str, Any]:
        """As of `Kept`."""
        if ended.status == "failed":
            return {"status": "failed", "reason": ended.reason, "failure": ended.failure}
        try:
            program = self._program(ended.program_json, secrets, log)
        except (JournalError, GitError, DestinationRefused, SandboxError) as error:
            raise NotEnded(f"the results cannot be read: {error}") from error
        with contextlib.suppress(RecordExists):  # an attempt wrote it that ended before it wrote the work
            self._service.records.insert(program)
        return {"status": "completed", "reason": ended.reason, "program_id": program.id, "setbacks": 0}

    def _progress(self) -> JobProgress | None:
        with contextlib.suppress(JournalError):
            return progress_of(self._service.store, self._service.store.run(self._work.id))
        return None

    def _program(self, saved: dict[str, Any] | None, secrets: Secrets, log: Callable[[str], None]) -> Program:
        """Return the version that the run made, without its change of code if that cannot be read at last.

        Raises:
            JournalError: the run cannot be read. GitError, DestinationRefused, SandboxError: its code cannot.
        """
        work, service = self._work, self._service
        program = program_of(service.store, service.records, work, saved)
        try:
            program = with_code(program, self._bundles(program), partial(service.fetch, work))
        except (GitError, DestinationRefused, SandboxError) as error:
            if work.setbacks < TRIES_OF_CODE:
                raise
            log(f"the change of the version's code cannot be read: {error}")
        return Program.model_validate_json(secrets.redact_json(program.model_dump_json().encode()))

    def _bundles(self, program: Program) -> list[bytes]:
        """Return the commits of the version, from the record of its run, parents first."""
        store, run_id = self._service.store, self._work.id
        if program.commit is None:
            return []
        return code_history(store, run_id, store.candidates(run_id)).bundles(program.commit)


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
