"""Carry the streams of a command at Modal to and from descriptors of this process."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterable, Sequence

from modal import exception
from modal.container_process import ContainerProcess

PIECE = 1 << 16


async def carried(process: ContainerProcess[bytes], streams: Sequence[int]) -> int:
    """Carry stdin, stdout and stderr to their ends, and return the command's status. Raises Modal's own errors.

    The descriptors are closed. Once stdout and stderr have ended, no more of stdin is carried.
    """
    stdin, stdout, stderr = streams
    feeding = asyncio.ensure_future(_fed(process, stdin))
    outputs = [
        asyncio.ensure_future(_copied(process.stdout, stdout)),
        asyncio.ensure_future(_copied(process.stderr, stderr)),
    ]
    try:
        await asyncio.gather(*outputs)
        return await process.wait.aio()
    finally:
        for task in (feeding, *outputs):
            task.cancel()
        await asyncio.gather(feeding, *outputs, return_exceptions=True)


async def _fed(process: ContainerProcess[bytes], stdin: int) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    pipe = os.fdopen(stdin, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        # A command may end without having read its input, which its status shows.
        with contextlib.suppress(exception.Error, ValueError):
            while piece := await reader.read(PIECE):
                process.stdin.write(piece)
                await process.stdin.drain.aio()
            process.stdin.write_eof()
            await process.stdin.drain.aio()
    finally:
        transport.close()


async def _copied(source: AsyncIterable[bytes], to: int) -> None:
    with os.fdopen(to, "wb", buffering=0) as target:
        async for piece in source:
            with contextlib.suppress(BrokenPipeError):  # its reader is gone; the rest is read all the same
                await asyncio.to_thread(_written, target.fileno(), piece)


def _written(descriptor: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
