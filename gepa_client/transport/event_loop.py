"""Work on an event loop: a background loop for synchronous callers, a bounded group of tasks, a cancellation token."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from gepa_client.errors import Interrupted

T = TypeVar("T")

SIGNAL_POLL_S = 0.5
"""Seconds after which a waiting thread checks for signals: one that arrives as it begins to wait does not wake it."""

STOP_TIMEOUT_S = 5.0
"""Seconds that cancelled work may take to clean up before it is abandoned."""

MAX_TASKS = 4096
"""The most tasks that wait for a slot or have one; the fleet decides how many of them run."""


class CancelToken:
    """A cancellation token for a run, usable from any thread. The first reason given wins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._reason: Interrupted | None = None
        self._listeners: list[Callable[[Interrupted], None]] = []

    @property
    def reason(self) -> Interrupted | None:
        """Why the run must stop; None while it need not."""
        return self._reason

    def cancel(self, reason: Interrupted) -> None:
        """Stop the run; may be called from any thread."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            self._cancelled.set()
            listeners = list(self._listeners)
        for listener in listeners:
            listener(reason)

    def add_listener(self, listener: Callable[[Interrupted], None]) -> None:
        """Have `listener` called on cancellation, on the cancelling thread; at once if that has happened."""
        with self._lock:
            self._listeners.append(listener)
            reason = self._reason
        if reason is not None:
            listener(reason)

    def check(self) -> None:
        """Raise the reason, if there is one."""
        if self._reason is not None:
            raise self._reason.again()

    def pause(self, seconds: float) -> None:
        """Wait so long, but no longer than until there is a reason; raise it then."""
        self._cancelled.wait(seconds)
        self.check()


class EventLoopThread:
    """A background event loop that runs coroutines for synchronous callers, also in notebooks.

    It runs in a daemon thread, so that a script which does not call `close` still ends.
    """

    def __init__(self) -> None:
        import uvloop  # heavy, and commands that only read a store need none

        self._loop = uvloop.new_event_loop()  # a fifth less time for bursts of calls than asyncio's own
        self._thread = threading.Thread(target=self._loop.run_forever, name="gepa-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; return its result or raise its exception.

        If this thread is interrupted meanwhile (Ctrl-C), the work is cancelled, given a moment to clean up, and the
        interruption is raised.

        Raises:
            RuntimeError: the loop is closed, or this is its own thread, where waiting would never end.
        """
        if self._loop.is_closed() or threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("the adapter is closed" if self._loop.is_closed() else "called from its own event loop")
        ended = threading.Event()

        async def supervised() -> T:
            try:
                return await work
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(supervised(), self._loop)
        try:
            while not wait([future], SIGNAL_POLL_S).done:
                pass  # handle a signal that arrived just before the wait
            return future.result()
        except BaseException:
            if future.cancel():  # this thread was interrupted: the work has not ended
                ended.wait(STOP_TIMEOUT_S)
            raise

    def close(self) -> None:
        """Cancel running work and end the thread; safe to call twice."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(STOP_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as `asyncio.run` does, also in a thread that runs a loop already, as a notebook's does."""
    loop = EventLoopThread()
    try:
        return loop.run(work)
    finally:
        loop.close()


def in_daemon_thread(call: Callable[[], T]) -> "asyncio.Future[T]":
    """Begin a call on a daemon thread of its own, for whose end no exit waits; return the future of its result."""
    made: Future[T] = Future()

    def work() -> None:
        try:
            made.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
            made.set_exception(error)

    made.set_running_or_notify_cancel()
    threading.Thread(target=work, name="call", daemon=True).start()
    return asyncio.wrap_future(made)


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=STOP_TIMEOUT_S / 2)


@dataclass(eq=False)
class GroupTask:
    """A task of a group. `run` gets the task itself; `begun` is set once it has an effect that cannot be undone."""

    run: "Callable[[GroupTask], Awaitable[object]]"
    begun: bool = False


async def run_group(tasks: Sequence[GroupTask], width: int = MAX_TASKS) -> None:
    """Run the tasks, started in order, at most `width` at once.

    After the first failure no other task is started, those that have not begun are cancelled, the others awaited; then
    the failure is raised, an interruption before any other. Cancelling the group cancels all its tasks.
    """
    waiting = iter(tasks)
    failures: list[BaseException] = []
    busy_with: dict[asyncio.Task[None], GroupTask] = {}

    async def work() -> None:
        worker = asyncio.current_task()
        for task in waiting:
            if failures or worker is None:
                return
            busy_with[worker] = task
            try:
                await task.run(task)
            except (Exception, Interrupted) as error:  # noqa: BLE001 - raised below, when the others have ended
                failures.append(error)
                if len(failures) == 1:
                    for other, others_task in busy_with.items():
                        if not others_task.begun and other is not worker:
                            other.cancel()

    workers = [asyncio.create_task(work()) for _ in range(min(width, len(tasks)))]
    await asyncio.gather(*workers, return_exceptions=True)  # it passes a cancellation on, and waits for their ends
    if failures:
        raise next((failure for failure in failures if isinstance(failure, Interrupted)), failures[0])
