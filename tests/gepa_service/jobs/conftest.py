"""A service with the parts of attempts, and records alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gepa_service.platform import Platform, platform


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Platform]:
    with platform(tmp_path) as opened:
        yield opened
