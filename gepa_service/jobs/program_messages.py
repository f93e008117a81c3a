"""The messages between a worker and the process that works on a program: one JSON object a line."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gepa_service.jobs.job_order import Front


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WorkOrder(_Message):
    """What the process does, the one line of its standard input. `tasks`: those without a result, by their index.

    `settings`: whole, with the backend of the sandboxes and the file of the git token. `front`,
    `allow_networks`, `secrets`: as of `JobOrder`.
    """

    id: str
    what: Literal["rollouts", "step"]
    settings: dict[str, Any]
    candidate: dict[str, str] | None
    mutation: dict[str, Any] | None
    tasks: tuple[tuple[int, dict[str, Any]], ...]
    traces: bool
    parallelism: int
    task_timeout_s: float
    timeout_s: float
    allow_networks: tuple[str, ...]
    front: Front | None = None
    secrets: dict[str, str] = Field(default_factory=dict, repr=False)


class TaskDone(_Message):
    """A task has a result, an `ExampleResult`."""

    event: Literal["task"] = "task"
    index: int
    result: dict[str, Any]


class StepDone(_Message):
    """The step is done."""

    event: Literal["step"] = "step"
    result: dict[str, Any]


class WorkSpent(_Message):
    """What the programs' calls to models have cost since the process began.

    `usd`: US dollars, as far as that is known. `unpriced`: calls whose cost is unknown: no price, or cut off.
    """

    event: Literal["spent"] = "spent"
    usd: float
    unpriced: int


class WorkLog(_Message):
    """A line for the tenant."""

    event: Literal["log"] = "log"
    text: str


class WorkFailed(_Message):
    """The work cannot be done, or not further. `interrupted`: a process was killed, so another try may succeed."""

    event: Literal["failed"] = "failed"
    message: str
    interrupted: bool = False


class WorkOver(_Message):
    """Nothing follows. `timed_out`: the time of the batch was over, and the rest was cancelled."""

    event: Literal["over"] = "over"
    timed_out: bool = False


WorkMessage = TaskDone | StepDone | WorkSpent | WorkLog | WorkFailed | WorkOver
MESSAGES: TypeAdapter[WorkMessage] = TypeAdapter(Annotated[WorkMessage, Field(discriminator="event")])
