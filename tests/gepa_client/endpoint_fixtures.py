"""Fixtures of clients in the test's own process: a scripted server and a proxy that loses responses."""

import asyncio
from collections import deque

import orjson
import pytest
from aiohttp import ClientSession, web

from tests.gepa_client.scripted_server import TOKEN, Host, ScriptedServer


class LossyProxy:
    """Forward to `upstream`; each request takes the next of `faults`, and passes if none is left.

    Each forwards it; then `drop_after` closes the connection, `502` responds with that status, and `hang` does not
    respond for 30 s.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.faults: deque[str] = deque()
        self.only: str | None = None  # the faults apply to requests of this method
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        spared = self.only is not None and orjson.loads(body)["method"] != self.only
        fault = self.faults.popleft() if self.faults and not spared else "pass"
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


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEPA_TOKEN", TOKEN)


@pytest.fixture
def server(host: Host) -> ScriptedServer:
    made = ScriptedServer()
    made.url = host.serve(made.handle)
    return made


@pytest.fixture
def proxy(host: Host, server: ScriptedServer) -> LossyProxy:
    made = LossyProxy(server.url)
    made.url = host.serve(made.handle)
    return made
