"""Servers that cannot start."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.forked_client import SERVER, ForkServer

Refusal = Callable[..., str]


@pytest.fixture
def refusal(fork_server: ForkServer) -> Refusal:
    """`refusal(folder, *arguments, **variables)`: what a server that cannot start prints to stderr."""

    def run(folder: Path, *arguments: str, **variables: str) -> str:
        given = {**os.environ, **variables}
        status, _, printed = fork_server.run(arguments, folder=folder, environment=given, module=SERVER)
        assert status == 2, printed.decode()
        return printed.decode()

    return run
