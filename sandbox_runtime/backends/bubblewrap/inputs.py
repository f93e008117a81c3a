"""Files in memory, and the input of a command."""

import asyncio
import fcntl
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from sandbox_runtime.api.spec import Command

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_INPUT_PIECE_BYTES = 1024 * 1024


def in_memory(content: bytes) -> int:
    """Return the descriptor of a file in memory with this content, at its beginning."""
    descriptor = os.memfd_create("order", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


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
