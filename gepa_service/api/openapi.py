"""The OpenAPI document, which is committed: `python -m gepa_service.api.openapi` writes it, `--check` compares it."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from gepa_service.api.access import permission_of, routes_of
from gepa_service.api.audit_log import WRITES
from gepa_service.api.idempotency import LONGEST_KEY
from gepa_service.api.problems import MEDIA_TYPE

IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": r"^[\x20-\x7e]+$"},
    "description": "A write that is sent again with the same key within a day has the response of the first.",
}

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "openapi.json"

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
"""Of every route that requires a permission, see `document_of`."""


def document_of(app: FastAPI) -> dict[str, Any]:
    """Return the document of an application, with the schema of its errors."""
    made = get_openapi(title=app.title, version=app.version, routes=app.routes, description=app.description)
    template = "#/components/schemas/{model}"
    problem = ProblemBody.model_json_schema(ref_template=template)
    problem.pop("$defs")
    schemas = made.setdefault("components", {}).setdefault("schemas", {})
    made["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    made["security"] = [{"bearer": []}]
    for route in routes_of(app):
        if not isinstance(route, APIRoute) or not route.include_in_schema:
            continue
        for method in route.methods or ():
            operation = made["paths"][route.path_format][method.lower()]
            if permission_of(route) is None:
                operation["security"] = []
                continue
            more = documented(*CALLER)
            if method in WRITES:
                operation.setdefault("parameters", []).append(IDEMPOTENCY_KEY)
                more |= documented(409)
            operation["responses"] |= {str(status): each for status, each in more.items()}
    schemas["ProblemBody"], schemas["FieldError"] = problem, FieldError.model_json_schema(ref_template=template)
    return made


def text() -> str:
    """Return the text of the committed document."""
    from gepa_service.api.app import create_app

    return json.dumps(create_app(None).openapi(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    """Return the exit status: 0 if the committed document is that of the routes."""
    parser = argparse.ArgumentParser(prog="python -m gepa_service.api.openapi", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the document is out of date")
    if not parser.parse_args().check:
        DOCUMENT.write_text(text(), encoding="utf-8")
        print(DOCUMENT)
        return 0
    if DOCUMENT.exists() and DOCUMENT.read_text(encoding="utf-8") == text():
        return 0
    print(f"{DOCUMENT} differs from the routes; run: python -m gepa_service.api.openapi", file=sys.stderr)
    return 1


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


if __name__ == "__main__":
    sys.exit(main())
