"""The connect proxy: one address for each sandbox, tokens checked, requests forwarded to its port."""

import socket
import uuid
from collections import deque
from contextlib import AsyncExitStack

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from tests.support.modal_cloud.box import Box

_OF_ONE_HOP = ("Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length")


class Front:
    """Everything before one sandbox. `url`: its own; `tokens`: which of them are good, and for which port."""

    def __init__(self, box: Box) -> None:
        self.tokens: dict[str, int] = {}
        self.url = ""
        self._box = box
        self._stack = AsyncExitStack()

    async def open(self, address: str) -> None:
        """Listen at this address of loopback."""
        self._sockets: deque[socket.socket] = deque()
        # A connection for each request: then the socket it takes is surely there.
        connector = aiohttp.TCPConnector(socket_factory=lambda _: self._sockets.popleft(), force_close=True)
        session = aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout())
        self._session = await self._stack.enter_async_context(session)
        app = web.Application(client_max_size=0)  # any size
        app.router.add_route("*", "/{path:.*}", self._forward)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, address, 0).start()
        self.url = f"http://{address}:{runner.addresses[0][1]}"

    def token(self, port: int) -> str:
        """A new one for this port."""
        token = f"ct-{uuid.uuid4().hex}"
        self.tokens[token] = port
        return token

    async def close(self) -> None:
        """Nothing is answered any more."""
        await self._stack.aclose()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        port = self.tokens.get(token) if kind == "Bearer" else None
        if port is None:
            return web.Response(status=401, text="connect token invalid or expired")
        if self._box.ended.done():
            return web.Response(status=502)
        headers = CIMultiDict(request.headers)
        for name in (*_OF_ONE_HOP, "Authorization"):
            headers.popall(name, None)
        try:
            self._sockets.append(await self._box.unconnected())
            async with self._session.request(
                request.method,
                f"http://127.0.0.1:{port}{request.path_qs}",
                headers=headers,
                data=await request.read() if request.can_read_body else None,
                allow_redirects=False,
            ) as answer:
                return await self._answer(request, answer)
        except (aiohttp.ClientError, ConnectionError):
            return web.Response(status=502)

    async def _answer(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        headers = CIMultiDict(answer.headers)
        for name in _OF_ONE_HOP:
            headers.popall(name, None)
        reply = web.StreamResponse(status=answer.status, headers=headers)
        await reply.prepare(request)
        async for data in answer.content.iter_any():
            await reply.write(data)
        await reply.write_eof()
        return reply
