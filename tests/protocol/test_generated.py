"""The generated schema and OpenRPC document are valid, up to date, and found out when they are not."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import protocol
from protocol import METHODS
from protocol.errors import ALL
from protocol.methods import OPENRPC_FILE, SCHEMA_DIR, SCHEMA_FILE

PACKAGE = Path(protocol.__file__).parent
SCHEMA: dict[str, Any] = json.loads((SCHEMA_DIR / SCHEMA_FILE).read_text(encoding="utf-8"))
OPENRPC: dict[str, Any] = json.loads((SCHEMA_DIR / OPENRPC_FILE).read_text(encoding="utf-8"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PACKAGE, tmp_path / "protocol", ignore=shutil.ignore_patterns("__pycache__")))


def run(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "protocol", *arguments], cwd=package.parent, capture_output=True, text=True, timeout=60
    )


def test_the_files_match_the_models(copy: Path) -> None:
    checked = run(copy, "--check")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_an_altered_and_an_absent_file_fail_the_check_and_are_named_until_written_anew(copy: Path) -> None:
    altered, absent = copy / "schema" / SCHEMA_FILE, copy / "schema" / OPENRPC_FILE
    good = [file.read_text(encoding="utf-8") for file in (altered, absent)]
    altered.write_text(good[0].replace("call_id", "callId", 1), encoding="utf-8")
    absent.unlink()
    checked = run(copy, "--check")
    assert checked.returncode == 1
    assert SCHEMA_FILE in checked.stderr
    assert OPENRPC_FILE in checked.stderr
    assert run(copy).returncode == 0
    assert [file.read_text(encoding="utf-8") for file in (altered, absent)] == good


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def target(document: dict[str, Any], reference: str) -> Any:
    assert reference.startswith("#/")
    node: Any = document
    for part in reference[2:].split("/"):
        node = node[part]
    return node


@pytest.mark.parametrize("document", [SCHEMA, OPENRPC], ids=["schema", "openrpc"])
def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    found = list(references(document))
    assert found
    assert all(isinstance(target(document, reference), dict) for reference in found)


def test_the_openrpc_document_has_the_structure_openrpc_asks_for() -> None:
    # https://spec.open-rpc.org: the required members of each object
    assert OPENRPC["openrpc"].startswith("1.3.")
    assert all(isinstance(OPENRPC["info"][key], str) for key in ("title", "version"))
    assert [method["name"] for method in OPENRPC["methods"]] == list(METHODS)
    for method in OPENRPC["methods"]:
        assert method["paramStructure"] == "by-name"
        for parameter in method["params"]:
            assert isinstance(parameter["required"], bool)
            Draft202012Validator.check_schema(parameter["schema"])
        assert method["result"]["name"]
        Draft202012Validator.check_schema(method["result"]["schema"])
        assert [target(OPENRPC, error["$ref"])["code"] for error in method["errors"]] == [kind.code for kind in ALL]


def test_the_openrpc_document_names_every_param_and_which_are_required() -> None:
    for method in OPENRPC["methods"]:
        shape = SCHEMA["$defs"][METHODS[method["name"]].params.__name__]
        assert [parameter["name"] for parameter in method["params"]] == list(shape["properties"])
        required = [parameter["name"] for parameter in method["params"] if parameter["required"]]
        assert required == shape.get("required", [])
