"""The fixtures of GEPA's side: scripted servers, and the real server."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from gepa_client.journal.store import Store
from tests.gepa_client.endpoint_fixtures import server, token
from tests.gepa_client.journal.stored_journals import watched
from tests.gepa_client.scripted_server import TOKEN
from tests.support.forked_client import ForkServer

__all__ = ["server", "token"]


@pytest.fixture(scope="session")
def gepa_server(fork_server: ForkServer) -> Callable[..., AbstractContextManager[str]]:
    """Start the real server in its own process, with the token of the tests' clients; yield its address."""

    @contextmanager
    def serve(root: Path, *flags: str, **environment: str) -> Iterator[str]:
        arguments = ("--root", str(root), "--python", sys.executable, *flags)
        with fork_server.running_server(*arguments, env={**environment, "GEPA_TOKEN": TOKEN}) as endpoint:
            yield endpoint.url

    return serve


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with the run of the tests in it."""
    with watched(tmp_path) as made:
        yield made
