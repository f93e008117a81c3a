"""Steps and batches: the payloads of their requests, the work that each asks for, and its answers.

`docs/guides/requests.md` has the same as tables.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from fastapi import Query
from pydantic import BaseModel, Field, JsonValue, model_validator

from gepa_service.api.pagination import Id, PageQuery, RequestBody, View
from gepa_service.api.routes.jobs import MOST_ROWS, JsonPath, ModuleName, Name, Row, Source, serve_flags
from gepa_service.jobs.settings_of_jobs import SandboxOptions
from gepa_service.model.program_version import OWN_IDS, branch_of
from gepa_service.model.work import PROMPT, ProgramWork, TaskResult, Work

LONGEST_TEXT = 1_000_000
MOST_COMPONENTS = 1000
LONGEST_REQUEST = 100_000
LONGEST_PATCH = 4_000_000
MOST_EXAMPLES = 200
LONGEST_MS = 24 * 3_600_000
LONGEST_WAIT_S = 600.0
MOST_RESULTS = 1000

Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Texts = Annotated[dict[Name, Text], Field(min_length=1, max_length=MOST_COMPONENTS)]
Milliseconds = Annotated[int, Field(ge=1, le=LONGEST_MS)]
NewId = Annotated[str, Field(min_length=1, max_length=50, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
WorkStatus = Literal["queued", "running", "completed", "partial", "failed", "cancelled"]
TaskStatus = Literal["completed", "failed", "timeout", "cancelled"]

STATUSES: Mapping[str, TaskStatus] = {
    "ok": "completed",
    "timeout": "timeout",
    "cancelled": "cancelled",
    "program_error": "failed",
    "infra_error": "failed",
}
"""Statuses of tasks by those of the contract."""


class TaskConfig(RequestBody):
    """How tasks run: `parallelism`: how many at the same time; `timeout_per_task_ms`: of each, from its start.

    `timeout_ms`: of all. `model_id`: the model that the program is to call, a field of each row.
    """

    parallelism: Annotated[int, Field(ge=1, le=1000)] = 4
    timeout_per_task_ms: Milliseconds = 300_000
    timeout_ms: Milliseconds = 3_600_000
    model_id: Name | None = None


class WorkRequest(Source):
    """What is common to batches and steps: a version, or a repository as of `/optimize`.

    `entry_point`, `metric`, `program_json_path`: as `program`, `metric`, `saved_program_json_path` there; by default
    those that the version was made with. `candidate`: new texts of components; the others stay. `options`: settings of
    the sandboxes.
    """

    VERSION: ClassVar[str]
    """The field that names a version."""

    entry_point: ModuleName | None = None
    metric: ModuleName | None = None
    program_json_path: JsonPath | None = None
    candidate: Texts | None = None
    config: TaskConfig = TaskConfig()
    options: SandboxOptions = SandboxOptions()

    @property
    def version_id(self) -> str | None:
        """The version that the work begins with."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _of_a_program(self) -> Self:
        if self.version_id is None:
            self.require_repository(self.VERSION)
        elif self.ref is not None:
            raise ValueError("`ref` is given beside a version, which has a commit of its own")
        return self

    def server_args(self) -> list[str]:
        """Return the flags of `evolverpc serve` that the request stands for."""
        return serve_flags(self.entry_point, self.metric, self.program_json_path)

    def program(self, **more: Any) -> ProgramWork:
        """Return what the work does, without what its version adds."""
        return ProgramWork(
            model_id=self.config.model_id,
            parallelism=self.config.parallelism,
            task_timeout_s=self.config.timeout_per_task_ms / 1000,
            timeout_s=self.config.timeout_ms / 1000,
            **more,
        )


class Task(RequestBody):
    """A task: a `user_message`, with further fields of its row in `context`; or the whole `row`.

    `task_id`: names its result; by default its place, from 0.
    """

    task_id: Name | None = None
    user_message: Text | None = None
    context: Row = Field(default_factory=dict)
    row: Row | None = None

    @model_validator(mode="after")
    def _one_row(self) -> Self:
        if self.row is not None and (self.user_message is not None or self.context):
            raise ValueError("`row` is the whole row: leave `user_message` and `context` out")
        if self.row is None and self.user_message is None:
            raise ValueError("`user_message` or `row` is missing: give one of them")
        return self


class RolloutsRequest(WorkRequest):
    """A batch. `agent_id` or `agent_version_id`: the version; if both are given, the second one, of the same program.

    `system_prompt`: the text of the program's one component, or of the one that its `gepa.toml` names.
    """

    VERSION: ClassVar[str] = "agent_id"

    agent_id: Id | None = None
    agent_version_id: Id | None = None
    system_prompt: Text | None = None
    tasks: Annotated[list[Task], Field(min_length=1, max_length=MOST_ROWS)]
    capture_traces: bool = True

    @property
    def version_id(self) -> str | None:
        """As of `WorkRequest`."""
        return self.agent_version_id or self.agent_id

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if self.system_prompt is not None and self.candidate is not None:
            raise ValueError("`system_prompt` and `candidate` are given: they are the same texts")
        seen = set[str]()
        for at, task in enumerate(self.tasks):
            if (id_ := task.task_id or str(at)) in seen:
                raise ValueError(f"`task_id` {id_!r} is that of two tasks")
            seen.add(id_)
        return self

    def work(self) -> ProgramWork:
        """Return what the batch does."""
        given = [task.model_dump(exclude_none=True) for task in self.tasks]
        tasks = tuple({"task_id": str(at), **task} for at, task in enumerate(given))
        texts = self.candidate or {}
        return self.program(candidate=texts, system_prompt=self.system_prompt, tasks=tasks, traces=self.capture_traces)


class StepRequest(WorkRequest):
    """A step: one mutation of a version, or of a repository's program, and a run of `test_examples`, which are rows.

    `mutation_type`: `prompt` replaces the texts of `candidate`; `code` has the program's coding agent carry out
    `change_request`, which looks first at `change_location`, or applies `diff`, a patch. `program_id`: of the version
    that the step makes, new. `run_before`: run the examples before the mutation too. `wait_s`: how long the answer may
    be awaited; then the step continues, and `GET /execute_step/{id}` returns it.
    """

    VERSION: ClassVar[str] = "parent_program_id"

    program_id: NewId | None = None
    parent_program_id: Id | None = None
    mutation_type: Literal["prompt", "code"]
    change_request: Annotated[str, Field(min_length=1, max_length=LONGEST_REQUEST)] | None = None
    change_location: Name | None = None
    diff: Annotated[str, Field(min_length=1, max_length=LONGEST_PATCH)] | None = None
    test_examples: Annotated[list[Row], Field(max_length=MOST_EXAMPLES)] = Field(default_factory=list)
    capture_traces: bool = False
    run_before: bool = False
    wait_s: Annotated[float, Field(ge=0, le=LONGEST_WAIT_S)] = LONGEST_WAIT_S

    @property
    def version_id(self) -> str | None:
        """As of `WorkRequest`."""
        return self.parent_program_id

    @model_validator(mode="after")
    def _one_mutation(self) -> Self:
        if self.program_id is not None and self.program_id.startswith(OWN_IDS):
            raise ValueError(f"`program_id`: ids that begin with {OWN_IDS!r} are those of the service")
        if self.mutation_type == PROMPT:
            for name in ("change_request", "change_location", "diff"):
                if getattr(self, name) is not None:
                    raise ValueError(f"`{name}` is for the `mutation_type` code")
            if self.candidate is None:
                raise ValueError("`candidate` is missing: the texts that a change of the prompt makes")
        elif (self.change_request is None) == (self.diff is None):
            raise ValueError("`change_request`: a change of the code needs either that, or a patch in `diff`")
        elif self.diff is not None and self.change_location is not None:
            raise ValueError("`change_location` is for a `change_request`")
        return self

    def work(self, work_id: str) -> ProgramWork:
        """Return what the step does."""
        mutation: dict[str, Any] = {"kind": PROMPT, "texts": self.candidate}
        if self.change_request is not None:
            where = {} if self.change_location is None else {"location": self.change_location}
            mutation = {"kind": "change_request", "request": self.change_request, **where}
        elif self.diff is not None:
            mutation = {"kind": "patch", "diff": self.diff}
        return self.program(
            candidate={} if self.mutation_type == PROMPT else self.candidate or {},
            mutation=mutation,
            tasks=tuple({"task_id": str(at), "row": row} for at, row in enumerate(self.test_examples)),
            traces=self.capture_traces,
            run_before=self.run_before,
            makes=self.program_id or OWN_IDS + work_id.removeprefix("step_"),
            parent=self.parent_program_id,
        )


class RunView(BaseModel):
    """A run of the program on a row. `execution_time_ms`: from its start."""

    status: TaskStatus
    output: JsonValue
    score: float | None
    feedback: str | None
    error: str | None
    log: str | None
    execution_time_ms: int


def run_fields(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `RunView`. `result`: an `ExampleResult`."""
    error = result.get("error")
    return {
        **{name: result.get(name) for name in ("output", "score", "feedback", "log")},
        "status": STATUSES[result["status"]],
        "error": None if error is None else f"{error['type']}: {error['message']}",
        "execution_time_ms": round(1000 * result["seconds"]),
    }


def trace_of(result: Mapping[str, Any]) -> list[JsonValue]:
    """Return the trajectory of a result as a list, empty without one."""
    found = result.get("trajectory")
    return found if isinstance(found, list) else [] if found is None else [found]


class TaskView(RunView):
    """The result of a task."""

    task_id: str
    trace: list[JsonValue]


class BatchProgress(BaseModel):
    """Tasks. `failed`: those that ended with an error, took too long, or were cancelled."""

    total: int
    completed: int
    failed: int
    pending: int


class BatchAccepted(View):
    """A batch that was accepted."""

    batch_id: str
    task_count: int
    status: WorkStatus
    created_at: datetime

    @classmethod
    def of_work(cls, record: Work, **more: Any) -> Self:
        """As `of`."""
        assert record.program is not None  # noqa: S101  a batch has one
        return cls.of(record, status=shown_status(record), task_count=len(record.program.tasks), **more)


class BatchSummary(BatchAccepted):
    """A batch. `partial`: some tasks failed.

    `cost_usd`: the least that the program's calls to models have cost so far; null if no cost is known.
    """

    reason: str | None
    progress: BatchProgress
    cost_usd: float | None
    started_at: datetime | None
    completed_at: datetime | None

    @classmethod
    def of_work(cls, record: Work, **more: Any) -> Self:
        """As `of`."""
        assert record.program is not None  # noqa: S101  a batch has one
        total, done, failed = len(record.program.tasks), record.done, record.failed
        progress = BatchProgress(total=total, completed=done - failed, failed=failed, pending=total - done)
        return super().of_work(record, progress=progress, cost_usd=record.known_cost_usd, **more)


class BatchView(BatchSummary):
    """A batch and a page of its results, in the order in which they came.

    `next`: what the next page of results follows, null before the first result; poll with it until `complete`: no
    results follow.
    """

    results: list[TaskView]
    next: str | None
    complete: bool


class ResultsQuery(PageQuery):
    """Which results are returned."""

    limit: Annotated[int, Field(ge=1, le=MOST_RESULTS, description="The largest number of results.")] = MOST_RESULTS


ResultsPaging = Annotated[ResultsQuery, Query()]


def task_view(work: Work, record: TaskResult) -> TaskView:
    """Return what is shown of the result of a task."""
    assert work.program is not None  # noqa: S101  a batch has one
    id_ = work.program.tasks[record.index]["task_id"]
    return TaskView(task_id=id_, trace=trace_of(record.result), **run_fields(record.result))


class OutputView(RunView):
    """A run of an example after the mutation. `before`: the run before it, if that was asked for."""

    example_id: int
    before: RunView | None


class TraceView(BaseModel):
    """The trajectory of an example, after the mutation."""

    example_id: int
    trace: list[JsonValue]


class StepSummary(View):
    """A step. `program_id`: the version that it makes. `error`: why it failed. `cost_usd`: as of `BatchSummary`."""

    step_id: str
    program_id: str
    parent_program_id: str | None
    status: Literal["queued", "running", "success", "failed", "cancelled"]
    reason: str | None
    error: str | None
    branch_name: str
    cost_usd: float | None
    created_at: datetime
    completed_at: datetime | None

    @classmethod
    def of_work(cls, record: Work, **more: Any) -> Self:
        """As `of`."""
        assert record.program is not None  # noqa: S101  a step has one
        status, makes = shown_status(record), record.program.makes
        fields = {
            "program_id": makes,
            "parent_program_id": record.program.parent,
            "status": "success" if status == "completed" else status,
            "error": record.reason if status in ("failed", "cancelled") else None,
            "branch_name": branch_of(makes),
            "cost_usd": record.known_cost_usd,
        }
        return cls.of(record, **fields, **more)


class StepView(StepSummary):
    """A step with what it made.

    `candidate`: the texts after it. `commit`, `diff`, `summary`: of a change of code. `program_json`: what the program
    saved for the candidate.
    """

    pipeline_outputs: list[OutputView]
    traces: list[TraceView]
    program_json: dict[str, JsonValue] | None
    candidate: dict[str, str] | None
    commit: str | None
    diff: str | None
    summary: str | None

    @classmethod
    def of_work(cls, record: Work, **more: Any) -> Self:
        """As `of`."""
        result = record.result or {}
        tried = list(enumerate(result.get("tried", ())))
        outputs = [
            OutputView(
                example_id=at,
                before=RunView(**run_fields(each["before"])) if "before" in each else None,
                **run_fields(each["after"]),
            )
            for at, each in tried
        ]
        traces = [TraceView(example_id=at, trace=found) for at, each in tried if (found := trace_of(each["after"]))]
        made = {name: result.get(name) for name in ("program_json", "candidate", "commit", "diff", "summary")}
        return super().of_work(record, pipeline_outputs=outputs, traces=traces, **made, **more)


def shown_status(work: Work) -> WorkStatus:
    """Return the status of a batch or step as it is shown."""
    return "queued" if work.status == "pending" else work.status  # type: ignore[return-value]  # neither is paused
