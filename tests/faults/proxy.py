"""A TCP proxy for HTTP that cuts, delays, truncates, duplicates and answers 502, at random but repeatably."""

import asyncio
import contextlib
import threading
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Self

from tests.support.loops import cancel_others

FAULTS = ("cut_before", "cut_after", "delay", "truncate", "duplicate", "502")
LONGEST_DELAY_S = 0.2
BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 20\r\n\r\n<html>Oh no.</html>\n"


@dataclass(frozen=True)
class Message:
    """One HTTP message as it came: its head with the empty line, and its body."""

    head: bytes
    body: bytes

    @property
    def whole(self) -> bytes:
        """The bytes that are forwarded."""
        return self.head + self.body


class Proxy:
    """Stands before `upstream_port` on loopback; each request suffers a fault with probability `rate`.

    `cut_before`: the request never gets there. `cut_after`: it was answered, and the answer is lost. `truncate`: half
    of the answer arrives. `duplicate`: it is sent twice at once. `502`: it was answered, and a proxy in between returns
    so. `did` counts what happened, by fault.
    """

    def __init__(self, upstream_port: int, random: Random, rate: float) -> None:
        self.upstream_port = upstream_port
        self.did: Counter[str] = Counter()
        self._random = random
        self._rate = rate
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def url(self) -> str:
        """Its own address."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await cancel_others()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) is not None:
                if not await self._answer(request, writer):
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass  # one side is gone: so is this connection
        except asyncio.CancelledError:
            pass  # the proxy closes
        finally:
            writer.transport.abort()  # a reset, as of a cable that was cut

    async def _answer(self, request: Message, writer: asyncio.StreamWriter) -> bool:
        """Deal with one request; returns whether the connection may be used again."""
        fault = self._random.choice(FAULTS) if self._random.random() < self._rate else "none"
        self.did[fault] += 1
        if fault == "cut_before":
            return False
        if fault == "delay":
            await asyncio.sleep(self._random.uniform(0, LONGEST_DELAY_S))
        asked = [self._forward(request) for _ in range(2 if fault == "duplicate" else 1)]
        answer = (await asyncio.gather(*asked))[0]
        if answer is None or fault == "cut_after":
            return False
        whole = BAD_GATEWAY if fault == "502" else answer.whole
        writer.write(whole[: len(whole) - len(answer.body) // 2 - 1] if fault == "truncate" else whole)
        await writer.drain()
        if fault == "truncate":
            writer.close()  # what was written arrives; the rest never does
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return fault != "truncate"

    async def _forward(self, request: Message) -> Message | None:
        """Ask the server behind, on a connection of its own; None if there is no answer."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        except OSError:
            return None
        try:
            writer.write(request.whole)
            return await _read(reader)
        except (OSError, asyncio.IncompleteReadError):
            return None
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Message | None:
    """One message, by the length that its head states or by its chunks; None at the end of the stream."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"transfer-encoding":
            return Message(head, await _chunks(reader))
        if name.strip().lower() == b"content-length":
            length = int(value)
    return Message(head, await reader.readexactly(length))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    """The chunks of a body as they came, up to the last, empty one."""
    found = []
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        found += [line, await reader.readexactly(size + len(b"\r\n"))]
        if not size:
            return b"".join(found)
