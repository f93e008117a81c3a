"""What an attempt and the service exchange: one asks for its work and reports, the other keeps the records.

The attempt runs where the engine placed it and has no database. Every report may be delivered twice: the service
refuses what is of an earlier attempt, and counts nothing again.
"""

from typing import Annotated, Literal, Protocol

from pydantic import Field

from gepa_service.jobs.work_order import Exchanged, Message
from gepa_service.model.work import LogLine, Work

Stopped = Literal["service", "pause", "money"]
"""Why a process was asked to stop: its engine stops, the tenant paused it, or the month's money is spent."""


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
