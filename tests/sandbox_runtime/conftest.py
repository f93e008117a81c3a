"""Fixtures of all tests of sandboxes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox_runtime.backend import short_folder
from tests.support.docker_daemon import import_base, running_daemon

pytest.register_assert_rewrite("tests.sandbox_runtime.suite")  # its failures are as detailed as those of tests


@pytest.fixture
def short() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def docker_daemon() -> Iterator[None]:
    """A Docker daemon that sees no path of the tests, selected by `DOCKER_HOST`, with an image of our own packages."""
    with pytest.MonkeyPatch.context() as patch, running_daemon() as host:
        patch.setenv("DOCKER_HOST", host)
        import_base()
        yield
