"""Web endpoints of the loopback Modal: HTTP in front, calls of the function behind, as Modal's own proxy makes them."""

from contextlib import AsyncExitStack

from aiohttp import web
from modal._serialization import deserialize_data_format, serialize_data_format
from modal_proto import api_pb2

from tests.support.modal_cloud.functions import Call, Functions

ASGI, PICKLE = api_pb2.DATA_FORMAT_ASGI, api_pb2.DATA_FORMAT_PICKLE
OF_ONE_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}


class WebEndpoint:
    """A web function at an address of loopback."""

    def __init__(self, functions: Functions, name: str) -> None:
        self._functions = functions
        self._name = name
        self._stack = AsyncExitStack()
        self.port = 0

    async def open(self) -> None:
        """Listen."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        self._functions.web_urls[self._name] = f"http://127.0.0.1:{self.port}"

    async def close(self) -> None:
        """Answer nothing more."""
        await self._stack.aclose()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        peer = request.transport.get_extra_info("peername") if request.transport else ("127.0.0.1", 0)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.rel_url.path,
            "raw_path": request.raw_path.partition("?")[0].encode(),
            "query_string": request.rel_url.raw_query_string.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in request.headers.items()],
            "client": tuple(peer[:2]),
        }
        body = await request.read()
        call = self._functions.call(self._name, serialize_data_format(((scope,), {}), PICKLE), PICKLE)
        call.send(serialize_data_format({"type": "http.request", "body": body, "more_body": False}, ASGI))
        try:
            return await self._respond(request, call)
        finally:
            if not call.done.done():  # the client is gone
                call.send(serialize_data_format({"type": "http.disconnect"}, ASGI))

    async def _respond(self, request: web.Request, call: Call) -> web.StreamResponse:
        reply: web.StreamResponse | None = None
        while (chunk := await call.chunks.get()) is not None:
            message = deserialize_data_format(chunk.data, chunk.data_format, None)
            if message["type"] == "http.response.start":
                reply = web.StreamResponse(status=message["status"])
                for name, value in message["headers"]:
                    if name.decode().lower() not in OF_ONE_HOP:
                        reply.headers.add(name.decode(), value.decode("latin-1"))
                await reply.prepare(request)
            elif reply is not None and message["type"] == "http.response.body":
                await reply.write(message["body"])
                if not message["more_body"]:
                    break
        if reply is None:
            return web.Response(status=500, text="modal-http: internal error: function failed")
        await reply.write_eof()
        return reply
