"""Rounds of accidents, the undisturbed runs they are measured against, and servers that tests share.

`FAULT_ROUNDS` sets how many seeded rounds each fault gets: 30 by `make faults`; by default 1 for each of its forms. A
round is repeated by its number: `FAULT_ROUNDS=30 pytest 'tests/faults/test_killed_optimizer.py::test_...[17]'`. With 30
all processes start as a user starts them; with fewer, servers and optimizers that nothing happens to are forks.
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults.checking import Undisturbed
from tests.faults.optimizing import LONG_LEASE_S, Run
from tests.faults.runs import Setup
from tests.faults.serving import Server
from tests.gepa_client.journal.mongo_process import MongoProcess
from tests.support.forked_client import ForkServer

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
ALL_ROUNDS = 30
"""From so many on each form of a fault gets all rounds to itself."""

Serve = Callable[[int], Server]
Runs = Callable[..., Run]
Expected = Callable[[Setup], Undisturbed]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "variant(index, of): one of several forms of a fault; few rounds are shared out")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" not in metafunc.fixturenames:
        return
    variant = metafunc.definition.get_closest_marker("variant")
    index, of = variant.args if variant is not None and ROUNDS < ALL_ROUNDS else (0, 1)
    metafunc.parametrize("number", range(index, max(ROUNDS, index + 1), of))


@pytest.fixture(scope="session")
def forks(fork_server: ForkServer) -> ForkServer | None:
    """What forks servers, and optimizers that nothing happens to; None in all rounds."""
    return fork_server if ROUNDS < ALL_ROUNDS else None


@pytest.fixture(scope="session")
def shared_server(forks: ForkServer | None) -> Iterator[Serve]:
    """`shared_server(components)`: a server that tests share, as nothing happens to it."""
    servers: dict[int, Server] = {}

    def serve(components: int) -> Server:
        if components not in servers:
            servers[components] = stack.enter_context(Server(components, forks))
        return servers[components]

    with ExitStack() as stack:
        yield serve


@pytest.fixture
def own_server(forks: ForkServer | None) -> Iterator[Serve]:
    """`own_server(components)`: a server of the test's own, which may be killed; it may be called again."""
    with ExitStack() as stack:
        yield lambda components: stack.enter_context(Server(components, forks))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Runs]:
    """`run(setup, urls, ...)`: a run in the test's own folder; drivers that still run are killed after the test."""
    runs: list[Run] = []

    def make(setup: Setup, urls: list[str], **given: Any) -> Run:
        runs.append(Run(setup, tmp_path / f"run{len(runs)}", urls, **given))
        return runs[-1]

    yield make
    for one in runs:
        one.end()


@pytest.fixture
def calm_run(run: Runs, forks: ForkServer | None) -> Runs:
    """As `run`, for accidents that are not the optimizer's own."""
    return partial(run, fork_server=forks)


@pytest.fixture
def mongo(tmp_path: Path) -> Iterator[MongoProcess]:
    """A MongoDB of the test's own."""
    server = MongoProcess(tmp_path, in_memory=False)
    yield server
    server.kill()


@pytest.fixture(scope="session")
def undisturbed(shared_server: Serve, tmp_path_factory: pytest.TempPathFactory, forks: ForkServer | None) -> Expected:
    """`undisturbed(setup)`: what this run comes to when nothing happens; done once, for all processes of the tests."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def expect(setup: Setup) -> Undisturbed:
        kept = shared / f"undisturbed-{setup.name}.json"
        with (shared / f"undisturbed-{setup.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                folder = Path(tempfile.mkdtemp(prefix="undisturbed-", dir=shared))
                kept.write_text(_run_quietly(setup, folder, shared_server(setup.components), forks).as_json())
        return Undisturbed.from_json(json.loads(kept.read_text()))

    return expect


@pytest.fixture
def setup(number: int) -> Setup:
    """The usual run of a round; ten rounds have the same."""
    return Setup(seed=number // 10)


@pytest.fixture
def expected(setup: Setup, undisturbed: Expected) -> Undisturbed:
    """What the usual run of a round comes to when nothing happens."""
    return undisturbed(setup)


def _run_quietly(setup: Setup, folder: Path, server: Server, forks: ForkServer | None) -> Undisturbed:
    run = Run(setup, folder, [server.url], lease_s=LONG_LEASE_S, fork_server=forks)
    try:
        ended = run.start().wait()
        assert ended.status == 0, str(ended)
        return Undisturbed.of(run)
    finally:
        run.end()
