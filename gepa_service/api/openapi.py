"""The OpenAPI document, which is committed: `python -m gepa_service.api.openapi` writes it, `--check` compares it."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from gepa_service.api.access import permission_of, routes_of
from gepa_service.api.idempotency import LONGEST_KEY
from gepa_service.api.problems import FieldError, ProblemBody, documented
from gepa_service.api.request_log import WRITES

IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": r"^[\x20-\x7e]+$"},
    "description": "A write that is sent again with the same key within a day has the response of the first.",
}

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "openapi.json"

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


if __name__ == "__main__":
    sys.exit(main())
