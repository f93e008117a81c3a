"""Batches of rollouts: submitted, and polled while their results come."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal, Self, cast

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from gepa_service.api.access import Parts, Reader, Writer
from gepa_service.api.documented import documented
from gepa_service.api.pages import Paging, View, known_work
from gepa_service.api.quotas import refuse_beyond_quotas
from gepa_service.api.routes.jobs import Rows, Target, controlled, repository_of, settings_or_problem
from gepa_service.api.routes.programs import known_program
from gepa_service.api.routes.repositories import Id
from gepa_service.jobs import control
from gepa_service.jobs.settings_of_jobs import SandboxOptions
from gepa_service.model.work import ENDED, ProgramWork, TaskResult, Work
from gepa_service.records.record import new_id

router = APIRouter(tags=["rollouts"])

LONGEST_COMPONENT = 1_000_000
MOST_COMPONENTS = 1000
LONGEST_BATCH_S = 24 * 3600.0
ComponentName = Annotated[str, Field(min_length=1, max_length=400)]
Texts = Annotated[
    dict[ComponentName, Annotated[str, Field(max_length=LONGEST_COMPONENT)]],
    Field(min_length=1, max_length=MOST_COMPONENTS),
]
WorkStatus = Literal["queued", "running", "completed", "partial", "failed", "cancelled"]
Seconds = Annotated[float, Field(gt=0, le=LONGEST_BATCH_S)]


class WorkRequest(Target):
    """What is common to rollouts and steps. The candidate: `candidate`, a version, or else the program's seed.

    `parallelism`: tasks that run at the same time. `task_timeout_s`, `timeout_s`: seconds of one task, and of all.
    `traces`: return the trajectory of each run. `options`: settings of the sandboxes.
    """

    candidate: Texts | None = None
    program_id: Id | None = None
    parallelism: Annotated[int, Field(ge=1, le=1000)] = 4
    task_timeout_s: Seconds = 300.0
    timeout_s: Seconds = 3600.0
    traces: bool = False
    options: SandboxOptions = SandboxOptions()

    @model_validator(mode="after")
    def _one_candidate(self) -> Self:
        if self.candidate is not None and self.program_id is not None:
            raise ValueError("`candidate` and `program_id` are given: texts, or a version that has them")
        return self


class RolloutsRequest(WorkRequest):
    """A batch: a row for each task."""

    tasks: Rows


class BatchAccepted(BaseModel):
    """A batch that was accepted."""

    batch_id: str
    status: WorkStatus


class TaskError(BaseModel):
    """Why a task has no score. `type`: the class of an exception of the program, or the status."""

    model_config = ConfigDict(extra="allow")

    type: str
    message: str


class ExampleRun(BaseModel):
    """A run of a row with one candidate. `trajectory`: if traces were asked for."""

    status: Literal["ok", "program_error", "timeout", "infra_error", "cancelled"]
    score: float | None
    output: JsonValue
    feedback: str | None
    error: TaskError | None
    trajectory: JsonValue
    log: str | None
    seconds: float


class TaskView(ExampleRun):
    """The result of a task, by its index in the request."""

    index: int

    @classmethod
    def of(cls, record: TaskResult) -> "TaskView":
        """Return what is shown of a record."""
        return cls(index=record.index, **shown_result(record.result))


class BatchView(View):
    """A batch and a page of its results.

    `partial`: some tasks have no result of the program. `done`, `total`: tasks. `cost_usd`: what the program's calls
    to models have cost so far. `next`: what the next page of results follows, null before the first result; poll with
    it until `complete`: no results follow.
    """

    batch_id: str
    status: WorkStatus
    reason: str | None
    done: int
    failed: int
    total: int
    cost_usd: float
    results: list[TaskView]
    next: str | None
    complete: bool
    created: datetime
    started: datetime | None
    completed: datetime | None


@router.post("/rollouts/batch", status_code=202, responses=documented(404))
def submit(asked: RolloutsRequest, caller: Writer, service: Parts) -> BatchAccepted:
    """Submit a batch: each task is run by the program in a sandbox, with the texts of one candidate."""
    work = submitted(service, caller, asked, what="rollouts", tasks=asked.tasks)
    return BatchAccepted(batch_id=work.id, status=shown_status(work))


@router.get("/rollouts/batch/{batch_id}", responses=documented(404))
def batch(batch_id: Id, caller: Reader, query: Paging) -> BatchView:
    """Return the progress of a batch, and its results in the order in which they came."""
    found = known_work(caller.records, batch_id, "rollouts")
    page = caller.records.page(TaskResult, {"work_id": batch_id}, after=query.after, limit=query.limit)
    return BatchView.of(
        found,
        status=shown_status(found),
        total=0 if found.program is None else len(found.program.tasks),
        results=[TaskView.of(each) for each in page],
        next=page[-1].id if page else query.after,
        complete=len(page) < query.limit and found.status in ENDED,
    )


@router.post("/rollouts/batch/{batch_id}/cancel", responses=documented(404))
def cancel(batch_id: Id, caller: Writer, service: Parts) -> BatchAccepted:
    """Cancel a batch; the results that are there are kept."""
    found = known_work(caller.records, batch_id, "rollouts")
    with service.opened_journals() as store:
        cancelled = controlled(found, partial(control.cancel, caller.records, store, by=caller.actor))
    return BatchAccepted(batch_id=cancelled.id, status=shown_status(cancelled))


def submitted(
    service: Parts,
    caller: Writer,
    asked: WorkRequest,
    *,
    what: Literal["rollouts", "step"],
    tasks: list[dict[str, JsonValue]],
    flags: list[str] | None = None,
    mutation: dict[str, Any] | None = None,
) -> Work:
    """Store the work that is asked for, and return it. Blocks. Raises a problem.

    `flags`: further ones of `evolverpc serve`.
    """
    repo_url, client_id = repository_of(service, caller.records, asked)
    candidate: dict[str, str] | None = asked.candidate
    ref = asked.ref
    if asked.program_id is not None:
        version = known_program(caller.records, asked.program_id)
        candidate, ref = version.texts, ref or version.base_commit
    given = asked.options.model_dump(mode="json", exclude_unset=True)
    settings = settings_or_problem(
        service, lambda: asked.with_target(given, repo_url, ref, flags or []), must_end=False
    )
    refuse_beyond_quotas(service, caller.tenant, settings)
    work = Work(
        tenant=caller.records.tenant,
        id=new_id("batch" if what == "rollouts" else "step"),
        what=what,
        repo_url=repo_url,
        ref=ref,
        client_id=client_id,
        settings=settings,
        program=ProgramWork(
            candidate=candidate,
            mutation=mutation,
            tasks=tuple(tasks),
            traces=asked.traces,
            parallelism=asked.parallelism,
            task_timeout_s=asked.task_timeout_s,
            timeout_s=asked.timeout_s,
        ),
        created_by=caller.actor,
    )
    caller.records.insert(work)
    return work


def shown_status(work: Work) -> WorkStatus:
    """Return the status of a batch or step as it is shown."""
    return "queued" if work.status == "pending" else cast("WorkStatus", work.status)


def shown_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of an `ExampleResult` that are shown."""
    return {name: result.get(name) for name in ExampleRun.model_fields}
