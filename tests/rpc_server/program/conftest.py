"""Open the small programs in `data/` as real processes, and check that none outlives its test."""

import asyncio
import shutil
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from protocol import Example, ExampleResult
from rpc_server.program.open_program import open_program
from rpc_server.program.program import Program
from rpc_server.settings import GIVEN_AS, Settings, concerns
from tests.support.processes import processes_with
from tests.support.waiting import eventually

DATA = Path(__file__).parent / "data"
PACKAGE = DATA.parents[3] / "clients" / "typescript" / "dist" / "index.js"
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not PACKAGE.is_file(),
    reason="node is not installed, or the TypeScript package has not been built",
)
MARK = "PROGRAM_TEST_MARK"


class Opened:
    """A running program with shorthands for tests."""

    def __init__(self, program: Program, mark: str) -> None:
        self.program = program
        self._mark = mark

    async def evaluate(
        self, *rows: Any, candidate: dict[str, str] | None = None, seconds: float = 60.0, **more: Any
    ) -> list[dict[str, Any]]:
        """The results of one call, in the order of its rows; it may take so many seconds."""
        batch = [Example(id=str(number), data=row) for number, row in enumerate(rows)]
        candidate = candidate or self.program.info.seed_candidate
        evaluate = partial(self.program.evaluate, candidate, batch, **{"capture_traces": False, **more})
        return await self._collect(evaluate, len(rows), seconds)

    async def one(self, row: Any, **options: Any) -> dict[str, Any]:
        """The result of one example."""
        (result,) = await self.evaluate(row, **options)
        return result

    async def score(self, *pairs: tuple[Any, Any]) -> list[dict[str, Any]]:
        """The results of one call for these rows and outputs, in their order."""
        batch = [Example(id=str(number), data=row) for number, (row, _) in enumerate(pairs)]
        results = [{"status": "rollout", "score": None, "output": output, "seconds": 9.0} for _, output in pairs]
        return await self._collect(partial(self.program.score, batch, results), len(pairs), 60)

    async def _collect(self, call: Callable[..., Any], size: int, seconds: float) -> list[dict[str, Any]]:
        given: dict[int, dict[str, Any]] = {}

        def keep(position: int, result: dict[str, Any]) -> None:
            assert position not in given
            ExampleResult.model_validate(result)
            given[position] = result

        async with asyncio.timeout(seconds):
            await call(on_result=keep)
        return [given[number] for number in range(size)]

    def processes(self) -> dict[int, str]:
        """Every living process that belongs to this program, with its command line."""
        return processes_with(f"{MARK}={self._mark}")


@pytest.fixture(scope="session")
def opened() -> Callable[..., Any]:
    """`async with opened("behaves.py", ...)`: a running program; afterwards none of its processes is left."""

    @asynccontextmanager
    async def open_data(program: str | None = None, **settings: Any) -> AsyncIterator[Opened]:
        mark = uuid.uuid4().hex
        env = {MARK: mark, **settings.pop("env", {})}
        kind = "program" if program is not None else next(name for name in GIVEN_AS if name in settings)
        usual = {
            "root": DATA,
            "python": Path(sys.executable),
            "workers": 2,
            **({"concurrency": settings.get("workers", 2) or 16} if kind == "program" else {}),
            "example_timeout_s": 20.0,
            "start_timeout_s": 20.0,
        }
        given = {**{name: value for name, value in usual.items() if concerns(name, kind)}, **settings}
        running = await open_program(Settings(program=program, env=env, **given))
        try:
            yield Opened(running, mark)
        finally:
            async with asyncio.timeout(20):
                await running.close()
        await eventually(lambda: not processes_with(f"{MARK}={mark}"), 5.0)

    return open_data
