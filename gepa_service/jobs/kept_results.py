"""What the service keeps beside the record of its work: the run of an optimization, the results of a batch or step."""

import base64
import contextlib
import json
import sys
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
from gepa_service.jobs.messages import Ended, Message, Spent, TaskDone
from gepa_service.jobs.month_spending import count_spending
from gepa_service.jobs.new_version import program_of, saved_program_path, with_code
from gepa_service.model.program_version import Program, branch_of
from gepa_service.model.work import ENDED, JobProgress, Status, TaskResult, Work, task_result_id
from gepa_service.records import RecordChanged, RecordError, RecordExists
from gepa_service.repositories.destinations import DestinationRefused
from gepa_service.service import Service
from sandbox_runtime.api.sandbox import SandboxError

TRIES_OF_CODE = 2


class NotEnded(Exception):
    """The end of the work cannot be recorded by this attempt, for the reason in the text; another one may."""


class KeptRun:
    """What the service keeps of an optimization; one for each attempt, or several: what counts is in the records.

    `KeptResults` has the same methods. All may raise `RecordsUnavailable`.
    """

    def __init__(self, service: Service, work: Work) -> None:
        self._service, self._work = service, work

    def begin(self) -> frozenset[int]:
        """Free the run of the attempt before, whose token ended with it; return the tasks that have a result: none."""
        self.count()
        with contextlib.suppress(NoSuchRun):
            run = self._service.store.run(self._work.id)
            if run.claim.owner is not None:
                self._service.store.release(run.id, run.claim.owner)
        return frozenset()

    def is_further(self, found: Work) -> bool:
        """Whether the work is further than its record states."""
        progress = self._progress()
        return progress is not None and progress.metric_calls > found.progress.metric_calls

    def changes(self, found: Work, status: Status) -> dict[str, Any]:
        """Return how far the work is, as changes of its record, which has this status from now on."""
        progress = self._progress()
        if progress is None:  # it has no run, or that cannot be read
            ended = {"phase": status} if status in ENDED else {}
            progress = found.progress.model_copy(update=ended)
        return {"progress": progress}

    def count(self) -> None:
        """Count what the journal states."""
        with contextlib.suppress(JournalError, RecordError):  # there is no run yet; or the next report counts it
            spent = self._service.store.spending(self._work.id)
            usd, unpriced = sum(each.cost_usd for each in spent), sum(each.unpriced - each.unreported for each in spent)
            self._work = count_spending(self._service.records, self._work, usd, unpriced)

    def take(self, message: Message) -> None:
        """Keep what the process reports, nothing again that was kept before; an optimization keeps its own record."""

    def ended(self, ended: Ended, secrets: Secrets, log: Callable[[str], None]) -> dict[str, Any]:
        """Return the end of completed or failed work, as changes of its record. Raises `NotEnded`."""
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
    )


class KeptResults:
    """What the service keeps of a batch or a step; its methods are those of `KeptRun`."""

    def __init__(self, service: Service, work: Work) -> None:
        assert work.program is not None, "a batch or step has a program"  # noqa: S101
        self._service, self._work, self._program = service, work, work.program
        self._statuses = self._stored()

    def begin(self) -> frozenset[int]:
        return frozenset(self._statuses)

    def count(self) -> None:
        """Count nothing: a batch or step reports what it spends."""

    def is_further(self, found: Work) -> bool:
        return len(self._statuses) > found.done

    def take(self, message: Message) -> None:
        if isinstance(message, Spent):
            with contextlib.suppress(RecordChanged):  # it was deleted
                self._work = count_spending(self._service.records, self._work, message.usd, message.unpriced)
        elif isinstance(message, TaskDone):
            self._store(message)

    def changes(self, found: Work, status: Status) -> dict[str, Any]:
        del found
        if status != "running":  # another process of the API may have stored some
            self._statuses = self._stored()
        failed = sum(status != "ok" for status in self._statuses.values())
        return {"done": len(self._statuses), "failed": failed}

    def ended(self, ended: Ended, secrets: Secrets, log: Callable[[str], None]) -> dict[str, Any]:
        if ended.result is not None:
            return {"reason": ended.reason, **self._made(dict(ended.result), secrets, log)}
        counts = self.changes(self._work, "completed")
        if ended.status != "failed" and not counts["failed"]:
            return {"status": "completed", "reason": ended.reason}
        reason = ended.reason or f"{counts['failed']} of {counts['done']} tasks failed"
        return {"status": "partial" if counts["done"] > counts["failed"] else "failed", "reason": reason}

    def _made(self, result: dict[str, Any], secrets: Secrets, log: Callable[[str], None]) -> dict[str, Any]:
        """Store the version that a step made, and return the end of the step."""
        work, wanted = self._work, self._program
        bundles = [base64.b64decode(each) for each in result.pop("bundles")]
        name, base = result.pop("program"), result.pop("base_commit")
        parent = None if wanted.parent is None else self._service.records.get(Program, work.tenant, wanted.parent)
        program = Program(
            tenant=work.tenant,
            id=wanted.makes,
            line=f"{work.repo_url} {name}" if parent is None else parent.line,
            parents=() if parent is None else (parent.id,),
            job_id=work.id,
            client_id=work.client_id,
            repo_url=work.repo_url,
            texts=result["candidate"],
            program_json=result["program_json"],
            program_json_path=saved_program_path(work),
            base_commit=base,
        )
        if (commit := result.get("commit")) is not None:
            changed = program.model_copy(update={"branch": result.pop("branch"), "commit": commit})
            try:
                changed = with_code(changed, bundles, partial(self._service.fetch, work))
            except (GitError, DestinationRefused, SandboxError) as error:
                log(f"the change of the version's code cannot be read: {error}")
            program = Program.model_validate_json(secrets.redact_json(changed.model_dump_json().encode()))
        elif parent is not None:
            same = ("commit", "diff", "patch", "bundles")
            program = program.model_copy(update={name: getattr(parent, name) for name in same})
        program = program.model_copy(update={"branch": branch_of(program.id)})
        stored = self._stored_version(program)
        if stored is None or stored.job_id != work.id:
            reason = f"another step has made a version {program.id} meanwhile: choose a new `program_id`"
            return {"status": "failed", "reason": reason}
        ended: dict[str, Any] = {"status": "completed", "program_id": program.id, "result": result}
        if any(getattr(stored, name) != getattr(program, name) for name in ("texts", "commit", "program_json")):
            kept = {"candidate": stored.texts, **stored.model_dump(include={"commit", "diff", "program_json"})}
            reason = "an earlier attempt stored another version, which is kept; its outputs are not known"
            ended |= {"result": {**kept, "tried": []}, "reason": reason}
        return ended

    def _stored_version(self, program: Program) -> Program | None:
        """Store a version unless there is one of its id, and return what is stored.

        Raises:
            NotEnded: this attempt was replaced by another one, or the step was cancelled.
        """
        records, work = self._service.records, self._work
        found = records.get(Work, work.tenant, work.id)
        if found is None or (found.status, found.attempts) != ("running", work.attempts):
            raise NotEnded("another attempt has begun, or the step was cancelled")
        try:
            records.insert(program)
        except RecordExists:
            return records.get(Program, work.tenant, program.id)
        return program

    def _store(self, done: TaskDone) -> None:
        """Store the result of a task, unless it has one."""
        while done.index not in self._statuses:
            result = TaskResult(
                tenant=self._work.tenant,
                id=task_result_id(self._work.id, len(self._statuses)),
                work_id=self._work.id,
                index=done.index,
                result=done.result,
            )
            try:
                self._service.records.insert(result)
            except RecordExists:  # written by an attempt that was thought dead
                self._statuses = self._stored()
            else:
                self._statuses[done.index] = sys.intern(done.result["status"])

    def _stored(self) -> dict[int, str]:
        """Return the statuses of the results, by the index of the task."""
        stored = self._service.records.every(TaskResult, self._work.tenant, {"work_id": self._work.id})
        return {each.index: sys.intern(each.result["status"]) for each in stored}
