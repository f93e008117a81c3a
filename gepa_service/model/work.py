"""Work: what a tenant asked for, from its request to its end: an optimization, a batch or a step; and its log."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from gepa_client.journal.entries import RunStatus
from gepa_service.records import Record

What = Literal["optimize", "rollouts", "step"]
LANES: tuple[tuple[What, ...], ...] = (("rollouts", "step"), ("optimize",))
"""Kinds of work that take each other's places: batches and steps, which are short, never wait for optimizations."""

NAMES: Mapping[What, str] = {"optimize": "job", "rollouts": "batch", "step": "step"}
"""What the API calls each kind."""

OPTIMIZATIONS: Mapping[str, str] = {"what": "optimize"}
"""The condition for records of optimizations, the jobs of the API."""

Status = RunStatus | Literal["partial"]
ENDED: frozenset[Status] = frozenset({"completed", "partial", "failed", "cancelled"})
"""Statuses that work never leaves."""

PROMPT = "prompt"
"""The kind of a mutation that changes texts beside the code."""

TURN = "turn"


class JobProgress(BaseModel):
    """How far a job is, as its run last reported it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    phase: str = "queued"
    current_iteration: int = 0
    metric_calls: int = 0
    candidates: int = 0
    seed_score: float | None = None
    best_score: float | None = None
    best_candidate: dict[str, str] | None = None


class ProgramWork(BaseModel):
    """What a batch or a step does with a program.

    `candidate`: texts that replace those of the program. `code`, `bundles`: of a version whose code is not in the
    repository: its `git_branch`, and its commits in base64, parents first. `tasks`: each a `row`, or a `user_message`
    with its `context`, and its `task_id`. `system_prompt`, `model_id`: see `chat_names`. `traces`: whether results have
    trajectories. `parallelism`: tasks at the same time. `task_timeout_s`: seconds of one task; `timeout_s`: of all,
    after which the rest is cancelled.

    Of a step: `mutation`: as the contract's, or `{"kind": "prompt", "texts": ...}`, which changes texts beside the
    code; `run_before`: run the tasks before it too; `makes`: the id of the version that is made from `parent`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    candidate: dict[str, str] = Field(default_factory=dict)
    code: str | None = None
    bundles: tuple[str, ...] = ()
    system_prompt: str | None = None
    model_id: str | None = None
    mutation: dict[str, Any] | None = None
    run_before: bool = False
    makes: str = ""
    parent: str | None = None
    tasks: tuple[dict[str, Any], ...] = ()
    traces: bool = False
    parallelism: int = Field(default=1, ge=1)
    task_timeout_s: float = 300.0
    timeout_s: float = 3600.0


class Work(Record):
    """One optimization, batch or step.

    `settings`: of `evolverpc`, without secrets and without what the service decides. `client_id`: the connected
    repository. `wanted`: what the tenant asked for last; the attempt acts on it. `failure`: of a failed optimization:
    `kind` (`preflight`, `sandbox`, `run`, ...), `message`, and for a preflight its findings. `attempts`: how often it
    was begun or continued; the writes of each attempt are refused once another has begun. `call`: by which an engine
    that chooses it finds the present attempt. `setbacks`: how often in a row it was interrupted before it got further.
    `not_before`: when it may be tried again after a setback.

    An optimization has a run of its id in the store of journals. `progress`: how far that is; `program_id`: the version
    that it made.

    A batch or a step has a `program`. `done`: the tasks of a batch that have ended; `failed`: those of them that
    failed, took too long or were cancelled, so that it ends as `partial`. `result`: of a step.

    `cost_usd`: what the work has cost so far, as far as that is known; `unpriced`: its calls of unknown cost;
    `counted_usd`, `counted_unpriced`: both of its run, or of the present attempt at a batch or step; `owed_usd`,
    `owed_unpriced`: what of both the tenant's month does not have yet.
    """

    kind: ClassVar[str] = "work"
    indexed: ClassVar[tuple[str, ...]] = ("what", "status", "client_id", "program_id")

    what: What = "optimize"
    status: Status = "pending"
    reason: str | None = None
    wanted: Literal["run", "pause", "cancel"] = "run"
    repo_url: str
    ref: str | None = None
    client_id: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    created_by: str
    started: datetime | None = None
    completed: datetime | None = None
    attempts: int = 0
    call: str | None = None
    setbacks: int = 0
    not_before: datetime | None = None
    failure: dict[str, Any] | None = None

    program_id: str | None = None
    progress: JobProgress = JobProgress()

    program: ProgramWork | None = None
    done: int = 0
    failed: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0
    counted_usd: float = 0.0
    counted_unpriced: int = 0
    owed_usd: float = 0.0
    owed_unpriced: int = 0
    result: dict[str, Any] | None = None

    @property
    def known_cost_usd(self) -> float | None:
        """The cost to show; None if some of it is unknown and nothing is known."""
        return self.cost_usd or (None if self.unpriced else 0.0)


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


class Turn(Record):
    """When a tenant was served last: `updated`, for the fair order of work. `id`: `TURN`."""

    kind: ClassVar[str] = "turn"


class LogLine(BaseModel):
    """A line. `source`: which process printed it, such as `attempt`, `check` or `driver`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: datetime
    source: str
    text: str


class LogChunk(Record):
    """Consecutive lines of one job, without secrets. `id`: of `new_id("log")`, so that chunks sort by time."""

    kind: ClassVar[str] = "log_chunk"
    indexed: ClassVar[tuple[str, ...]] = ("job_id",)

    job_id: str
    lines: tuple[LogLine, ...]
