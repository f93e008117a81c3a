"""A scripted server, a proxy that loses answers, and the real gepa-server, for clients in the test's own process."""

import asyncio
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import orjson
import pytest
from aiohttp import ClientSession, web

from tests.gepa_client.scripted_server import TOKEN, Host, ScriptedServer


class LossyProxy:
    """Forwards to `upstream`; each request takes the next of `faults`, none left means it goes through.

    `drop_after`: the request is answered upstream and the answer lost. `drop_before`: it never gets there. `502`: it is
    answered upstream and something in between says 502. `hang`: the answer never comes.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.faults: deque[str] = deque()
        self.only: str | None = None  # faults for requests of this method alone
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        spared = self.only is not None and orjson.loads(body)["method"] != self.only
        fault = self.faults.popleft() if self.faults and not spared else "pass"
        if fault == "drop_before":
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        kept = {name: request.headers[name] for name in ("Authorization", "Content-Type") if name in request.headers}
        async with ClientSession() as session, session.post(self.upstream, data=body, headers=kept) as response:
            answer = web.Response(body=await response.read(), status=response.status, content_type="application/json")
        if fault == "drop_after":
            assert request.transport is not None
            request.transport.close()
        if fault == "502":
            return web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")
        if fault == "hang":
            await asyncio.sleep(30)
        return answer


@pytest.fixture(scope="session")
def gepa_server() -> Callable[..., AbstractContextManager[str]]:
    """Starts the real gepa-server in its own process, with the token the tests' clients have; yields its address."""
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


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEPA_TOKEN", TOKEN)


@pytest.fixture
def server(host: Host) -> ScriptedServer:
    made = ScriptedServer()
    made.url = host.serve(made.handle)
    return made


@pytest.fixture
def proxy_to(host: Host) -> Callable[[str], LossyProxy]:
    def make(upstream: str) -> LossyProxy:
        made = LossyProxy(upstream)
        made.url = host.serve(made.handle)
        return made

    return make


@pytest.fixture
def proxy(proxy_to: Callable[[str], LossyProxy], server: ScriptedServer) -> LossyProxy:
    return proxy_to(server.url)


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], bool]:
    """Waits, at most 5 s, for something that happens on another thread."""

    def wait(condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + 5
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    return wait
