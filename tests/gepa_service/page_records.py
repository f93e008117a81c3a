"""Records for the page's tests in a browser: `python -m tests.gepa_service.page_records DATABASE`, strings by stdin.

Puts one of the strings, each another one, into every text that people, programs and machines fill, and prints the ids.
"""

import contextlib
import itertools
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

from gepa_service.auth.keys import make_key
from gepa_service.model.program_version import Program, Promotion, Repository
from gepa_service.model.tenant import TENANTS, AuditEntry, Tenant
from gepa_service.model.work import (
    JobProgress,
    LogChunk,
    LogLine,
    ProgramWork,
    Status,
    TaskResult,
    Work,
    task_result_id,
)
from gepa_service.records import RecordStore, new_id, now, open_records

STATUSES: tuple[Status, ...] = ("pending", "paused", "failed", "cancelled", "completed")


def repository(tenant: str, text: Callable[[], str]) -> Repository:
    return Repository(
        tenant=tenant,
        id=new_id("client"),
        repo_url=text(),
        installation_id="42",
        status="unreachable",
        detail=text(),
        default_branch=text(),
        head=text(),
    )


def job(tenant: str, status: Status, text: Callable[[], str]) -> Work:
    step = {"name": text(), "verdict": "failed", "message": text(), "details": text()}
    failure = {"kind": text(), "message": text(), "details": text(), "findings": [text()], "check": {"steps": [step]}}
    return Work(
        tenant=tenant,
        id=new_id("job"),
        status=status,
        reason=text(),
        repo_url=text(),
        ref=text(),
        settings={"name": text(), "max_metric_calls": 300},
        created_by=text(),
        progress=JobProgress(
            phase=text(), metric_calls=120, seed_score=0.2, best_score=0.4, best_candidate={text(): "a"}
        ),
        failure=failure if status == "failed" else None,
    )


def program(tenant: str, text: Callable[[], str], parents: tuple[str, ...]) -> Program:
    return Program(
        tenant=tenant,
        id=new_id("program"),
        line=text(),
        job_id=text(),
        repo_url=text(),
        parents=parents,
        texts={text(): text(), "shared": text()},
        program_json={text(): text()},
        branch=text(),
        commit=text(),
        base_commit=text(),
        diff=text(),
        patch=text(),
        score=0.7,
        seed_score=0.3,
        certificate={"statement": text(), "verdict": text(), "test": {"rows": text(), text(): text()}},
        verdict="no difference",
    )


def task_result_of(text: Callable[[], str]) -> dict[str, Any]:
    error = {"type": text(), "message": text()}
    return {"status": "program_error", "output": text(), "feedback": text(), "error": error, "seconds": 0.5}


def work(tenant: str, what: Literal["rollouts", "step"], text: Callable[[], str]) -> Work:
    result = {"tried": [{"after": task_result_of(text)}], "summary": text(), "diff": text()}
    return Work(
        tenant=tenant,
        id=new_id("step" if what == "step" else "batch"),
        what=what,
        status="failed",
        reason=text(),
        repo_url=text(),
        created_by=text(),
        program=ProgramWork(tasks=({"task_id": text(), "row": {}},), makes="new", parent=text()),
        done=1,
        failed=1,
        result=result if what == "step" else None,
    )


def insert(records: RecordStore, strings: list[str]) -> dict[str, list[str]]:
    tenant = records.page(Tenant, TENANTS)[0].id
    endless = itertools.cycle(strings)

    def text() -> str:
        return next(endless)

    repositories = [repository(tenant, text) for _ in range(2)]
    jobs = [job(tenant, status, text) for status in STATUSES]
    first = program(tenant, text, (text(),))
    programs = [first, program(tenant, text, (first.id,))]
    lines = tuple(LogLine(at=now(), source=text(), text=text()) for _ in range(len(strings)))
    forced = Promotion(
        tenant=tenant, id=new_id("promotion"), line=text(), program_id=first.id, actor=text(), forced=text()
    )
    audit = AuditEntry(tenant=tenant, id=new_id("audit"), actor=text(), action=text(), resource=text(), status=200)
    _, key = make_key(tenant, text()[:200], "viewer", now() + timedelta(days=1))
    logs = [LogChunk(tenant=tenant, id=new_id("log"), job_id=each.id, lines=lines) for each in jobs]
    step, batch = work(tenant, "step", text), work(tenant, "rollouts", text)
    result = task_result_of(text)
    done = TaskResult(tenant=tenant, id=task_result_id(batch.id, 0), work_id=batch.id, index=0, result=result)
    for record in (*repositories, *jobs, *programs, forced, audit, key, *logs, step, batch, done):
        records.insert(record)
    return {
        "jobs": [each.id for each in jobs],
        "programs": [each.id for each in programs],
        "repositories": [each.id for each in repositories],
        "work": [f"step={step.id}", f"batch={batch.id}"],
    }


if __name__ == "__main__":
    with contextlib.closing(open_records(sys.argv[1])) as opened:
        print(json.dumps(insert(opened, json.load(sys.stdin))))
