"""Event loops of tests that run in a thread of their own, and what they serve."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, Self, TypeVar

T = TypeVar("T")
WAIT_S = 10.0


async def cancel_others() -> int:
    """End every other task of this loop; return how many.

    A task that has not begun begins first: asyncio's own, which has a connection that was just accepted, closes it.
    """
    while any(getcoroutinestate(task.get_coro()) == CORO_CREATED for task in _others()):  # noqa: ASYNC110
        await asyncio.sleep(0)
    tasks = _others()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return len(tasks)


def _others() -> "set[asyncio.Task[Any]]":
    return asyncio.all_tasks() - {asyncio.current_task()}


class LoopThread:
    """A loop that runs in a thread while the `with` block does; tasks that are left are cancelled at its end."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the coroutine returns, which runs there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)


class TcpServer(LoopThread, ABC):
    """Answers the connections to a port of loopback by `_serve`, while the `with` block runs."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._writers: list[asyncio.StreamWriter] = []
        self._server = self.run(asyncio.start_server(self._accepted, "127.0.0.1", 0))
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self.run(cancel_others())
        self.run(self._abort())
        super().__exit__()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Coroutine[Any, Any, None]:
        self._writers.append(writer)
        return self._serve(reader, writer)

    async def _abort(self) -> None:
        """Close what `_serve` has not: it is never entered if it is cancelled before it begins."""
        for writer in self._writers:
            writer.transport.abort()

    @property
    def url(self) -> str:
        """Its own address."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...


@contextmanager
def in_a_thread(opened: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Yield what the asynchronous block yields, which runs in a thread as long as this one."""

    async def enter() -> T:
        return await opened.__aenter__()

    async def leave() -> None:
        await opened.__aexit__(None, None, None)

    with LoopThread() as loop:
        found = loop.run(enter())
        try:
            yield found
        finally:
            loop.run(leave())
