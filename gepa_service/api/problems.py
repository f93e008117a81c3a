"""Errors of the API as RFC 9457 problems, which name the field and the remedy."""

from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

MEDIA_TYPE = "application/problem+json"


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


def not_found(what: str) -> Problem:
    """Return the answer for what is absent, and for what belongs to another tenant: they look the same."""
    return Problem(404, "not-found", "Not found", f"there is no such {what}")


async def answer(_request: Request, problem: Exception) -> JSONResponse:
    """Return the response of a `Problem`."""
    assert isinstance(problem, Problem)  # noqa: S101  registered for this class alone
    return JSONResponse(problem.body, problem.status, headers=problem.headers, media_type=MEDIA_TYPE)
