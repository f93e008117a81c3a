"""A host on loopback: the first part of a request's path scripts a failure, or a way of answering well.

`echo`: it answers with the text `answer` of the request, of the type `kind`, packed if `is_packed`.
"""

import asyncio
import base64
import gzip
import hashlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

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

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Answers what comes over one connection."""

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
        self.seen: dict[str, int] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):  # the client may leave at any time
            while await self._exchange(reader, writer):
                pass

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first, _, rest = (await reader.readuntil(b"\r\n\r\n")).decode().partition("\r\n")
        _, path, _ = first.split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest.split("\r\n"))}
        body = await self._body(reader, headers)
        way = path.split("/")[1]
        if "sec-websocket-key" in headers and (way == "1000" or way in CLOSES):
            self._close_web_socket(writer, headers["sec-websocket-key"], int(way))
            await writer.drain()
            return False
        self.seen[way] = self.seen.get(way, 0) + 1
        try:
            asked = json.loads(body)
        except ValueError:
            asked = {}
        streamed = bool(asked.get("stream")) or "alt=sse" in path
        failing, _, times = way.partition("x")  # `503x2-name`: two such answers, then good ones
        if not times or self.seen[way] <= int(times.partition("-")[0]):
            return await self._fail(failing, path, asked, writer, streamed=streamed)
        await self._answer(path, asked, writer, streamed=streamed)
        return True

    def _close_web_socket(self, writer: asyncio.StreamWriter, key: str, code: int) -> None:
        accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())  # noqa: S324  # the protocol's
        upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: " + accept.decode()
        frame = b"" if code == 1006 else struct.pack("!BBH", 0x88, 2, code)
        writer.write(f"HTTP/1.1 101 -\r\n{upgrade}\r\n\r\n".encode() + frame)

    async def _body(self, reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return await reader.readexactly(int(headers.get("content-length", 0)))
        parts = []
        while size := int(await reader.readline(), 16):
            parts.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return b"".join(parts)

    async def _fail(
        self, way: str, path: str, asked: dict[str, Any], writer: asyncio.StreamWriter, *, streamed: bool
    ) -> bool:
        if way == "reset":
            _reset(writer)
            return False
        if way == "hang":
            await asyncio.get_running_loop().create_future()  # until it is cancelled
            return False
        if way == "echo":
            body, is_packed = asked["answer"].encode(), bool(asked.get("is_packed"))
            body = gzip.compress(body) if is_packed else body
            more = {"content-encoding": "gzip"} if is_packed else {}
            self._head(writer, 200, asked["kind"], {"content-length": str(len(body)), **more})
            writer.write(body)
            await writer.drain()
            return True
        if way in ("cut", "event", "late-end", "unfinished") and streamed:
            whole = self._events(answer_of(path, asked)[1])
            self._head(writer, 200, "text/event-stream", {"transfer-encoding": "chunked"})
            error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
            failed = f"event: error\ndata: {json.dumps(error if '/messages' in path else LIMIT)}\n\n".encode()
            self._chunk(writer, whole[0] + (failed if way in ("event", "late-end") else b""))
            if way == "late-end":
                await writer.drain()
                await asyncio.sleep(0.2)
            if way != "cut":
                self._chunk(writer, b"")
            await writer.drain()
            return way != "cut"
        if way == "cut":
            self._head(writer, 200, "application/json", {"content-length": "500"})
            writer.write(json.dumps(answer_of(path, asked)[0]).encode()[:60])
            await writer.drain()
            return False
        if way in ("body", "event", "late-end", "unfinished"):
            self._whole(writer, 200, LIMIT)
        elif way == "quota":
            self._whole(writer, 429, {"error": {"message": "no money", "type": "q", "code": "insufficient_quota"}})
        elif way.isdigit():
            error = {"error": {"message": "later", "type": "some_type", "code": "some_code"}}
            self._whole(writer, int(way), error, {"retry-after-ms": "1"})
        else:
            await self._answer(path, asked, writer, streamed=streamed)
        await writer.drain()
        return True

    async def _answer(self, path: str, asked: dict[str, Any], writer: asyncio.StreamWriter, *, streamed: bool) -> None:
        whole, events = answer_of(path, asked)
        if path.endswith("/mcp") and "id" not in asked:  # a notification, or a GET for events, of which it has none
            self._whole(writer, 202 if asked else 405, {})
            return
        if not streamed:
            await asyncio.sleep(0.3 if path.startswith("/slow/") else 0)
            self._whole(writer, 200, whole)
            return
        self._head(writer, 200, "text/event-stream", {"transfer-encoding": "chunked"})
        for event in self._events(events):
            self._chunk(writer, event)
            await writer.drain()
            await asyncio.sleep(0.1 if path.startswith("/slow/") else 0)
        if path.endswith("/chat/completions"):
            self._chunk(writer, b"data: [DONE]\n\n")
        self._chunk(writer, b"")

    def _events(self, events: list[Any]) -> list[bytes]:
        named = [f"event: {event['type']}\n" if "type" in event else "" for event in events]
        return [f"{name}data: {json.dumps(event)}\n\n".encode() for name, event in zip(named, events, strict=True)]

    def _chunk(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _whole(self, writer: asyncio.StreamWriter, status: int, value: Any, more: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self._head(writer, status, "application/json", {"content-length": str(len(body)), **(more or {})})
        writer.write(body)

    def _head(self, writer: asyncio.StreamWriter, status: int, kind: str, more: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} -", f"content-type: {kind}", *(f"{name}: {value}" for name, value in more.items())]
        writer.write("\r\n".join([*lines, "\r\n"]).encode())


def _reset(writer: asyncio.StreamWriter) -> None:
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


async def _serve_reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    _reset(writer)


async def _serve_cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


@asynccontextmanager
async def scripted_host() -> AsyncIterator[dict[str, str]]:
    """URLs: by failure or other way, and of the host itself as `host`."""
    host, writers, answers = ScriptedHost(), [], []

    def until_the_end(answer: Answer) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with closing(writer), suppress(asyncio.CancelledError):
                await answer(reader, writer)

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            answers.append(asyncio.create_task(serve(reader, writer)))

        return connected

    servers = [
        await asyncio.start_server(until_the_end(each), "127.0.0.1", 0, backlog=1000)
        for each in (host.serve, _serve_reset, _serve_cut)
    ]
    addresses = ["http://{}:{}".format(*server.sockets[0].getsockname()) for server in servers]
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        base = addresses[0]
        urls = {way: f"{base}/{way}" for way in (*HTTP_FAILURES, *CLOSES, *OTHER_WAYS)}
        urls |= {"host": base, "reset socket": addresses[1], "cut socket": addresses[2]}
        urls |= {"refused": f"http://127.0.0.1:{silent.getsockname()[1]}", "DNS": "http://models.invalid"}
        try:
            yield urls
        finally:
            for server in servers:  # asyncio leaks a connection that it accepted just before its server is closed
                asyncio.get_running_loop().remove_reader(server.sockets[0].fileno())
            await asyncio.sleep(0.1)
            for server in servers:
                server.close()
            for each in answers:
                each.cancel()
            await asyncio.gather(*answers)
            for writer in writers:
                writer.transport.abort()
            await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
