"""A driver that runs elsewhere, in a container or at Modal, whose streams are pipes of this process."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Coroutine, Sequence
from typing import IO, Any

from gepa_client.run.supervisor import DRIVER, LaunchedDriver

KILLED = -9

Begin = Callable[[Sequence[int]], Coroutine[Any, Any, "asyncio.Future[int]"]]
"""Starts the driver with these descriptors as its streams; they are duplicated. Returns the future of its status."""


def launched(
    loop: asyncio.AbstractEventLoop, begin: Begin, end: Callable[[], Coroutine[Any, Any, None]], log: IO[bytes]
) -> LaunchedDriver:
    """Start a driver in the loop, from another thread.

    `end`: ends the place that it runs in. `log`: gets what it prints.
    """
    (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
    try:
        ending = asyncio.run_coroutine_threadsafe(begin([read_in, write_out, log.fileno()]), loop).result()
    except BaseException:
        os.close(write_in)
        os.close(read_out)
        raise
    finally:
        os.close(read_in)
        os.close(write_out)
    return _PipedDriver(loop, ending, end, os.fdopen(write_in, "wb"), os.fdopen(read_out, "rb"))


class _PipedDriver:
    """See `LaunchedDriver`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ending: "asyncio.Future[int]",
        end: Callable[[], Coroutine[Any, Any, None]],
        stdin: IO[bytes],
        stdout: IO[bytes],
    ) -> None:
        self._loop = loop
        self._end = end
        self._ended = asyncio.run_coroutine_threadsafe(_status(ending), loop)
        self.stdin: IO[bytes] | None = stdin
        self.stdout: IO[bytes] | None = stdout
        self.pid = 0
        self.returncode = 0

    def kill(self) -> None:
        """End its place, and all that is in it."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop)

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status, `KILLED` if its place has ended."""
        try:
            self.returncode = self._ended.result(timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(list(DRIVER), timeout or 0.0) from None
        return self.returncode


async def _status(ending: "asyncio.Future[int]") -> int:
    await asyncio.wait({ending})
    return KILLED if ending.cancelled() or ending.exception() is not None else ending.result()
