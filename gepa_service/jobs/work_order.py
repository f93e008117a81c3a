"""What an attempt orders the process of its work to do, and what that process reports: one line of JSON each."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from evolverpc_common.redaction import Secrets
from gepa_service.model.work import ProgramWork

End = Literal["completed", "paused", "failed", "cancelled", "interrupted"]


class Exchanged(BaseModel):
    """What one process sends to another."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Front(Exchanged):
    """A port of this machine that sandboxes at Modal reach by the address `url`."""

    port: int
    url: str


class WorkOrder(Exchanged):
    """What is common to all kinds of work. `id`: of the work; `folder`: its own.

    `settings`: of the work, with what the service decides. `front`: given if sandboxes and optimizer are at Modal.
    `secrets`: the tenant's, which the gateway uses; this line alone carries them. `redacted`: values that nothing that
    is kept may hold: of all secrets of the tenant, used here or not. `allow_networks`: besides the public ones, where
    models and other hosts of the gateway may be.
    """

    id: str
    folder: Path
    settings: dict[str, Any]
    front: Front | None = None
    secrets: dict[str, str] = Field(default_factory=dict, repr=False)
    redacted: tuple[str, ...] = Field(default=(), repr=False)
    allow_networks: tuple[str, ...] = ()

    def secrets_of_tenant(self) -> Secrets:
        """Return what replaces the secrets of the tenant."""
        return Secrets(self.redacted, declared=True)


class OptimizeOrder(WorkOrder):
    """Run or continue the run with the id of the work.

    `api`: the address of the service, where the journal is. `token_file`: holds the job's token, which the
    attempt renews. `isolated`: the optimizer runs in a container, else in a process with an environment of its own.
    """

    api: str
    token_file: Path
    isolated: bool


class ProgramOrder(WorkOrder):
    """Run the tasks of `program`, or make its mutation and run them before and after. `done`: those with a result.

    `warm_mb`: memory that sandboxes which wait for works that may follow may use together, in MiB; 0 if none waits.
    """

    what: Literal["rollouts", "step"]
    program: ProgramWork
    done: frozenset[int]
    warm_mb: int

    @property
    def left(self) -> list[tuple[int, dict[str, Any]]]:
        """The tasks without a result, with their index."""
        return [(index, task) for index, task in enumerate(self.program.tasks) if index not in self.done]


Order = OptimizeOrder | ProgramOrder


class TaskDone(Exchanged):
    """A task has a result, an `ExampleResult`."""

    event: Literal["task"] = "task"
    index: int
    result: dict[str, Any]


class Spent(Exchanged):
    """What a batch's or step's calls to models have cost since its process began.

    `usd`: US dollars, as far as that is known. `unpriced`: calls whose cost is unknown: no price, or cut off.
    """

    event: Literal["spent"] = "spent"
    usd: float
    unpriced: int


class Ended(Exchanged):
    """How the process ended its work; nothing follows. `interrupted`: by infrastructure; another attempt continues it.

    `failure`: of failed work: `kind`, `message`, and for a preflight its findings; of interrupted work, what to record
    if it is not tried again. `program_json`: of an optimization, what the program saved of itself. `result`: of a step.
    """

    event: Literal["ended"] = "ended"
    status: End
    reason: str | None = None
    failure: dict[str, Any] | None = None
    program_json: dict[str, Any] | None = None
    result: dict[str, Any] | None = None


Message = Annotated[TaskDone | Spent | Ended, Field(discriminator="event")]


class Begin(Exchanged):
    """Begin the work of an order; its folder's name names it from then on. A process does one optimization."""

    order: OptimizeOrder | ProgramOrder


class Stop(Exchanged):
    """Stop a work: calls of a batch or step are given up, an optimization gives them up at the second request."""

    work: str


class EndWarm(Exchanged):
    """End the sandboxes of a process that wait for a work."""

    warm: Literal[0] = 0


REQUESTS: TypeAdapter[Begin | Stop | EndWarm] = TypeAdapter(Begin | Stop | EndWarm)


class Reported(Exchanged):
    """A message of a work; none follows its `Ended`."""

    work: str
    message: Message


class Warm(Exchanged):
    """How many sandboxes of a process wait for a work, and what memory they may use, in MiB."""

    warm: int
    memory_mb: int


REPORTS: TypeAdapter[Reported | Warm] = TypeAdapter(Reported | Warm)


def failed(kind: str, message: str, **more: Any) -> Ended:
    """Return the end of work that cannot be done."""
    return Ended(status="failed", reason=message, failure={"kind": kind, "message": message, **more})
