"""Work on a program that is no optimization: a batch of rollouts, or one step of a mutation and its test examples."""

from datetime import datetime
from typing import Any, ClassVar, Literal

from pydantic import Field

from gepa_service.model.job import JobClaim
from gepa_service.records.record import Record

WorkStatus = Literal["queued", "running", "completed", "partial", "failed", "cancelled"]
PROMPT = "prompt"
"""The kind of a mutation that changes texts beside the code."""

WORK_ENDED: frozenset[WorkStatus] = frozenset({"completed", "partial", "failed", "cancelled"})
"""Statuses that work never leaves."""


class ProgramWork(Record):
    """Work that a worker does in sandboxes of a repository, in a process of its own.

    `settings`: of `evolverpc`, for the sandboxes. `candidate`: the texts, None for the seed. `tasks`: rows.
    `mutation`: of a step, as the contract's, or `{"kind": "prompt", "texts": ...}`, which changes texts beside the
    code. `traces`: whether results have trajectories. `parallelism`: tasks at the same time. `task_timeout_s`: seconds
    of one task; `timeout_s`: of all, after which the rest is cancelled. `done`: tasks with a result; `failed`: those of
    them that have none of the program. `result`: of a step. `partial`: some tasks have no result of the program.
    `cost_usd`: what the program's calls to models have cost so far, as far as that is known.
    """

    kind: ClassVar[str] = "program_work"
    indexed: ClassVar[tuple[str, ...]] = ("what", "status", "client_id")

    what: Literal["rollouts", "step"]
    status: WorkStatus = "queued"
    reason: str | None = None
    wanted: Literal["run", "cancel"] = "run"
    repo_url: str
    ref: str | None = None
    client_id: str | None = None
    settings: dict[str, Any]
    candidate: dict[str, str] | None = None
    mutation: dict[str, Any] | None = None
    tasks: tuple[dict[str, Any], ...] = ()
    traces: bool = False
    parallelism: int = Field(default=1, ge=1)
    task_timeout_s: float = 300.0
    timeout_s: float = 3600.0
    done: int = 0
    failed: int = 0
    cost_usd: float = 0.0
    result: dict[str, Any] | None = None
    created_by: str
    started: datetime | None = None
    completed: datetime | None = None
    claim: JobClaim | None = None
    attempts: int = 0


class TaskResult(Record):
    """The result of one task, an `ExampleResult`. `id`: of `task_result_id`, so that results sort by arrival."""

    kind: ClassVar[str] = "task_result"
    indexed: ClassVar[tuple[str, ...]] = ("work_id",)

    work_id: str
    index: int
    result: dict[str, Any]


def task_result_id(work_id: str, number: int) -> str:
    """Return the id of the result that came after `number` others: two writers cannot both write it."""
    return f"{work_id}-{number:06d}"
