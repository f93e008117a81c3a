"""What groups of settings are made of."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

PositiveInt = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0)]


class Group(BaseModel):
    """Settings that belong together, in the order of `--help`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _as_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
"""Given as one text or as several."""

NumberOrText = Annotated[str, BeforeValidator(_as_text)]
"""A text that may look like a number."""
