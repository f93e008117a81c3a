"""Write `gepa_service/client/operations.py` from the routes of the API; `--check` compares it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi.routing import APIRoute
from pydantic import BaseModel

from gepa_service.api.app import create_app
from gepa_service.api.route_table import routes_of

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "gepa_service" / "client" / "operations.py"
LEFT_OUT = {
    "/github/callback",
    "/github/webhook",
    "/metrics",
    "/session",
    "/session/ways",
    "/job/{job_id}/stream",
}
"""Routes for browsers, GitHub and Prometheus, and the one that `ServiceClient.follow` reads."""

NAMES = {"/api/internal/rollouts/batch/{batch_id}/cancel": "cancel_batch"}
"""Methods whose route has the name of another one."""

HEAD = '''"""The operations of the API, a method each. Written by scripts/service_client.py: do not edit."""

from typing import Literal

{imports}
from gepa_service.client.connection import Connection, quoted


class Operations(Connection):
    """One request for each method. Raises `ServiceProblem` and `ServiceUnreachable`."""
'''
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}


def text() -> str:
    """Return the module."""
    app = create_app(None)
    document = app.openapi()
    models: dict[str, str] = {}
    methods = []
    for route in routes_of(app):
        if isinstance(route, APIRoute) and route.include_in_schema and route.path_format not in LEFT_OUT:
            [verb] = route.methods
            methods.append("\n".join(_method(route, verb, document["paths"][route.path_format][verb.lower()], models)))
    names = [re.findall(r"def (\w+)", method)[0] for method in methods]
    if twice := {name for name in names if names.count(name) > 1}:
        raise SystemExit(f"several routes are named {', '.join(sorted(twice))}: give them names in NAMES")
    imports = "\n".join(f"from {module} import {name}" for name, module in sorted(models.items()))
    return _formatted(HEAD.format(imports=imports) + "\n" + "\n\n".join(methods) + "\n")


def _method(route: APIRoute, verb: str, described: dict[str, Any], models: dict[str, str]) -> Iterator[str]:
    path = [each for each in described.get("parameters", ()) if each["in"] == "path"]
    query = [each for each in described.get("parameters", ()) if each["in"] == "query"]
    body = None if route.body_field is None else _named(route.body_field.field_info.annotation, models)
    answer = route.response_model or route.responses.get(200, {}).get("model")
    positional = [f"{each['name']}: str" for each in path] + ([] if body is None else [f"body: {body}"])
    keywords = [f"{each['name']}: {_type(each['schema'])} | None = None" for each in query]
    keywords += ["idempotency_key: str | None = None"] if verb in ("POST", "PUT", "PATCH", "DELETE") else []
    keywords += ['accept: str = "text/html"'] if _is_document(described) else []
    arguments = ", ".join(["self", *positional, *(["*", *keywords] if keywords else [])])
    returned = "None" if route.status_code == 204 else "bytes" if _is_document(described) else _named(answer, models)
    filled = re.sub(r"\{(\w+)\}", r"{quoted(\1)}", route.path_format)
    given = [f'"{verb}"', f'f"{filled}"' if path else f'"{filled}"']
    given += (
        [f"query={{{', '.join(f'{name!r}: {name}' for name in (each['name'] for each in query))}}}"] if query else []
    )
    given += ["body=body"] if body else []
    given += ["idempotency_key=idempotency_key"] if "idempotency_key: str | None = None" in keywords else []
    given += ["accept=accept"] if _is_document(described) else []
    call = f"self._bytes({', '.join(given)})"
    summary = re.split(r"\. |; |\n", route.description or "")[0].removesuffix(".")
    yield f"    def {NAMES.get(route.path_format, route.name)}({arguments}) -> {returned}:"
    yield f'        """{summary}."""'
    if returned == "None":
        yield f"        {call}"
    elif returned == "bytes":
        yield f"        return {call}"
    else:
        yield f"        return self._model({returned}, {', '.join(given)})"


def _is_document(described: dict[str, Any]) -> bool:
    return "text/html" in described["responses"].get("200", {}).get("content", {})


def _named(type_: Any, models: dict[str, str]) -> str:
    """Return how the type of a body or an answer is written; a model is noted with its module."""
    if isinstance(type_, type) and issubclass(type_, BaseModel):
        models[type_.__name__] = type_.__module__
        return type_.__name__
    return str(type_)


def _type(schema: dict[str, Any]) -> str:
    """Return the annotation of a parameter."""
    kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    return " | ".join(map(_single, kinds))


def _single(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    if schema["type"] == "array":
        return f"list[{_type(schema['items'])}]"
    return SIMPLE[schema["type"]]


def _formatted(source: str) -> str:
    command = [str(Path(sys.executable).with_name("ruff"))]
    for words in (["check", "--fix-only", "--quiet", "--select", "F401,I001"], ["format", "--quiet"]):
        done = subprocess.run(  # noqa: S603  the environment's own
            [*command, *words, "--stdin-filename", str(TARGET), "-"],
            input=source,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        source = done.stdout
    return source


def main(arguments: list[str]) -> int:
    """Return the exit status: 1 if the module differs from the routes."""
    if arguments != ["--check"]:
        TARGET.write_text(text(), encoding="utf-8")
        print(TARGET)
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text():
        return 0
    print(f"{TARGET.relative_to(ROOT)} differs from the routes; run: python -m scripts.service_client", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
