"""An environment of its own with DSPy, made once for all tests, and the programs in `data/` opened with it."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from protocol import Example
from rpc_server.program.open_program import open_program
from rpc_server.program.program import Program
from rpc_server.settings import Settings
from tests.rpc_server.program.conftest import Opened as OpenedProgram
from tests.support.installed import python_with

DATA = Path(__file__).parent / "data"
REQUIREMENTS = Path(__file__).parent / "requirements"


@pytest.fixture(scope="session")
def dspy_python() -> Path:
    """The interpreter of an environment with the newest DSPy that is supported."""
    return python_with("dspy-newest", REQUIREMENTS / "newest.txt")


@pytest.fixture(scope="session")
def oldest_dspy_python() -> Path:
    """The interpreter of an environment with the oldest DSPy that is supported."""
    return python_with("dspy-oldest", REQUIREMENTS / "oldest.txt")


def made_project(folder: Path) -> Path:
    """The folder, with the programs and their rows in it."""
    shutil.copytree(DATA, folder, ignore=shutil.ignore_patterns("__pycache__"))
    namespace: dict[str, Any] = {}
    exec((DATA / "codes_task.py").read_text(), namespace)  # noqa: S102  # not importable from here
    (folder / "train.jsonl").write_bytes(b"\n".join(map(orjson.dumps, namespace["TRAIN"])))
    (folder / "val.json").write_bytes(orjson.dumps(namespace["VAL"]))
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the programs and their rows."""
    return made_project(tmp_path / "project")


class Opened(OpenedProgram):
    """A running program with shorthands for tests."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, "")
        self.seed = dict(program.info.seed_candidate)

    async def evaluate(  # type: ignore[override]  # texts in place of a candidate
        self,
        *rows: Any,
        capture_traces: bool = False,
        untyped: bool = False,
        group: str | None = "minibatch",
        **texts: str,
    ) -> list[dict[str, Any]]:
        """The results of one call, in the order of its rows, for the seed with other texts in it."""
        batch = [Example(id=str(number), data=row, untyped=untyped) for number, row in enumerate(rows)]
        evaluate = partial(self.program.evaluate, self.seed | texts, batch, capture_traces=capture_traces, group=group)
        return await self._collect(evaluate, len(rows), 60)

    async def reflect(self, results: list[dict[str, Any]], *components: str, **more: Any) -> dict[str, Any]:
        """The answer to `make_reflective_dataset` for the seed's results."""
        batch = [{"id": str(number), "data": {}} for number in range(len(results))]
        params = {
            "candidate": self.seed,
            "eval_batch": {"batch": batch, "results": results},
            "components_to_update": list(components),
            **more,
        }
        return await self.program.call("make_reflective_dataset", params)


Open = Callable[..., AbstractAsyncContextManager[Opened]]


def opener(project: Path, python: Path) -> Open:
    """`async with opener(...)("codes.Codes", ...)`: a running program of the project, with the settings of a server."""

    @asynccontextmanager
    async def open_dspy(program: str = "codes.Codes", **settings: Any) -> AsyncIterator[Opened]:
        usual = {"kind": "dspy", "metric": "codes.metric", "root": project, "python": python}
        running = await open_program(Settings(program=program, **{**usual, **settings}))
        try:
            yield Opened(running)
        finally:
            await running.close()

    return open_dspy


@pytest.fixture
def opened(project: Path, dspy_python: Path) -> Open:
    """As `opener`, over a project of the test's own."""
    return opener(project, dspy_python)
