"""Carry many streams over the stdin and stdout of one process, with a window for each stream.

Both ends run this file: the backend imports it, and process 1 of a container is this file by `python -I -S -c`. So it
imports nothing but the standard library.

A frame is its stream's number (4 bytes), its kind (1 byte), the length of its content (4 bytes) and the content. The
backend's streams have even numbers, those of the container odd ones. A sender waits once `WINDOW` bytes are not
consumed, so that no stream holds up another.
"""

import asyncio
import ctypes
import json
import os
import signal
import struct
import sys
from collections.abc import Awaitable, Callable

HEAD = struct.Struct(">IBI")
WINDOW = 256 * 1024
PIECE = 32 * 1024
MOST_OPENED = 512
"""Streams that the other side has begun and that are open: a further one is ended at once, as each takes memory."""

READY, OPEN, DATA, ERRORS, END, CONSUMED, STOP, STATUS = range(8)
"""Kinds: process 1 is up; a stream begins, with its purpose as JSON; output or input, and stderr; it ends; so many
bytes of the other side were consumed; end the stream at once; the exit status of a command."""

BROKEN = -1
"""A piece that no frame carries: the other side has ended."""

FAILED = 125
"""The exit status of a command that could not be started, as of `docker run`."""

_DUMPABLE = 4


class BrokenChannels(Exception):
    """The other side sent what is no frame, or has ended."""


class Channel:
    """One stream of both directions."""

    def __init__(self, channels: "Channels", number: int) -> None:
        self._channels = channels
        self.number = number
        self.pieces: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self._room = WINDOW
        self._changed = asyncio.Event()
        self._unread = self._given = 0

    async def send(self, kind: int, content: bytes = b"") -> None:
        """Send a piece; wait for room if it is DATA or ERRORS."""
        if kind in (DATA, ERRORS):
            while self._room < len(content):
                self._changed.clear()
                await self._changed.wait()
            self._room -= len(content)
        await self._channels.write(self.number, kind, content)

    async def next(self) -> tuple[int, bytes]:
        """Return the next piece; the one before it is consumed, and the other side may send as much again.

        Raises `BrokenChannels` if the other side has ended.
        """
        if self._given:
            self._unread -= self._given
            await self._channels.write(self.number, CONSUMED, str(self._given).encode())
        kind, content = await self.pieces.get()
        self._given = len(content) if kind in (DATA, ERRORS) else 0
        if kind == BROKEN:
            self.pieces.put_nowait((kind, content))  # for the next reader
            raise BrokenChannels("the container has ended")
        return kind, content

    def take(self, kind: int, content: bytes) -> None:
        """Accept a piece from the other side."""
        if kind == CONSUMED:
            self._room += int(content)
            self._changed.set()
            return
        if kind in (DATA, ERRORS):
            self._unread += len(content)
            if self._unread > WINDOW:
                raise BrokenChannels(f"more than {WINDOW} bytes of one stream at once")
        self.pieces.put_nowait((kind, content))

    def close(self) -> None:
        """Forget it: later pieces are ignored."""
        self._channels.forget(self.number)


class Channels:
    """All streams of one connection. `opened`: called with each stream that the other side begins, and its purpose."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        first: int,
        opened: "Callable[[Channel, dict[str, object]], Awaitable[None]]",
    ) -> None:
        self._reader, self._writer, self._next = reader, writer, first
        self._opened = opened
        self._channels: dict[int, Channel] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()
        self._broken = False

    async def open(self, purpose: "dict[str, object]") -> Channel:
        """Begin a stream. Raises `BrokenChannels` if the other side has ended."""
        number, self._next = self._next, self._next + 2
        channel = self._channels[number] = Channel(self, number)
        await self.write(number, OPEN, json.dumps(purpose).encode())
        return channel

    async def write(self, number: int, kind: int, content: bytes) -> None:
        """Write one frame. Raises `BrokenChannels` if the other side has ended."""
        if self._broken:
            raise BrokenChannels("the container has ended")
        try:
            async with self._writing:
                self._writer.write(HEAD.pack(number, kind, len(content)) + content)
                await self._writer.drain()
        except OSError as error:
            raise BrokenChannels("the container has ended") from error

    def forget(self, number: int) -> None:
        """Ignore what follows on a stream."""
        self._channels.pop(number, None)

    async def serve(self) -> None:
        """Read frames until the other side has ended or breaks the protocol; then end all streams."""
        try:
            while True:
                number, kind, size = HEAD.unpack(await self._reader.readexactly(HEAD.size))
                if kind > STATUS or size > 16 * 2**20:
                    raise BrokenChannels("what arrives is no frame")
                content = await self._reader.readexactly(size)
                if kind == OPEN and len(self._tasks) >= MOST_OPENED:
                    await self.write(number, STOP, b"")
                elif kind == OPEN:
                    channel = self._channels[number] = Channel(self, number)
                    task = asyncio.create_task(self._handle(channel, json.loads(content)))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                elif number in self._channels:
                    self._channels[number].take(kind, content)
        except (asyncio.IncompleteReadError, OSError, ValueError, BrokenChannels):
            return
        finally:
            self._broken = True
            for channel in self._channels.values():
                channel.pieces.put_nowait((BROKEN, b""))
            for task in tuple(self._tasks):
                task.cancel()

    async def _handle(self, channel: Channel, purpose: "dict[str, object]") -> None:
        try:
            await self._opened(channel, purpose)
        except BrokenChannels:
            return
        finally:
            channel.close()


async def carry(channel: Channel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry a connection over a stream, in both directions, until both have ended or one of them breaks."""

    async def out() -> None:
        while data := await reader.read(PIECE):
            await channel.send(DATA, data)
        await channel.send(END)

    async def back() -> None:
        while True:
            kind, content = await channel.next()
            if kind == STOP:
                raise ConnectionResetError
            if kind == END:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            writer.write(content)
            await writer.drain()

    tasks = [asyncio.create_task(out()), asyncio.create_task(back())]
    try:
        await asyncio.gather(*tasks)
    except OSError:
        await channel.send(STOP)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        writer.close()


class FirstProcess:
    """Process 1 of a container: it runs commands and carries connections, as the backend orders."""

    def __init__(self, python: str, reaper: str) -> None:
        self._python, self._reaper = python, reaper

    async def opened(self, channel: Channel, purpose: "dict[str, object]") -> None:
        """Carry out one order: `{"connect": PORT}`, or `{"run": ARGV, "cwd", "env", "options", "joined"}`."""
        if "connect" in purpose:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", int(str(purpose["connect"])))
            except OSError:
                await channel.send(STOP)
                return
            await carry(channel, reader, writer)
        else:
            await self._run(channel, purpose)

    async def _run(self, channel: Channel, order: "dict[str, object]") -> None:
        argv, options, joined = order["run"], order["options"], order["joined"]
        assert isinstance(argv, list) and isinstance(options, list) and isinstance(order["env"], dict)  # noqa: S101
        try:
            process = await asyncio.create_subprocess_exec(
                *(self._python, "-I", "-S", "-c", self._reaper, f"--owner={os.getpid()}", *options, "--", *argv),
                cwd="/workspace",
                env=order["env"],
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT if joined else asyncio.subprocess.PIPE,
            )
        except OSError as error:
            await channel.send(ERRORS, f"no command can be started: {error.strerror}\n".encode())
            await channel.send(STATUS, str(FAILED).encode())
            return
        tasks = [asyncio.create_task(self._outputs(channel, kind, stream)) for kind, stream in (
            (DATA, process.stdout), (ERRORS, process.stderr)) if stream is not None]  # fmt: skip
        feeding = asyncio.create_task(self._feed(channel, process))
        try:
            status = await process.wait()
            await asyncio.wait(tasks, timeout=2.0)
            await channel.send(STATUS, str(status if status >= 0 else 128 - status).encode())
        finally:
            for task in (feeding, *tasks):
                task.cancel()
            if process.returncode is None:
                process.terminate()

    async def _outputs(self, channel: Channel, kind: int, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(PIECE):
            await channel.send(kind, data)

    async def _feed(self, channel: Channel, process: asyncio.subprocess.Process) -> None:
        stdin = process.stdin
        assert stdin is not None  # noqa: S101  it is a pipe
        while True:
            kind, content = await channel.next()
            if kind == STOP:
                process.terminate()  # its reaper ends everything that it started
                return
            if kind == END:
                stdin.close()
            elif kind == DATA:
                try:
                    stdin.write(content)
                    await stdin.drain()
                except OSError:
                    pass  # it ends, or reads no further: the rest of its input is of no use


async def accept(channels: Channels, port: int) -> None:
    """Carry each connection to this port of the container's loopback to the backend."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = await channels.open({"port": port})
        try:
            await carry(channel, reader, writer)
        finally:
            channel.close()

    await asyncio.start_server(accepted, "127.0.0.1", port, backlog=128)


async def main() -> None:
    """Serve the backend on stdin and stdout: `REAPER_SOURCE [PORT ...]`. The end of stdin ends the container."""
    if ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0) != 0:
        sys.exit("the first process of the container cannot be protected from others")
    for folder in ("/workspace/home", "/workspace/tmp", "/workspace/bin"):
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103  pathlib would be a further import
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    incoming, outgoing = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(incoming, "rb", buffering=0))
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(outgoing, "wb", buffering=0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    first = FirstProcess(sys.executable, sys.argv[1])
    channels = Channels(reader, writer, 1, first.opened)
    for port in sys.argv[2:]:
        await accept(channels, int(port))
    await channels.write(0, READY, b"")
    loop.add_signal_handler(signal.SIGTERM, os._exit, 0)
    await channels.serve()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
