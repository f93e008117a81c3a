"""What every record has: a tenant, an id that sorts by time, and a version that changes with each write."""

import secrets
import time
from datetime import UTC, datetime
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

RANDOM_DIGITS = 15
LONGEST_ID = 64


def now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


def new_id(prefix: str) -> str:
    """Return `PREFIX_` with 32 hex digits: milliseconds since 1970, nanoseconds of this one, then random ones.

    Ids that one thread makes sort in the order in which it made them, as long as the machine's clock is not set back.
    """
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    return f"{prefix}_{milliseconds:012x}{nanoseconds:05x}{secrets.randbits(4 * RANDOM_DIGITS):015x}"


def id_at(prefix: str, moment: datetime) -> str:
    """Return what sorts after the ids of this prefix that were made before the moment, and before all others."""
    return f"{prefix}_{int(moment.timestamp() * 1000):012x}"


class Record(BaseModel):
    """A document of one tenant; (`kind`, `tenant`, `id`) is unique.

    `kind`: names the type in the store. `indexed`: the fields that a page of records can be selected by, whose values
    are texts or None. `version`: the number of times it was written; a write that does not know the present one fails.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: ClassVar[str]
    indexed: ClassVar[tuple[str, ...]] = ()

    tenant: str
    id: str = Field(max_length=LONGEST_ID)
    version: int = 0
    created: datetime = Field(default_factory=now)
    updated: datetime = Field(default_factory=now)
