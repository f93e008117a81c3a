"""A job: one optimization that a tenant asked for, from its request to its end."""

from datetime import datetime
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from gepa_service.records.record import Record

Status = Literal["pending", "running", "paused", "completed", "failed", "cancelled"]
ENDED: frozenset[Status] = frozenset({"completed", "failed", "cancelled"})
"""Statuses that a job never leaves."""


class JobClaim(BaseModel):
    """Which worker runs a job. `beat`: rises while that worker lives; no clock is compared with another's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    worker: str
    beat: int = 0


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
    cost_usd: float | None = None


class Job(Record):
    """One optimization. Its run in the store of journals has the id of the job.

    `settings`: of `evolverpc optimize`, without secrets and without what the service decides. `client_id`: the
    connected repository. `program_id`: the version that a completed job made. `wanted`: what the tenant asked for last;
    the worker acts on it. `failure`: of a failed job: `kind` (`preflight`, `sandbox`, `run`, ...), `message`, and
    for a preflight its findings. `attempts`: how often a worker began or continued it. `setbacks`: how often in a
    row it was interrupted before its run got further. `not_before`: when it may be tried again after a setback.
    `month`: in which it last ran, such as `2026-01`; `usd_before_month`: what it had cost before that.
    """

    kind: ClassVar[str] = "job"
    indexed: ClassVar[tuple[str, ...]] = ("status", "client_id", "program_id", "month")

    status: Status = "pending"
    reason: str | None = None
    wanted: Literal["run", "pause", "cancel"] = "run"
    repo_url: str
    ref: str | None = None
    client_id: str | None = None
    program_id: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    created_by: str
    started: datetime | None = None
    completed: datetime | None = None
    claim: JobClaim | None = None
    attempts: int = 0
    setbacks: int = 0
    not_before: datetime | None = None
    month: str | None = None
    usd_before_month: float = 0.0
    progress: JobProgress = JobProgress()
    failure: dict[str, Any] | None = None


class Turn(Record):
    """When a tenant was served last: `updated`, for the fair order of jobs. `id`: `TURN`."""

    kind: ClassVar[str] = "turn"


TURN = "turn"
