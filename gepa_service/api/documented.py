"""How routes describe their errors in the OpenAPI document."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gepa_service.api.problems import MEDIA_TYPE


class FieldError(BaseModel):
    """What is wrong with one field of a request."""

    field: str
    message: str


class ProblemBody(BaseModel):
    """An error, as RFC 9457 defines it. `field`, `errors`: which fields of the request are wrong."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    errors: list[FieldError] | None = Field(default=None)


DESCRIPTIONS = {
    400: "The request cannot be read.",
    401: "No valid key or token.",
    403: "The role does not permit it.",
    404: "There is no such resource, or it belongs to another tenant.",
    406: "None of the accepted media types can be sent.",
    409: "The state of the resource does not allow it, or it has changed meanwhile.",
    413: "The body is too large.",
    415: "The body is no JSON.",
    422: "A field is wrong.",
    429: "Too many requests, or a quota is used up; `Retry-After` names the seconds to wait.",
    502: "Another service that this needs refused or failed.",
    503: "A database or another part cannot be used now; try again after `Retry-After` seconds.",
}
Responses = dict[int | str, dict[str, Any]]
EVERYWHERE = (400, 413, 422, 429, 503)
CALLER = (401, 403)
"""Of every route that requires a permission, see `openapi.document_of`."""


def documented(*statuses: int) -> Responses:
    """Return the responses of these errors; a route declares those that not every route of its kind has."""
    schema = {"$ref": "#/components/schemas/ProblemBody"}
    return {each: {"description": DESCRIPTIONS[each], "content": {MEDIA_TYPE: {"schema": schema}}} for each in statuses}
