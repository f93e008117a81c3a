"""The suite of all runtimes, on each of them."""

from collections.abc import AsyncIterator

import pytest

from tests.sandbox_runtime.ground import GROUNDS, Ground, missing
from tests.sandbox_runtime.suite import Ending, Executing, Finding, Keeping, Starting


@pytest.fixture(params=GROUNDS)
async def ground(request: pytest.FixtureRequest) -> AsyncIterator[Ground]:
    missing_controllers = missing(request.param)
    if missing_controllers is not None:
        pytest.skip(missing_controllers)
    async with GROUNDS[request.param]() as ground:
        yield ground


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
