"""Fixtures of all tests of sandboxes."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.sandbox_runtime.backend import BACKENDS, BackendUnderTest, missing, short_folder
from tests.support.docker_daemon import import_base, running_daemon

pytest.register_assert_rewrite("tests.sandbox_runtime.suite")  # its failures are as detailed as those of tests


@pytest.fixture
def short() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[BackendUnderTest]:
    """Of the kind that the test is parametrized with, or that its folder is named after."""
    kind = getattr(request, "param", request.path.parent.name)
    if (needs := missing(kind)) is not None:
        pytest.skip(needs)
    if kind == "docker":
        request.getfixturevalue("docker_daemon")
    async with BACKENDS[kind]() as backend:
        yield backend


@pytest.fixture(scope="session")
def docker_daemon() -> Iterator[None]:
    """A Docker daemon that sees no path of the tests, selected by `DOCKER_HOST`, with an image of our own packages."""
    with pytest.MonkeyPatch.context() as patch, running_daemon() as host:
        patch.setenv("DOCKER_HOST", host)
        import_base()
        yield
