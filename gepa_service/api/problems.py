"""Errors of the API as RFC 9457 problems, which name the field and the remedy, and the middleware that answers them."""

import logging
import re
import secrets
from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gepa_client.errors import StoreUnavailable
from gepa_service.auth.oidc import IssuerUnavailable
from gepa_service.auth.recognize import TenantNeeded
from gepa_service.jobs.deletion import DeletionRefused
from gepa_service.records import RecordChanged, RecordsUnavailable
from gepa_service.secrets.envelope import SecretDamaged
from gepa_service.secrets.master_key import MasterKeyError

_log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_S = "2"
"""`Retry-After` of what another attempt can help with."""

MOST_ERRORS = 50
"""Fields that one problem names."""

REMEDIES = {
    400: ("bad-request", "Request not readable", "the request cannot be read"),
    404: ("not-found", "Not found", "there is no such path; /openapi.json lists all"),
    405: ("method", "Method not allowed", "the path has other methods: see the header Allow, or /openapi.json"),
    413: ("too-large", "Body too large", "the body is longer than this service reads"),
    415: ("not-json", "Body not readable", "send JSON, with Content-Type: application/json"),
}
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


class Problem(Exception):
    """An error response. `title`: the same for all of a `type`. `detail`: what is wrong here, and what to do.

    `field`: the path of the request's field, such as `options.max_metric_calls`.
    """

    def __init__(
        self,
        status: int,
        type_: str,
        title: str,
        detail: str,
        *,
        field: str | None = None,
        headers: dict[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = headers or {}
        named = {} if field is None else {"field": field}
        self.body = {"type": f"urn:evolverpc:{type_}", "title": title, "status": status, "detail": detail}
        self.body |= named | members

    def response(self) -> JSONResponse:
        """Return the response."""
        return JSONResponse(self.body, self.status, headers=self.headers, media_type=MEDIA_TYPE)


def not_found(what: str, field: str | None = None) -> Problem:
    """Return the answer for what is absent, and for what belongs to another tenant: they look the same.

    `field`: of the body, that names it.
    """
    named = "" if field is None else f"`{field}`: "
    return Problem(404, "not-found", "Not found", f"{named}there is no such {what}", field=field)


def problem_of(error: Exception, content_type: str = "") -> Problem:
    """Return the problem of an exception; one that is unexpected is logged and leaves without its text.

    `content_type`: of the request.
    """
    match error:
        case Problem():
            return error
        case DeletionRefused():
            return Problem(409, "in-use", "In use", str(error))
        case RequestValidationError():
            return _invalid(error.errors(), content_type)
        case HTTPException():
            return _of_status(error)
        case TenantNeeded():
            detail = f"you are a member of several tenants; name one in the header Evolverpc-Tenant: {error.tenants}"
            return Problem(400, "tenant-needed", "Tenant needed", detail, tenants=error.tenants)
        case RecordChanged():
            detail = "the resource was changed by another request at the same time; read it, then send this again"
            return Problem(409, "changed", "Changed meanwhile", detail, headers={"Retry-After": "1"})
        case RecordsUnavailable() | StoreUnavailable() | IssuerUnavailable():
            _log.warning("a request meets what is unavailable: %s", error)
            what = "OIDC issuer" if isinstance(error, IssuerUnavailable) else "database"
            detail = f"the {what} cannot be used now; send the request again after {RETRY_S} seconds"
            return Problem(503, "unavailable", "Not available now", detail, headers={"Retry-After": RETRY_S})
        case MasterKeyError() | SecretDamaged():
            _log.error("secrets cannot be used: %s", error)
            detail = "the secrets of this service cannot be used now; its operator finds the reason in the log"
            return Problem(503, "secrets-unavailable", "Not available now", detail, headers={"Retry-After": "60"})
    incident = secrets.token_hex(6)
    _log.error("incident %s: unexpected", incident, exc_info=error)
    detail = f"an error of the service, not of the request; its operator finds incident {incident} in the log"
    return Problem(500, "internal", "Internal error", detail, incident=incident)


async def answer(request: Request, error: Exception) -> JSONResponse:
    """Return the response of an exception."""
    return problem_of(error, request.headers.get("content-type", "")).response()


HANDLED = (Problem, RequestValidationError, HTTPException)
"""What the application answers by `answer`; all else passes through to `Failures`."""


def _invalid(errors: Sequence[Any], content_type: str) -> Problem:
    if any(error["type"] == "json_invalid" for error in errors):
        detail = f"the body is no JSON: {errors[0].get('ctx', {}).get('error', 'syntax error')}"
        return Problem(400, "not-json", "Body not readable", detail)
    media = content_type.partition(";")[0].strip().lower()
    in_body = [error for error in errors if error["loc"][:1] == ("body",)]
    if media and media != "application/json" and any(error["loc"] == ("body",) for error in in_body):
        return Problem(415, "not-json", "Body not readable", "send JSON, with Content-Type: application/json")
    named = [{"field": _path(error), "message": _message(error)} for error in errors[:MOST_ERRORS]]
    first = named[0]
    detail = f"{first['field']}: {first['message']}" + (f" (and {len(errors) - 1} more)" if len(errors) > 1 else "")
    return Problem(422, "invalid", "Field not valid", detail, field=first["field"], errors=named)


def _path(error: Any) -> str:
    """Return `options.max_metric_calls`, without where the field was: body, query, path or header.

    What is wrong with several fields of an object has the path of the one that the message names first.
    """
    location = list(error["loc"])
    if error["type"] == "value_error" and (len(location) == 1 or isinstance(location[-1], int)):
        location += re.findall(r"`(\w+)`", str(error["msg"]))[:1]
    return ".".join(map(str, location[1:])) or str(location[0])


def _message(error: Any) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "missing":
        return "is missing: give it"
    if error["type"] == "extra_forbidden":
        return "is not known here: leave it out, or correct its name"
    return message[:1].lower() + message[1:]


def _of_status(error: HTTPException) -> Problem:
    """Return the problem of a status that the framework answers by itself."""
    type_, title, detail = REMEDIES.get(error.status_code, ("refused", "Refused", "the request is refused"))
    return Problem(error.status_code, type_, title, detail, headers=dict(error.headers or {}))


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


def documented(*statuses: int) -> Responses:
    """Return the responses of these errors; a route declares those that not every route of its kind has."""
    schema = {"$ref": "#/components/schemas/ProblemBody"}
    return {each: {"description": DESCRIPTIONS[each], "content": {MEDIA_TYPE: {"schema": schema}}} for each in statuses}


class Failures:
    """Middleware. A response that has begun cannot be replaced: its connection is cut off."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        begun = False

        async def observed(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, observed)
        except Exception as error:
            problem = problem_of(error, Headers(scope=scope).get("content-type", ""))
            if begun:
                raise
            await problem.response()(scope, receive, send)
