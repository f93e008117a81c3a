"""A host on loopback: the first part of a request's path scripts a failure, or a way of answering well.

`echo`: it answers with the text `answer` of the request, of the type `kind`, packed if `is_packed`.
"""

import asyncio
import gzip
import json
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from aiohttp import web

STATUSES = ("429", "500", "502", "503", "529", "408")
HTTP_FAILURES = (*STATUSES, "quota", "refused", "reset", "cut", "DNS", "event", "late-end", "unfinished", "body")
"""`quota`: 429 with the code of a used-up account. `body`: an error in a 200.

`event`, `late-end`: a stream with an error event that ends at once, and 0.2 s later. `unfinished`: a stream without its
last events. Answers that are no streams are as by `body`.
"""

SOCKET_FAILURES = ("refused", "reset socket", "cut socket", "DNS")
"""Of hosts that speak no HTTP."""

CLOSES = ("1006", "1011", "1012", "1013")
"""Codes with which a WebSocket is closed at once; 1006: the connection is cut."""

OTHER_WAYS = ("hang", "400", "401", "ok", "1000")
"""No answer, answers that reject what was sent, and good ones."""

EXPECTED = {**dict.fromkeys(("400", "401", "3"), "program_error"), **dict.fromkeys(("ok", "1000", "0"), "ok")}
"""By way, or status of gRPC: the status of an example with one such call, if it is not `infra_error`."""

LIMIT = {"error": {"message": "slow down", "type": "rate_limit_error", "code": 429}}
TEXT = "fine"


def answer_of(path: str, asked: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The body and the events of a good answer, of a model or of an MCP server without tools."""
    model = asked.get("model", "m")
    if path.endswith("/mcp"):
        server = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        return {"jsonrpc": "2.0", "id": asked.get("id"), "result": {**server, "tools": []}}, []
    if path.endswith("/converse"):
        usage = {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}
        message = {"role": "assistant", "content": [{"text": TEXT}]}
        return {"output": {"message": message}, "stopReason": "end_turn", "usage": usage}, []
    if "enerateContent" in path:
        candidate = {"content": {"role": "model", "parts": [{"text": TEXT}]}}
        last = {"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": "STOP"}]}
        whole = {"candidates": [{**candidate, "finishReason": "STOP"}]}
        return whole, [{"candidates": [candidate]}, last]
    if "/messages" in path:
        message = {"id": "1", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn"}
        usage = {"input_tokens": 3, "output_tokens": 2}
        block = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}}
        events = [
            {"type": "message_start", "message": {**message, "stop_reason": None, "content": [], "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *(block, {"type": "content_block_stop", "index": 0}),
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        ]
        return {**message, "content": [{"type": "text", "text": TEXT}], "usage": usage}, events
    head = {"id": "1", "created": 1, "model": model}
    message = {"role": "assistant", "content": TEXT}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    chunk = {**head, "object": "chat.completion.chunk"}
    parts = [{**chunk, "choices": [{"index": 0, "delta": {"content": part}, "finish_reason": None}]} for part in TEXT]
    last = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}, [*parts, last]


class ScriptedHost:
    """Answers requests; `seen`: how many there were by the first part of the path."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request as the first part of its path asks."""
        way = request.path.split("/")[1]
        if "sec-websocket-key" in request.headers and (way == "1000" or way in CLOSES):
            return await self._close_web_socket(request, int(way))
        self.seen[way] += 1
        try:
            asked = json.loads(await request.read())
        except ValueError:
            asked = {}
        failing, _, times = way.partition("x")  # `503x2-name`: two such answers, then good ones
        if times and self.seen[way] > int(times.partition("-")[0]):
            failing = "ok"
        if failing == "reset":
            _end(request.transport, by_reset=True)
            return web.Response()
        if failing == "hang":
            await asyncio.get_running_loop().create_future()  # until it is cancelled
        if failing == "echo":
            body, headers = asked["answer"].encode(), {"content-type": asked["kind"]}
            if asked.get("is_packed"):
                body, headers["content-encoding"] = gzip.compress(body), "gzip"
            return web.Response(body=body, headers=headers)
        if failing == "body":
            return web.json_response(LIMIT)
        if failing == "quota":
            error = {"error": {"message": "no money", "type": "q", "code": "insufficient_quota"}}
            return web.json_response(error, status=429)
        if failing.isdigit():
            error = {"error": {"message": "later", "type": "some_type", "code": "some_code"}}
            return web.json_response(error, status=int(failing), headers={"retry-after-ms": "1"})
        if asked.get("stream") or "alt=sse" in request.query_string:
            return await self._stream(failing, request, asked)
        if failing in ("event", "late-end", "unfinished"):
            return web.json_response(LIMIT)
        return await self._whole(failing, request, asked)

    async def _close_web_socket(self, request: web.Request, code: int) -> web.StreamResponse:
        connection = web.WebSocketResponse()
        await connection.prepare(request)
        if code == 1006:
            _end(request.transport)
        else:
            await connection.close(code=code)
        return connection

    async def _whole(self, way: str, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        if request.path.endswith("/mcp") and "id" not in asked:
            # A notification, or a GET for events, of which it has none.
            return web.json_response({}, status=202 if asked else 405)
        await asyncio.sleep(0.3 if way == "slow" else 0)
        whole, _ = answer_of(request.path, asked)
        if way != "cut":
            return web.json_response(whole)
        response = web.StreamResponse(headers={"content-type": "application/json", "content-length": "500"})
        await response.prepare(request)
        await response.write(json.dumps(whole).encode()[:60])
        _end(request.transport)
        return response

    async def _stream(self, way: str, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        _, given = answer_of(request.path, asked)
        events = [_event(event.get("type"), event) for event in given]
        if request.path.endswith("/chat/completions"):
            events.append(b"data: [DONE]\n\n")
        if way in ("cut", "event", "late-end", "unfinished"):
            del events[1:]
        if way in ("event", "late-end"):
            error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
            events[0] += _event("error", error if "/messages" in request.path else LIMIT)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for event in events:
            await response.write(event)
            await asyncio.sleep(0.1 if way == "slow" else 0.2 if way == "late-end" else 0)
        if way == "cut":
            _end(request.transport)
        return response


def _event(kind: str | None, value: Any) -> bytes:
    name = f"event: {kind}\n" if kind else ""
    return f"{name}data: {json.dumps(value)}\n\n".encode()


def _end(transport: asyncio.BaseTransport | None, *, by_reset: bool = False) -> None:
    """End a connection, unless the client has."""
    if transport is None:
        return
    if by_reset:
        linger = struct.pack("ii", 1, 0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.close()


class _EndedConnection(asyncio.Protocol):
    """A connection that ends as soon as anything comes, or at once if it was accepted while the host ended."""

    def __init__(self, connections: list[asyncio.BaseTransport], host_ended: asyncio.Event, *, by_reset: bool) -> None:
        self._connections = connections
        self._host_ended = host_ended
        self._by_reset = by_reset

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._connections.append(transport)
        if self._host_ended.is_set():
            transport.close()

    def data_received(self, _: bytes) -> None:
        _end(self._transport, by_reset=self._by_reset)


@asynccontextmanager
async def scripted_host() -> AsyncIterator[dict[str, str]]:
    """URLs: by failure or other way, and of the host itself as `host`."""
    application = web.Application(client_max_size=0)
    application.router.add_route("*", "/{path:.*}", ScriptedHost().answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1000).start()
    base = "http://{}:{}".format(*runner.addresses[0])
    urls = {way: f"{base}/{way}" for way in (*HTTP_FAILURES, *CLOSES, *OTHER_WAYS)} | {"host": base}
    connections: list[asyncio.BaseTransport] = []
    servers, host_ended = [], asyncio.Event()
    for way in ("reset socket", "cut socket"):
        ended = partial(_EndedConnection, connections, host_ended, by_reset=way == "reset socket")
        servers.append(await asyncio.get_running_loop().create_server(ended, "127.0.0.1", 0))
        urls[way] = "http://{}:{}".format(*servers[-1].sockets[0].getsockname())
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        urls |= {"refused": f"http://127.0.0.1:{silent.getsockname()[1]}", "DNS": "http://models.invalid"}
        try:
            yield urls
        finally:
            host_ended.set()
            for server in servers:
                server.close()
            for connection in connections:
                connection.close()
            await runner.cleanup()
