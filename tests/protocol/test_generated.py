"""The generated OpenRPC document is valid, matches the models, and fails the check if it does not."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import protocol
from protocol import METHODS
from protocol.methods import CONTRACT_FILE

PACKAGE = Path(protocol.__file__).parent
OPENRPC: dict[str, Any] = json.loads(CONTRACT_FILE.read_text(encoding="utf-8"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PACKAGE, tmp_path / "protocol", ignore=shutil.ignore_patterns("__pycache__")))


def run(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "protocol", *arguments], cwd=package.parent, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("change", [lambda file: file.write_text("{}"), Path.unlink], ids=["altered", "absent"])
def test_an_altered_or_absent_file_fails_the_check_until_written_anew(
    copy: Path, change: Callable[[Path], Any]
) -> None:
    file = copy / "schema" / CONTRACT_FILE.name
    good = file.read_text(encoding="utf-8")
    change(file)
    checked = run(copy, "--check")
    assert checked.returncode == 1
    assert CONTRACT_FILE.name in checked.stderr
    assert run(copy).returncode == 0
    assert file.read_text(encoding="utf-8") == good


def test_every_reference_leads_somewhere() -> None:
    text = CONTRACT_FILE.read_text(encoding="utf-8")
    found = re.findall(r'"\$ref": "#/components/schemas/(\w+)"', text)
    assert len(found) == text.count('"$ref"') > 0
    assert set(found) <= OPENRPC["components"]["schemas"].keys()


def test_the_document_has_the_structure_that_openrpc_asks_for() -> None:
    # https://spec.open-rpc.org: the required members of each object
    assert OPENRPC["openrpc"].startswith("1.3.")
    assert all(isinstance(OPENRPC["info"][key], str) for key in ("title", "version"))
    assert [method["name"] for method in OPENRPC["methods"]] == list(METHODS)
    for method in OPENRPC["methods"]:
        assert method["paramStructure"] == "by-name"
        shape = OPENRPC["components"]["schemas"][METHODS[method["name"]].params.__name__]
        assert [parameter["name"] for parameter in method["params"]] == list(shape["properties"])
        required = [parameter["name"] for parameter in method["params"] if parameter["required"]]
        assert required == shape.get("required", [])
        for parameter in method["params"]:
            assert isinstance(parameter["required"], bool)
            Draft202012Validator.check_schema(parameter["schema"])
        assert method["result"]["name"]
        Draft202012Validator.check_schema(method["result"]["schema"])
