"""The OpenAPI document, which is committed: `python -m gepa_service.api.openapi` writes it, `--check` compares it."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from gepa_service.api.documented import FieldError, ProblemBody

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "openapi.json"


def document_of(app: FastAPI) -> dict[str, Any]:
    """Return the document of an application, with the schema of its errors."""
    made = get_openapi(title=app.title, version=app.version, routes=app.routes, description=app.description)
    template = "#/components/schemas/{model}"
    problem = ProblemBody.model_json_schema(ref_template=template)
    problem.pop("$defs")
    schemas = made.setdefault("components", {}).setdefault("schemas", {})
    made["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    made["security"] = [{"bearer": []}]
    for route in app.routes:
        if isinstance(route, APIRoute) and not _has_caller(route.dependant):
            for method in route.methods or ():
                made["paths"][route.path_format][method.lower()]["security"] = []
    schemas["ProblemBody"], schemas["FieldError"] = problem, FieldError.model_json_schema(ref_template=template)
    return made


def _has_caller(dependant: Dependant) -> bool:
    """Return whether a route requires a caller, see `access.requires`."""
    return hasattr(dependant.call, "permission") or any(map(_has_caller, dependant.dependencies))


def text() -> str:
    """Return the text of the committed document."""
    from gepa_service.api.app import create_app

    return json.dumps(document_of(create_app(None)), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


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
