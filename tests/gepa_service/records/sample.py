"""A record with every kind of field that the stores distinguish."""

from typing import Any, ClassVar

from pydantic import Field

from gepa_service.records import Record


class Sample(Record):
    kind: ClassVar[str] = "sample"
    indexed: ClassVar[tuple[str, ...]] = ("status", "owner")

    status: str = "new"
    owner: str | None = None
    number: int = 0
    detail: dict[str, Any] = Field(default_factory=dict)


class Other(Record):
    kind: ClassVar[str] = "other_sample"


def sample(id_: str, tenant: str = "acme", **fields: object) -> Sample:
    return Sample(tenant=tenant, id=id_, **fields)
