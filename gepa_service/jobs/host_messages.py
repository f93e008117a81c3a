"""What goes between the process that hosts a tenant's batches and steps and the one that started it: lines of JSON."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gepa_service.jobs.work_order import Message, ProgramOrder


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Begin(_Line):
    """Begin the work of an order, which is known by the name of its folder from then on."""

    order: ProgramOrder


class Stop(_Line):
    """Stop a work: calls in flight are given up, its sandboxes are ended."""

    work: str


REQUESTS: TypeAdapter[Begin | Stop] = TypeAdapter(Begin | Stop)


class Reported(_Line):
    """A message of a work; none follows its `Ended`."""

    work: str
    message: Annotated[Message, Field(discriminator="event")]


class Warm(_Line):
    """How many sandboxes wait for a work."""

    warm: int


REPORTS: TypeAdapter[Reported | Warm] = TypeAdapter(Reported | Warm)
