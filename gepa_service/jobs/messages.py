"""What the service, an attempt and the process of its work exchange.

An attempt asks the service for its work, and orders its process to do it: one line of JSON each. It has no database, as
it runs where the engine placed it. Every report may be delivered twice: the service refuses what is of an earlier
attempt, and counts nothing again.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gepa_service.model.work import LogLine, ProgramWork, Work

End = Literal["completed", "paused", "failed", "cancelled", "interrupted"]

Stopped = Literal["service", "pause", "money"]
"""Why a process was asked to stop: its engine stops, the tenant paused it, or the month's money is spent."""

OTLP_ENDPOINT, OTLP_HEADERS = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"
"""OpenTelemetry's variables: the address of a collector, and the headers of requests to it."""


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


class OptimizeOrder(WorkOrder):
    """Run or continue the run with the id of the work.

    `api`: the address of the service, where the journal is. `token_file`: holds the job's token, which the
    attempt renews. `isolated`: the optimizer runs in a container, else in a process with an environment of its own.
    `collector`: `OTLP_ENDPOINT` and `OTLP_HEADERS` of the operator, if there are any.
    """

    api: str
    token_file: Path
    isolated: bool
    collector: dict[str, str] = Field(default_factory=dict, repr=False)


class ProgramOrder(WorkOrder):
    """Run the tasks of `program`, or make its mutation and run them before and after. `done`: those with a result.

    `warm_mb`: memory that sandboxes which wait for works that may follow may use together, in MiB; 0 if none waits.
    """

    what: Literal["rollouts", "step"]
    program: ProgramWork
    done: frozenset[int]
    warm_mb: int


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


class Begun(Exchanged):
    """What an attempt needs to do its work.

    `token`: of the optimizer, for the journal. `git`: the text of git's configuration for the repository. `secrets`:
    the tenant's, by the names of variables; `headers`: entries of `secret_headers`; `redacted`: values that nothing
    that is kept may hold. `allow_networks`: as of `WorkOrder`. `done`: the tasks of a batch that have a result.
    """

    work: Work
    token: str = Field(repr=False)
    git: str = Field(repr=False)
    secrets: dict[str, str] = Field(repr=False)
    headers: tuple[str, ...]
    redacted: tuple[str, ...] = Field(repr=False)
    allow_networks: tuple[str, ...]
    done: frozenset[int]


class LogLines(Exchanged):
    """Consecutive lines that the processes of the work printed. `id`: of `new_id("log")`."""

    id: Annotated[str, Field(pattern=r"^log_[0-9a-f]{32}$")]
    lines: tuple[LogLine, ...]


class Report(Exchanged):
    """What has happened since the report before. `message`: of the process; `Ended` is the last of an attempt.

    `progress`: have the record state how far the work is. `stopped`: why the process was asked to stop. `redacted`: as
    of `Begun`, with `Ended`.
    """

    message: Message | None = None
    logs: tuple[LogLines, ...] = ()
    progress: bool = False
    stopped: Stopped | None = None
    redacted: tuple[str, ...] = Field(default=(), repr=False)


class Wanted(Exchanged):
    """What the attempt does from now on. `is_over`: the work is no longer this attempt's: end the process at once.

    `stop`: have the process stop, and report how it ended. `token`: of the optimizer, `attempt_token`: of the attempt,
    each in place of the one before.
    """

    is_over: bool = False
    stop: Stopped | None = None
    token: str = Field(default="", repr=False)
    attempt_token: str = Field(default="", repr=False)


class AttemptService(Protocol):
    """The side that keeps the records. Both methods may raise `RecordsUnavailable`: call them again."""

    def begin(self) -> Begun | None:
        """Return what to do; None if there is nothing to do, or the work is not this attempt's."""

    def report(self, report: Report) -> Wanted:
        """Take a report, and return what is wanted."""
