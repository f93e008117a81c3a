"""The bases every wire model builds on: strict, frozen, closed for requests and open for results."""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Member = TypeVar("Member")

JsonValue = Any
"""Any JSON value. Outputs, trajectories and example data stay opaque: they are carried, never inspected."""

Candidate = dict[str, str]
"""A mapping from component name to component text (GEPA's word)."""

Items = Annotated[list[Member], Field(fail_fast=True)]
"""A list, checked up to its first faulty member: a million faults would cost a thousand times the body they are in."""


def _whole(value: Any) -> Any:
    return int(value) if type(value) is float and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
"""For integers: JSON has one kind of number, so `1.0` and `1e2` are the integers 1 and 100, as in JSON Schema."""


class RequestModel(BaseModel):
    """Something a client sends. Unknown fields are refused, so that a misspelt one is never ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class ResultModel(BaseModel):
    """Something a server answers. Unknown fields are ignored, so that results can grow within a version."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
