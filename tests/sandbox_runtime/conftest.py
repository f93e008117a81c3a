"""Fixtures of all tests of sandboxes."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.sandbox_runtime.suite")  # its failures are as detailed as those of tests


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder for sockets: pytest's own have paths that are too long."""
    folder = Path(tempfile.mkdtemp(prefix="ev", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)
