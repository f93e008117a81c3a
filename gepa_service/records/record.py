"""What every record has: a tenant, an id that sorts by time, and a version that changes with each write."""

import secrets
import time
from datetime import UTC, datetime
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

RANDOM_BYTES = 10
LONGEST_ID = 64


def now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


def new_id(prefix: str) -> str:
    """Return `PREFIX_` with 32 hex digits: milliseconds since 1970, so that ids sort by time, then random ones."""
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(RANDOM_BYTES)}"


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
