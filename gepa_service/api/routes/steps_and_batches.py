"""Steps, and batches of rollouts: submitted, and polled while their results come."""

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from gepa_client.evolution.candidate_names import component_texts
from gepa_service.api.access import Parts, Reader, TenantCaller, Writer
from gepa_service.api.pagination import Id, Page, Paging, known_work
from gepa_service.api.problems import Problem, Responses, documented
from gepa_service.api.routes.jobs import (
    controlled,
    refuse_beyond_quotas,
    repository_of,
    settings_or_problem,
    with_flags,
)
from gepa_service.api.routes.programs import known_program
from gepa_service.api.routes.step_and_batch_models import (
    BatchAccepted,
    BatchSummary,
    BatchView,
    ResultsPaging,
    RolloutsRequest,
    StepRequest,
    StepSummary,
    StepView,
    WorkRequest,
    task_view,
)
from gepa_service.jobs import control
from gepa_service.jobs.deletion import delete_work
from gepa_service.jobs.settings_of_jobs import SandboxOptions
from gepa_service.model.program_version import Program, branch_of
from gepa_service.model.work import ENDED, ProgramWork, TaskResult, Work
from gepa_service.records import TenantRecords, new_id
from gepa_service.service import Service
from protocol.code import git_branch

router = APIRouter(tags=["rollouts"])

POLL_S = 0.2
STILL_RUNNING: Responses = {202: {"model": StepView, "description": "The step continues; poll GET /execute_step/{id}."}}


def submitted(
    service: Service,
    caller: TenantCaller,
    asked: WorkRequest,
    id_: str,
    what: Literal["rollouts", "step"],
    program: ProgramWork,
) -> Work:
    """Store the work that is asked for, and return it. Blocks. Raises a problem."""
    given, ref = asked.options.model_dump(mode="json", exclude_unset=True), asked.ref
    if asked.version_id is None:
        repo_url, client_id = repository_of(service, caller.records, asked.repo_url, asked.client_id)
    else:
        version = known_program(caller.records, asked.version_id, asked.VERSION)
        repo_url, client_id = _repository(service, caller.records, asked, version)
        program = _of_version(program, version, asked.candidate or {})
        given, ref = _made_with(caller.records, version, given), version.base_commit
    flags = asked.server_args()
    settings = settings_or_problem(service, lambda: with_flags(given, repo_url, ref, flags), must_end=False)
    refuse_beyond_quotas(service, caller.tenant, settings)
    work = Work(
        tenant=caller.records.tenant,
        id=id_,
        what=what,
        repo_url=repo_url,
        ref=ref,
        client_id=client_id,
        settings=settings,
        program=program,
        created_by=caller.name,
    )
    caller.records.insert(work)
    return work


def _repository(
    service: Service, records: TenantRecords, asked: WorkRequest, version: Program
) -> tuple[str, str | None]:
    """Return the version's repository, and its `client_id`. Raises a problem if the request names another one."""
    if asked.repo_url is not None or asked.client_id is not None:
        named = repository_of(service, records, asked.repo_url, asked.client_id)
        if named[0] != version.repo_url:
            field = "client_id" if asked.client_id is not None else "repo_url"
            detail = f"`{field}` is another repository than that of the version {version.id}: leave it out"
            raise Problem(422, "wrong-version", "Wrong version", detail, field=field)
        return named
    return repository_of(service, records, None if version.client_id else version.repo_url, version.client_id)


def _of_version(program: ProgramWork, version: Program, texts: Mapping[str, str]) -> ProgramWork:
    """Return work that begins with the version. Raises a problem if `texts` or its code cannot be used."""
    own = component_texts(version.texts)
    if unknown := texts.keys() - own.keys():
        detail = f"`candidate`: the program has no component {', '.join(sorted(unknown))}; it has {', '.join(own)}"
        raise Problem(422, "wrong-component", "Unknown component", detail, field="candidate")
    changes: dict[str, Any] = {"candidate": {**own, **program.candidate}}
    if version.commit is not None:
        if not version.bundles:
            detail = "the change of the version's code is too large, or could not be read when it was made"
            raise Problem(409, "no-code", "No code", detail)
        changes |= {"code": git_branch(branch_of(version.id), version.commit), "bundles": version.bundles}
    return program.model_copy(update=changes)


def _made_with(records: TenantRecords, version: Program, given: dict[str, Any]) -> dict[str, Any]:
    """Return settings of sandboxes: those that the version was made with, and over them those that are given."""
    maker = records.get(Work, version.job_id)
    shared = SandboxOptions.model_fields.keys() - {"sandboxes"}
    kept = {name: value for name, value in (maker.settings if maker else {}).items() if name in shared}
    flags = [each["server_args"] for each in (kept, given) if each.get("server_args")]
    return {**kept, **given, **({"server_args": " ".join(flags)} if flags else {})}


class BatchPage(Page[BatchSummary]):
    """Batches, the newest first."""


@router.post("/api/internal/rollouts/batch", status_code=202, responses=documented(404))
def submit(asked: RolloutsRequest, caller: Writer, service: Parts) -> BatchAccepted:
    """Submit a batch: each task is run by the program in a sandbox, with the texts of one candidate."""
    if asked.agent_version_id is not None:
        version = known_program(caller.records, asked.agent_version_id, "agent_version_id")
        if asked.agent_id and known_program(caller.records, asked.agent_id, "agent_id").line != version.line:
            detail = "`agent_version_id` is a version of another program than `agent_id`"
            raise Problem(422, "wrong-version", "Wrong version", detail, field="agent_version_id")
    return BatchAccepted.of_work(submitted(service, caller, asked, new_id("batch"), "rollouts", asked.work()))


@router.get("/api/internal/rollouts/batch")
def batches(caller: Reader, query: Paging) -> BatchPage:
    """List batches, the newest first."""
    return BatchPage.read(BatchSummary.of_work, caller.records, Work, query, {"what": "rollouts"}, newest_first=True)


@router.get("/api/internal/rollouts/batch/{batch_id}", responses=documented(404))
def batch(batch_id: Id, caller: Reader, query: ResultsPaging) -> BatchView:
    """Return the progress of a batch, and its results in the order in which they came."""
    found = known_work(caller.records, batch_id, "rollouts")
    page = caller.records.page(TaskResult, {"work_id": batch_id}, after=query.after, limit=query.limit)
    return BatchView.of_work(
        found,
        results=[task_view(found, each) for each in page],
        next=page[-1].id if page else query.after,
        complete=len(page) < query.limit and found.status in ENDED,
    )


@router.delete("/api/internal/rollouts/batch/{batch_id}", status_code=204, responses=documented(404))
def delete_batch(batch_id: Id, caller: Writer, service: Parts) -> None:
    """Delete a batch that has ended, with its results and its log."""
    delete_work(service.records, service.store, known_work(caller.records, batch_id, "rollouts"))


@router.post("/api/internal/rollouts/batch/{batch_id}/cancel", responses=documented(404))
def cancel_batch(batch_id: Id, caller: Writer, service: Parts) -> BatchAccepted:
    """Cancel a batch; the results that are there are kept."""
    return BatchAccepted.of_work(_cancelled(caller, service, known_work(caller.records, batch_id, "rollouts")))


def _cancelled(caller: TenantCaller, service: Service, found: Work) -> Work:
    return controlled(found, partial(control.cancel, caller.records, service.store, by=caller.name))


class StepPage(Page[StepSummary]):
    """Steps, the newest first."""


@router.post("/execute_step", responses={**documented(404), **STILL_RUNNING})
async def execute(asked: StepRequest, caller: Writer, service: Parts, response: Response) -> StepView:
    """Make a version by one mutation, run the examples with it, and return outputs, traces, branch and program."""
    if (
        asked.program_id is not None
        and await run_in_threadpool(caller.records.get, Program, asked.program_id) is not None
    ):
        detail = "`program_id` is that of a version which is there: choose a new one"
        raise Problem(409, "exists", "Version exists", detail, field="program_id")
    id_ = new_id("step")
    work = await run_in_threadpool(submitted, service, caller, asked, id_, "step", asked.work(id_))
    until = time.monotonic() + asked.wait_s
    while work.status not in ENDED and time.monotonic() < until:
        await asyncio.sleep(POLL_S)
        work = await run_in_threadpool(known_work, caller.records, work.id, "step")
    if work.status not in ENDED:
        response.status_code = 202
    return StepView.of_work(work)


@router.get("/execute_step")
def steps(caller: Reader, query: Paging) -> StepPage:
    """List steps, the newest first."""
    return StepPage.read(StepSummary.of_work, caller.records, Work, query, {"what": "step"}, newest_first=True)


@router.get("/execute_step/{step_id}", responses=documented(404))
def step(step_id: Id, caller: Reader) -> StepView:
    """Return a step."""
    return StepView.of_work(known_work(caller.records, step_id, "step"))


@router.post("/execute_step/{step_id}/cancel", responses=documented(404))
def cancel_step(step_id: Id, caller: Writer, service: Parts) -> StepView:
    """Cancel a step; it makes no version."""
    return StepView.of_work(_cancelled(caller, service, known_work(caller.records, step_id, "step")))


@router.delete("/execute_step/{step_id}", status_code=204, responses=documented(404))
def delete_step(step_id: Id, caller: Writer, service: Parts) -> None:
    """Delete a step that has ended, with its log. The version that it made stays."""
    delete_work(service.records, service.store, known_work(caller.records, step_id, "step"))
