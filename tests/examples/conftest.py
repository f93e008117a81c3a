"""The tickets program in both languages, called in the same way."""

import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TICKETS = ROOT / "examples" / "tickets"
Rows = list[dict[str, str]]


def rows_of(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="session")
def tickets_rows() -> dict[str, Rows]:
    return {split: rows_of(TICKETS / "data" / f"{split}.jsonl") for split in ("train", "val", "test")}


@pytest.fixture(scope="session")
def python_tickets() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tickets_example", TICKETS / "python" / "tickets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def frameworks() -> Iterator[dict[str, ModuleType]]:
    """The modules of `examples/frameworks` by name."""
    sys.path.insert(0, str(ROOT / "examples" / "frameworks"))
    yield {name: importlib.import_module(name) for name in ("run", "starter", "scripted_model")}
    sys.path.pop(0)
