"""An event loop in a thread, for what a synchronous process needs beside its work."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Self, TypeVar

T = TypeVar("T")
END_S = 30.0


class EventThread:
    """Runs coroutines in a loop of its own while the `with` block lasts."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="events of the driver", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(END_S)
        if not self._thread.is_alive():
            self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that runs in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    @contextlib.contextmanager
    def entered(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter an asynchronous context manager for the block. Enter and exit are one task of the loop."""
        leaving = asyncio.Event()
        ready = threading.Event()
        value: list[T] = []

        async def hold() -> None:
            async with manager as found:
                value.append(found)
                ready.set()
                await leaving.wait()

        task = asyncio.run_coroutine_threadsafe(hold(), self.loop)
        task.add_done_callback(lambda _: ready.set())
        try:
            ready.wait()
            if not value:
                task.result()
            yield value[0]
        finally:
            self.loop.call_soon_threadsafe(leaving.set)
            task.result(END_S)
