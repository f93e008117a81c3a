"""A cache of its own for each test, and wheels in place of an index: nothing is fetched."""

from pathlib import Path

import pytest

from sandbox_runtime.environments.cache import EnvironmentCache
from tests.sandbox_runtime.environments.wheels import HostRun, make_wheel


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "environments"


@pytest.fixture
def environments(cache: Path) -> EnvironmentCache:
    return EnvironmentCache(cache)


@pytest.fixture
def run() -> HostRun:
    return HostRun()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds `greeting` 1.0, the only place packages come from."""
    folder = tmp_path / "wheels"
    make_wheel(folder, "greeting", "1.0", {"greeting.py": "WORDS = 'hello'\n"})
    for name in ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    return folder
