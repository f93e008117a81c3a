"""The fixtures of GEPA's side: scripted servers, and the real gepa-server."""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import orjson
import pytest

from tests.gepa_client.endpoint_fixtures import eventually, proxy, proxy_to, server, token
from tests.gepa_client.scripted_server import TOKEN

__all__ = ["eventually", "proxy", "proxy_to", "server", "token"]


@pytest.fixture(scope="session")
def gepa_server() -> Callable[..., AbstractContextManager[str]]:
    """Start the real gepa-server in its own process, with the token of the tests' clients; yield its address."""
    return _gepa_server


@contextmanager
def _gepa_server(root: Path, *flags: str, **environment: str) -> Iterator[str]:
    command = [sys.executable, "-m", "rpc_server", "--json", "--root", str(root), "--python", sys.executable, *flags]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment | {"GEPA_TOKEN": TOKEN},
    )
    assert process.stdout is not None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    reader = threading.Thread(target=lambda out: lines.put(out.readline()), args=[process.stdout], daemon=True)
    reader.start()
    try:
        ready = orjson.loads(lines.get(timeout=30) or "{}")
        if "url" not in ready:
            raise AssertionError(f"gepa-server did not start: {ready}")
        yield ready["url"]
    finally:
        process.terminate()
        process.communicate(timeout=20)
