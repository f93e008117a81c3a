"""A TCP proxy for HTTP that cuts, delays, truncates, duplicates and answers 502, at random but repeatably."""

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass
from random import Random

from tests.support.loops import TcpServer

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


class Proxy(TcpServer):
    """Stands before `upstream_port` on loopback; each request suffers a fault with probability `rate`.

    `cut_before`: the request never gets there. `cut_after`: it was answered, and the answer is lost. `truncate`: half
    of the answer arrives. `duplicate`: it is sent twice at once. `502`: it was answered, and a proxy in between returns
    so. `did` counts what happened, by fault.
    """

    def __init__(self, upstream_port: int, random: Random, rate: float) -> None:
        super().__init__()
        self.upstream_port = upstream_port
        self.did: Counter[str] = Counter()
        self._random = random
        self._rate = rate

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
