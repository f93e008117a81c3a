"""A driver that runs elsewhere, in a container or at Modal, whose streams are pipes of this process."""

import asyncio
import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import IO, Any

from gepa_client.run.supervisor import DRIVER, LaunchDriver, LaunchedDriver

KILLED = -9
LARGEST_LOG = 64 << 20
"""Bytes of what a driver prints that are kept; the rest is thrown away."""

LAST_WORDS_S = 2.0
"""Seconds that the end of what an ended driver printed may take to arrive."""

Begin = Callable[[Mapping[str, str], Sequence[int]], Coroutine[Any, Any, "asyncio.Future[int]"]]
"""Starts the driver with these variables, and these descriptors as its streams; they are duplicated.

Returns the future of its status.
"""

End = Callable[[], Coroutine[Any, Any, None]]


def launcher(begin: Begin, end: End, variables: Mapping[str, str]) -> LaunchDriver:
    """Return the function that launches a driver in the running loop, from another thread.

    `end`: ends the place that it runs in. `variables`: of the driver. What it prints comes through a pipe: it never
    holds the file of the log.
    """
    loop = asyncio.get_running_loop()

    def launch(hash_seed: str, log: IO[bytes], inherited: Sequence[int]) -> LaunchedDriver:
        del inherited  # of a terminal, which no service has
        (read_in, write_in), (read_out, write_out), (read_log, write_log) = os.pipe(), os.pipe(), os.pipe()
        copied = (read_log, os.dup(log.fileno()))
        printing = threading.Thread(target=_copy, args=copied, name="driver's log", daemon=True)
        printing.start()
        try:
            beginning = begin({**variables, "PYTHONHASHSEED": hash_seed}, [read_in, write_out, write_log])
            ending = asyncio.run_coroutine_threadsafe(beginning, loop).result()
        except BaseException:
            os.close(write_in)
            os.close(read_out)
            raise
        finally:
            os.close(read_in)
            os.close(write_out)
            os.close(write_log)
        return _PipedDriver(loop, ending, end, os.fdopen(write_in, "wb"), os.fdopen(read_out, "rb"), printing)

    return launch


def _copy(source: int, target: int) -> None:
    """Copy at most `LARGEST_LOG` bytes of the source; read the rest all the same, so that no writer waits."""
    left = LARGEST_LOG
    with os.fdopen(source, "rb", buffering=0) as reading, os.fdopen(target, "ab", buffering=0) as writing:
        while part := reading.read(1 << 16):
            with contextlib.suppress(OSError):  # the disk is full
                writing.write(part[:left])
            left -= min(left, len(part))


class _PipedDriver:
    """See `LaunchedDriver`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ending: "asyncio.Future[int]",
        end: End,
        stdin: IO[bytes],
        stdout: IO[bytes],
        printing: threading.Thread,
    ) -> None:
        self._loop = loop
        self._end = end
        self._printing = printing
        self._ended = asyncio.run_coroutine_threadsafe(_status(ending), loop)
        self.stdin: IO[bytes] | None = stdin
        self.stdout: IO[bytes] | None = stdout
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
        self._printing.join(LAST_WORDS_S)
        return self.returncode


async def _status(ending: "asyncio.Future[int]") -> int:
    await asyncio.wait({ending})
    return KILLED if ending.cancelled() or ending.exception() is not None else ending.result()
