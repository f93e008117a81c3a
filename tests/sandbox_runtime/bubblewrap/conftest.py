"""A bubblewrap runtime whose records are a test's own; skipped if bubblewrap does not work here."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox_runtime import RuntimeUnavailable
from sandbox_runtime.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_runtime.backends.bubblewrap.container import BUILDER
from sandbox_runtime.backends.bubblewrap.prerequisites import bubblewrap
from sandbox_runtime.backends.records import SandboxRecords
from sandbox_runtime.runtime import Runtime


@pytest.fixture(scope="session")
def find_control_groups() -> None:
    try:
        bubblewrap(BUILDER if os.geteuid() == 0 else None)
    except RuntimeUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture
def sockets(short: Path) -> Path:
    return short


@pytest.fixture
def records(tmp_path: Path, sockets: Path) -> SandboxRecords:
    return SandboxRecords("bubblewrap", state=tmp_path / "state", sockets=sockets)


@pytest.fixture
async def runtime(find_control_groups: None, records: SandboxRecords, tmp_path: Path) -> AsyncIterator[Runtime]:
    async with BubblewrapBackend(records=records, environments=tmp_path / "environments") as opened:
        yield opened
