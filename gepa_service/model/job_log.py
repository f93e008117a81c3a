"""What the attempts and processes of a job print, for its tenant to read."""

from datetime import datetime
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from gepa_service.records.record import Record


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
