"""A bubblewrap runtime whose records are a test's own; skipped where there is no bubblewrap that works."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandbox_runtime import Unavailable
from sandbox_runtime.backends.bubblewrap.machine import BUILDER
from sandbox_runtime.backends.bubblewrap.missing import bubblewrap
from sandbox_runtime.backends.bubblewrap.runtime import BubblewrapRuntime
from sandbox_runtime.backends.records import Records


@pytest.fixture(scope="session")
def usable() -> None:
    try:
        bubblewrap(BUILDER if os.geteuid() == 0 else None)
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture
def sockets() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gepa-", dir="/tmp"))  # short, as sockets must be
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def records(tmp_path: Path, sockets: Path) -> Records:
    return Records("bubblewrap", state=tmp_path / "state", sockets=sockets)


@pytest.fixture
async def runtime(usable: None, records: Records, tmp_path: Path) -> AsyncIterator[BubblewrapRuntime]:
    async with BubblewrapRuntime(records=records, environments=tmp_path / "environments", warm=False) as opened:
        yield opened
