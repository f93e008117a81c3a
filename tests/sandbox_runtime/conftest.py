"""Fixtures of all tests of sandboxes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox_runtime.backend import short_folder

pytest.register_assert_rewrite("tests.sandbox_runtime.suite")  # its failures are as detailed as those of tests


@pytest.fixture
def short() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder
