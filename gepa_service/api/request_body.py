"""The body of a request."""

from pydantic import BaseModel, ConfigDict


class RequestBody(BaseModel):
    """What a request gives; a field that is not known here is refused."""

    model_config = ConfigDict(extra="forbid")
