"""Files in memory, and the input of a command."""

import asyncio
import fcntl
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandbox_runtime.api.spec import Command

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


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
    # By a pipe: with the descriptor of the file itself, the command could open the file to write to it.
    with command.open_input() as source:
        feeding = subprocess.Popen(("cat",), stdin=source, stdout=subprocess.PIPE)  # noqa: ASYNC220, S607  a millisecond
    assert feeding.stdout is not None  # noqa: S101  it is a pipe
    try:
        yield feeding.stdout.fileno()
    finally:
        feeding.stdout.close()  # no process reads it any more, so `cat` ends
        await asyncio.to_thread(feeding.wait)


def sealed(content: bytes) -> int:
    """Return the descriptor of a file in memory with this content, at its beginning; no process can write to it."""
    descriptor = os.memfd_create("content", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor
