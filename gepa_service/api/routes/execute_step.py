"""One step: a mutation of a program, and the run of test examples after it, in one call."""

import asyncio
import time

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from gepa_service.api.access import Parts, Reader, Writer
from gepa_service.api.openapi import Responses, documented
from gepa_service.api.pages import Page, Paging, known_work
from gepa_service.api.problems import Problem
from gepa_service.api.routes.payloads import StepRequest, StepSummary, StepView
from gepa_service.api.routes.repositories import Id
from gepa_service.api.routes.submission import submitted
from gepa_service.model.program_version import Program
from gepa_service.model.work import ENDED, Work
from gepa_service.operation.deletion import delete_work
from gepa_service.records import new_id

router = APIRouter(tags=["rollouts"])

POLL_S = 0.2
STILL_RUNNING: Responses = {202: {"model": StepView, "description": "The step continues; poll GET /execute_step/{id}."}}


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


@router.delete("/execute_step/{step_id}", status_code=204, responses=documented(404))
def delete_step(step_id: Id, caller: Writer, service: Parts) -> None:
    """Delete a step that has ended, with its log. The version that it made stays."""
    delete_work(service.records, service.store, known_work(caller.records, step_id, "step"))
