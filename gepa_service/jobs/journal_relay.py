"""The way of a driver to the journal of its job, and to nothing else of the API."""

import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

ANSWER_S = 120.0
PASSED_ON = ("Authorization", "Content-Type")


@asynccontextmanager
async def journal_relay(listening: socket.socket, api: str, job_id: str) -> AsyncIterator[None]:
    """Forward the requests of this job's journal that arrive at the socket to the API, for the block; refuse others."""
    own = re.compile(rf"/job/{re.escape(job_id)}/journal/[a-z_]+")
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S)) as client:

        async def forward(request: web.Request) -> web.StreamResponse:
            if request.method != "POST" or own.fullmatch(request.raw_path) is None:
                raise web.HTTPForbidden(text="only the journal of the own job is here")
            headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
            try:
                async with client.post(
                    api + request.raw_path, data=request.content, headers=headers, allow_redirects=False
                ) as answer:
                    body = await answer.read()
                    return web.Response(status=answer.status, body=body, content_type=answer.content_type)
            except (aiohttp.ClientError, TimeoutError):
                raise web.HTTPBadGateway(text="the API does not answer") from None

        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{path:.*}", forward)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
        await runner.setup()
        try:
            await web.SockSite(runner, listening).start()
            yield
        finally:
            await runner.cleanup()
