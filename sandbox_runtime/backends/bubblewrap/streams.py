"""The input that a command reads and cannot write to, and the capture of its output up to a limit."""

import asyncio
import fcntl
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from evolverpc_common.tail import OutputTail
from sandbox_runtime.api.spec import Command
from sandbox_runtime.backends.bubblewrap.supervisor_client import in_memory

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_INPUT_PIECE_BYTES = 1024 * 1024


@asynccontextmanager
async def input_of(command: Command) -> AsyncIterator[int]:
    """Provide the descriptor of a command's input. Raises `OSError` if its file cannot be read."""
    if isinstance(command.stdin, bytes):
        reading = sealed(command.stdin)
        try:
            yield reading
        finally:
            os.close(reading)
        return
    source = os.open(command.stdin, os.O_RDONLY | os.O_CLOEXEC)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    feeding = threading.Thread(target=_feed, args=(source, writing), name=f"feed {Path(command.stdin).name}")
    feeding.start()
    try:
        yield reading
    finally:
        os.close(reading)  # no process reads it any more, so the thread ends
        await asyncio.to_thread(feeding.join)


def sealed(content: bytes) -> int:
    """Return the descriptor of a file in memory that no process can write to."""
    descriptor = in_memory(content)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


def _feed(source: int, writing: int) -> None:
    # The reader may end before all is read.
    with (
        os.fdopen(source, "rb", buffering=0) as file,
        os.fdopen(writing, "wb", buffering=0) as pipe,
        suppress(BrokenPipeError),
    ):
        while piece := file.read(_INPUT_PIECE_BYTES):
            rest = memoryview(piece)
            while rest:
                rest = rest[pipe.write(rest) :]


_PIECE_BYTES = 256 * 1024


class OutputCapture:
    """Keeps the last `kept` bytes of what is written to a pipe.

    It reads the descriptor itself, without a transport: some event loops close a descriptor a second time.
    """

    def __init__(self, kept: int) -> None:
        self._tail = OutputTail(kept)
        self._loop = asyncio.get_running_loop()
        self._reading: int | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()

    def pipe(self) -> int:
        """Return the descriptor to write to; the caller closes it. Call it once. Raises `OSError`."""
        self._reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reading, False)
        self._loop.add_reader(self._reading, self._read, self._reading)
        return writing

    def content(self) -> bytes:
        """Return the bytes that are kept."""
        return self._tail.bytes()

    def text(self) -> str:
        """Return them as text, with replacements for what is not UTF-8."""
        return self._tail.text()

    async def close(self, within_s: float) -> None:
        """Wait until the pipe is closed, but not longer: a process that was started may have passed it on."""
        if self._reading is not None:
            await asyncio.wait([self._ended], timeout=within_s)
        self._end()

    def _read(self, reading: int) -> None:
        try:
            piece = os.read(reading, _PIECE_BYTES)
        except BlockingIOError:
            return
        if piece:
            self._tail.add(piece)
        else:
            self._end()

    def _end(self) -> None:
        if self._reading is not None:
            self._loop.remove_reader(self._reading)
            os.close(self._reading)
            self._reading = None
        if not self._ended.done():
            self._ended.set_result(None)
