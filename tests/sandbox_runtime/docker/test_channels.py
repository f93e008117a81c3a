"""Streams over one connection: how many the other side may have open."""

import asyncio
import socket

from sandbox_runtime.backends.docker.channels import MOST_OPENED, STOP, Channel, Channels


async def test_a_stream_beyond_the_most_is_ended_until_another_one_has_ended() -> None:
    handled: list[int] = []
    release = asyncio.Event()

    async def opened(channel: Channel, _purpose: dict[str, object]) -> None:
        handled.append(channel.number)
        await release.wait()

    ends = [await asyncio.open_connection(sock=end) for end in socket.socketpair()]
    ours, theirs = (Channels(*end, first, opened) for first, end in zip((2, 1), ends, strict=True))
    serving = [asyncio.create_task(each.serve()) for each in (ours, theirs)]
    async with asyncio.timeout(20):
        streams = [await theirs.open({}) for _ in range(MOST_OPENED + 1)]
        assert await streams[-1].next() == (STOP, b"")
        assert handled == [stream.number for stream in streams[:-1]]
        release.set()
        while len(handled) == MOST_OPENED:
            await theirs.open({})
    for task in serving:
        task.cancel()
    await asyncio.wait(serving)
    for _, writer in ends:
        writer.close()
        await writer.wait_closed()
