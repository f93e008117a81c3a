"""HTTP on a port of loopback."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def web_host(answer: Handler | web.Application, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Answer every request by this function, or by this application, while the block runs; yield HOST:PORT."""
    app = answer if isinstance(answer, web.Application) else web.Application(client_max_size=1 << 27)
    if not isinstance(answer, web.Application):
        app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
