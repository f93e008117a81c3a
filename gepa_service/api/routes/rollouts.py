"""Batches of rollouts: submitted, and polled while their results come."""

from functools import partial

from fastapi import APIRouter

from gepa_service.api.access import Parts, Reader, Writer
from gepa_service.api.openapi import documented
from gepa_service.api.pages import Page, Paging, known_work
from gepa_service.api.problems import Problem
from gepa_service.api.routes.jobs import controlled
from gepa_service.api.routes.payloads import (
    BatchAccepted,
    BatchSummary,
    BatchView,
    ResultsPaging,
    RolloutsRequest,
    task_view,
)
from gepa_service.api.routes.programs import known_program
from gepa_service.api.routes.repositories import Id
from gepa_service.api.routes.submission import submitted
from gepa_service.jobs import control
from gepa_service.model.work import ENDED, TaskResult, Work
from gepa_service.operation.deletion import delete_work
from gepa_service.records import new_id

router = APIRouter(prefix="/api/internal", tags=["rollouts"])


class BatchPage(Page[BatchSummary]):
    """Batches, the newest first."""


@router.post("/rollouts/batch", status_code=202, responses=documented(404))
def submit(asked: RolloutsRequest, caller: Writer, service: Parts) -> BatchAccepted:
    """Submit a batch: each task is run by the program in a sandbox, with the texts of one candidate."""
    if asked.agent_version_id is not None:
        version = known_program(caller.records, asked.agent_version_id, "agent_version_id")
        if asked.agent_id and known_program(caller.records, asked.agent_id, "agent_id").line != version.line:
            detail = "`agent_version_id` is a version of another program than `agent_id`"
            raise Problem(422, "wrong-version", "Wrong version", detail, field="agent_version_id")
    return BatchAccepted.of_work(submitted(service, caller, asked, new_id("batch"), "rollouts", asked.work()))


@router.get("/rollouts/batch")
def batches(caller: Reader, query: Paging) -> BatchPage:
    """List batches, the newest first."""
    return BatchPage.read(BatchSummary.of_work, caller.records, Work, query, {"what": "rollouts"}, newest_first=True)


@router.get("/rollouts/batch/{batch_id}", responses=documented(404))
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


@router.delete("/rollouts/batch/{batch_id}", status_code=204, responses=documented(404))
def delete_batch(batch_id: Id, caller: Writer, service: Parts) -> None:
    """Delete a batch that has ended, with its results and its log."""
    delete_work(service.records, service.store, known_work(caller.records, batch_id, "rollouts"))


@router.post("/rollouts/batch/{batch_id}/cancel", responses=documented(404))
def cancel(batch_id: Id, caller: Writer, service: Parts) -> BatchAccepted:
    """Cancel a batch; the results that are there are kept."""
    found = known_work(caller.records, batch_id, "rollouts")
    cancelled = partial(control.cancel, caller.records, service.store, by=caller.name)
    return BatchAccepted.of_work(controlled(found, cancelled))
