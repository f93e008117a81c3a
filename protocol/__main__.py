"""`python -m protocol` writes the contract as an OpenRPC document from the models, which are its only source.

`--check` fails if the file has drifted.
"""

import argparse
import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from protocol import base, errors
from protocol.base import CURRENT_VERSION
from protocol.evaluation import Step
from protocol.lifecycle import Pending
from protocol.methods import CAPABILITIES, CONTRACT_FILE, METHODS, Method


def _wire_types() -> list[type[BaseModel]]:
    """Every model with a place of its own on the wire: the envelope, steps, and each method's params and result."""
    of_methods = (kind for method in METHODS.values() for kind in (method.params, method.result) if kind is not None)
    return [base.Request, base.SuccessResponse, base.ErrorResponse, Pending, Step, *of_methods]


def contract() -> dict[str, Any]:
    """Return the contract as one OpenRPC document, as `rpc.discover` answers it.

    `components.schemas` holds every type of the wire by name (JSON Schema 2020-12), `components.errors` every error,
    which any method may answer. OpenRPC has no place for the type of a method's params, its first version and its
    idempotence, nor for capabilities: their names begin with `x-`.
    """
    _, document = models_json_schema(
        [(kind, "validation") for kind in _wire_types()], ref_template="#/components/schemas/{model}"
    )
    definitions = document["$defs"]
    return {
        "openrpc": "1.3.2",
        "info": {"title": "EvolveRPC evaluation protocol", "version": CURRENT_VERSION},
        "methods": [_method(method, definitions) for method in METHODS.values()],
        "x-capabilities": CAPABILITIES,
        "components": {
            "errors": {
                kind.__name__: {
                    "code": kind.code,
                    "message": kind.default_message,
                    "data": {"retryable": kind.default_retryable},
                }
                for kind in errors.ALL
            },
            "schemas": definitions,
        },
    }


def _method(method: Method, definitions: dict[str, Any]) -> dict[str, Any]:
    params = definitions[method.params.__name__]
    required = params.get("required", [])
    result = {"$ref": f"#/components/schemas/{method.result.__name__}"} if method.result is not None else {}
    return {
        "name": method.name,
        "summary": method.summary,
        "paramStructure": "by-name",
        "params": [
            {"name": name, "required": name in required, "schema": shape}
            for name, shape in params["properties"].items()
        ],
        "result": {"name": "result", "schema": result},
        **({"tags": [{"name": method.capability}]} if method.capability is not None else {}),
        "x-params": method.params.__name__,
        "x-since": method.since,
        "x-idempotent": method.idempotent,
    }


def main() -> int:
    """Write the document into the package, or compare it; return the exit status: 0 if the file matches the models."""
    parser = argparse.ArgumentParser(prog="python -m protocol", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file is out of date")
    text = json.dumps(contract(), indent=2, ensure_ascii=False) + "\n"
    if parser.parse_args().check:
        if CONTRACT_FILE.is_file() and CONTRACT_FILE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{CONTRACT_FILE} differs from the models in protocol/; run: python -m protocol", file=sys.stderr)
        return 1
    CONTRACT_FILE.parent.mkdir(exist_ok=True)
    CONTRACT_FILE.write_text(text, encoding="utf-8")
    print(CONTRACT_FILE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
