"""One background event loop serving GEPA's synchronous one."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import wait
from typing import Any, Generic, TypeVar

import uvloop

T = TypeVar("T")

HEARD_S = 0.5
"""Seconds after which a waiting thread looks for signals: one that comes as it begins to wait does not wake it."""

STOP_TIMEOUT_S = 5.0
"""Seconds that cancelled work may take to tidy up before it is left behind."""


class Bridge:
    """Runs coroutines for synchronous callers, from scripts, notebooks (whose own loop is busy) and tests alike.

    The loop lives in a daemon thread, so that a script which forgets `close` still ends.
    """

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()  # a fifth less time for bursts of calls than asyncio's own
        self._thread = threading.Thread(target=self._loop.run_forever, name="gepa-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end and return its result, or raise what it raised.

        If this thread is interrupted meanwhile (Ctrl-C), the work is cancelled, given a moment to tidy up, and the
        interruption raised.

        Raises:
            RuntimeError: the bridge is closed, or this is its own thread, where waiting would never end.
        """
        if self._loop.is_closed() or threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("the adapter is closed" if self._loop.is_closed() else "called from its own event loop")
        supervised = _Supervised(work)
        try:
            future = asyncio.run_coroutine_threadsafe(supervised.run(), self._loop)
            while not wait([future], HEARD_S).done:
                pass  # a signal that came just before the wait is heard now
            return future.result()
        except BaseException:
            # An interruption may come at any moment, even between two instructions here: ask the work, not a future.
            if not supervised.ended.is_set():
                self._loop.call_soon_threadsafe(supervised.abandon)
                supervised.ended.wait(STOP_TIMEOUT_S)
            raise

    def close(self) -> None:
        """Cancel what runs and end the thread; safe to call twice."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(STOP_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()


class _Supervised(Generic[T]):
    """Work that can be abandoned from another thread, whether it has started or not; `ended` tells that it is over."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.ended = threading.Event()
        self._work = work
        self._task: asyncio.Task[Any] | None = None

    async def run(self) -> T:
        try:
            if self.ended.is_set():
                raise asyncio.CancelledError
            self._task = asyncio.current_task()
            return await self._work
        finally:
            self._work.close()
            self.ended.set()

    def abandon(self) -> None:
        if self._task is None:
            self.ended.set()
        else:
            self._task.cancel()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=STOP_TIMEOUT_S / 2)
