"""The suite of all runtimes, on each of them."""

from collections.abc import AsyncIterator

import pytest

from tests.sandbox_runtime.backend import BACKENDS, BackendUnderTest, missing
from tests.sandbox_runtime.suite import Ending, Executing, Finding, Keeping, Starting


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[BackendUnderTest]:
    missing_controllers = missing(request.param)
    if missing_controllers is not None:
        pytest.skip(missing_controllers)
    async with BACKENDS[request.param]() as backend:
        yield backend


class TestStarting(Starting):
    pass


class TestExecuting(Executing):
    pass


class TestEnding(Ending):
    pass


class TestKeeping(Keeping):
    pass


class TestFinding(Finding):
    pass
