"""The tickets program in both languages, called in the same way."""

import importlib
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TICKETS = ROOT / "examples" / "tickets"
BANKING = ROOT.parent / "shared" / "data" / "banking77"
Rows = list[dict[str, str]]
Call = Callable[..., Any]


def rows_of(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="session")
def tickets_rows() -> dict[str, Rows]:
    return {split: rows_of(TICKETS / "data" / f"{split}.jsonl") for split in ("train", "val", "test")}


@pytest.fixture(scope="session")
def banking_rows() -> dict[str, Rows]:
    if not BANKING.is_dir():
        pytest.skip(f"no data at {BANKING}")
    return {split: rows_of(BANKING / f"ten_{split}.jsonl") for split in ("train", "val", "test")}


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


@pytest.fixture(scope="session")
def typescript_tickets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Call]:
    """`call(name, *args)` runs that function of tickets.ts and returns its result as JSON."""
    node = shutil.which("node")
    compiler = ROOT / "clients" / "typescript" / "node_modules" / ".bin" / "tsc"
    if node is None or not compiler.exists():
        pytest.skip("Node or the TypeScript compiler is not installed (make setup)")
    folder = tmp_path_factory.mktemp("tickets")
    (folder / "package.json").write_text('{"type": "module"}')
    source = shutil.copy(TICKETS / "typescript" / "tickets.ts", folder)
    # types are checked by the example's own build; here only what runs matters
    subprocess.run(
        [compiler, "--noCheck", "--target", "es2023", "--module", "nodenext", source], cwd=folder, check=True
    )
    process = subprocess.Popen(
        [node, Path(__file__).with_name("call_tickets.mjs"), folder / "tickets.js"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert process.stdin is not None and process.stdout is not None

    def call(*name_and_args: Any) -> Any:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(name_and_args) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield call
    process.stdin.close()
    process.wait(timeout=10)
    process.stdout.close()
