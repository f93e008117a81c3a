"""What processes write, read as it comes and kept to a bound."""

import asyncio
import os

from evolverpc_common.tail import Tail

_PIECE_BYTES = 256 * 1024


class Heard:
    """The last `kept` bytes of what comes through a pipe.

    The descriptor is read here, not by a transport: some event loops close what they were given a second time.
    """

    def __init__(self, kept: int) -> None:
        self._tail = Tail(kept)
        self._loop = asyncio.get_running_loop()
        self._reading: int | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()

    def pipe(self) -> int:
        """The descriptor to write to; whoever asks closes it. To be called once. Raises `OSError`."""
        self._reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reading, False)
        self._loop.add_reader(self._reading, self._read, self._reading)
        return writing

    def content(self) -> bytes:
        """What is kept."""
        return self._tail.bytes()

    def text(self) -> str:
        """The same as text; what is not UTF-8 is replaced."""
        return self._tail.text()

    async def close(self, within_s: float) -> None:
        """Wait until nobody can write any more, but not longer: what was started may have given it to somebody else."""
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
