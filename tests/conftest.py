"""Settings of every test, and the marker of the suite that it belongs to (`tests/README.md`)."""

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.cpu_seconds import CpuSeconds
from tests.support.forked_client import ForkServer
from tests.support.forked_workers import WORKER, ForkedWorkers
from tests.support.rounds import ALL

TESTS = Path(__file__).parent
FOLDERS = ("faults", "conformance", "evolution")
NAMES = ("hostile", "equality")

# A shell starts its background jobs deaf to Ctrl-C, which they pass on; the commands under test are to hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Hypothesis measures time, which on a busy machine depends on more than the test.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, help="run the tests in so many forks of this process")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuSeconds())
    if (workers := config.getoption("workers")) is not None:
        config.pluginmanager.register(ForkedWorkers(workers))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()  # looking for garbage takes a quarter of the time of importing the tests
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(TESTS)
        if path.parts[0] in FOLDERS:
            item.add_marker(path.parts[0])
        for name in NAMES:
            if name in str(path):
                item.add_marker(name)
    long = [item for item in items if item.get_closest_marker("long") is not None and not ALL]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> ForkServer:
    """Forks `evolverpc` and `evolverpc serve` for the tests of all workers; ends with them."""
    base = tmp_path_factory.getbasetemp()
    if WORKER not in os.environ:
        return ForkServer.shared(base, os.getpid())
    return ForkServer.shared(base.parent, os.getppid())
