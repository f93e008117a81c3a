"""The suite of all runtimes, on each of them."""

from collections.abc import AsyncIterator

import pytest

from tests.sandbox_runtime.backend import BACKENDS, BackendUnderTest, missing
from tests.sandbox_runtime.suite import Ending, Executing, Finding, Keeping, Starting


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run all of it with bubblewrap, and with the others how sandboxes start; the rest of these is `long`."""
    if metafunc.definition.get_closest_marker("parametrize") is None:
        rest = () if metafunc.cls is TestStarting else (pytest.mark.long,)
        kinds = [pytest.param(kind, marks=() if kind == "bubblewrap" else rest) for kind in BACKENDS]
        metafunc.parametrize("backend", kinds, indirect=True)


@pytest.fixture
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
