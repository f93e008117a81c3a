"""Write the JSON Schema and the OpenRPC document from the models, which are the only source of the contract."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from protocol import base, errors
from protocol.base import CURRENT_VERSION
from protocol.evaluation import Step
from protocol.lifecycle import Pending
from protocol.methods import CAPABILITIES, METHODS, OPENRPC_FILE, SCHEMA_DIR, SCHEMA_FILE, Method


def wire_types() -> list[type[BaseModel]]:
    """Every model with a place of its own on the wire: the envelope, steps, and each method's params and result."""
    types: list[type[BaseModel]] = [
        base.Request,
        base.SuccessResponse,
        base.ErrorResponse,
        Pending,
        Step,
    ]
    for method in METHODS.values():
        types.append(method.params)
        if method.result is not None:
            types.append(method.result)
    return types


def schema() -> dict[str, Any]:
    """One JSON Schema (2020-12) whose `$defs` hold every wire type by name, plus the tables a reader needs."""
    _, document = models_json_schema([(kind, "validation") for kind in wire_types()])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Evaluation protocol, version {CURRENT_VERSION}",
        "x-methods": {
            name: {
                "params": method.params.__name__,
                "result": method.result.__name__ if method.result is not None else None,
                "capability": method.capability,
                "since": method.since,
                "idempotent": method.idempotent,
            }
            for name, method in METHODS.items()
        },
        "x-capabilities": {name: capability.summary for name, capability in CAPABILITIES.items()},
        "x-errors": {
            kind.__name__: {
                "code": kind.code,
                "message": kind.default_message,
                "retryable": kind.default_retryable,
            }
            for kind in errors.ALL
        },
        "$defs": document["$defs"],
    }


def openrpc() -> dict[str, Any]:
    """Return the same contract as an OpenRPC 1.3 document, as `rpc.discover` answers it."""
    definitions = _moved(schema()["$defs"])
    return {
        "openrpc": "1.3.2",
        "info": {"title": "EvolveRPC evaluation protocol", "version": CURRENT_VERSION},
        "methods": [_openrpc_method(method, definitions) for method in METHODS.values()],
        "components": {
            "schemas": definitions,
            "errors": {kind.__name__: {"code": kind.code, "message": kind.default_message} for kind in errors.ALL},
        },
    }


def _openrpc_method(method: Method, definitions: dict[str, Any]) -> dict[str, Any]:
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
        "errors": [{"$ref": f"#/components/errors/{kind.__name__}"} for kind in errors.ALL],
        **({"tags": [{"name": method.capability}]} if method.capability is not None else {}),
    }


def _moved(node: Any) -> Any:
    """Return the same schema with its references pointing into an OpenRPC document."""
    if isinstance(node, dict):
        return {key: _moved(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_moved(value) for value in node]
    if isinstance(node, str) and node.startswith("#/$defs/"):
        return node.replace("#/$defs/", "#/components/schemas/")
    return node


def documents() -> dict[Path, str]:
    """Each generated file with the text it should hold."""
    return {
        SCHEMA_DIR / SCHEMA_FILE: _text(schema()),
        SCHEMA_DIR / OPENRPC_FILE: _text(openrpc()),
    }


def write() -> list[Path]:
    """Write the files; returns their paths."""
    SCHEMA_DIR.mkdir(exist_ok=True)
    for path, text in documents().items():
        path.write_text(text, encoding="utf-8")
    return list(documents())


def drifted() -> list[Path]:
    """Return the files that are absent or no longer match the models."""
    return [
        path for path, text in documents().items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
