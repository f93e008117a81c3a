"""A runtime of the docker backend, on a daemon of the tests."""

from collections.abc import AsyncIterator

import pytest

from tests.sandbox_runtime.backend import BackendUnderTest, docker_backend
from tests.support.docker_daemon import no_daemon


@pytest.fixture
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[BackendUnderTest]:
    if (needs := no_daemon()) is not None:
        pytest.skip(needs)
    request.getfixturevalue("docker_daemon")
    async with docker_backend() as backend:
        yield backend
