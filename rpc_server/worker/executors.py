"""The three executors of user code in a process: the main thread, threads, or one event loop."""

from __future__ import annotations

import contextvars
import inspect
import os
import signal
import sys
import threading
from time import monotonic  # user code may replace it in its module
from typing import TYPE_CHECKING, Any, Awaitable, Coroutine

from .errors import Cancelled, TimeLimit
from .stdio_server import CALL_CANCELLED, Server, parse

if TYPE_CHECKING:
    import asyncio  # costs 30 ms, and its imports would shadow user files of the same names


class MainThreadExecutor:
    """One request at a time in the main thread, with a limit by SIGALRM, which ends sleeps and loops."""

    cancellation: tuple[type[BaseException], ...] = ()

    def __init__(self) -> None:
        self._armed = False
        self._expired = False
        self._loop: asyncio.AbstractEventLoop | None = None
        signal.signal(signal.SIGALRM, self._on_alarm)

    def _on_alarm(self, *_: Any) -> None:
        if self._armed:  # a signal may still arrive just after its timer was stopped
            self._armed = False
            self._expired = True
            raise TimeLimit

    async def resolve(self, value: Any) -> Any:
        """Return the value, or its result if it is awaitable."""
        if not inspect.isawaitable(value):
            return value
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        try:
            return self._loop.run_until_complete(value)
        except TimeLimit:
            self._loop = None  # it stopped in the middle of a step: not fit for another
            raise

    async def within(self, limit_s: float | None, work: Coroutine[Any, Any, Any]) -> Any:
        """Run the work; raises `TimeLimit`."""
        if limit_s is None:
            return await work
        self._expired = False
        self._armed = True
        signal.signal(signal.SIGALRM, self._on_alarm)  # an example before this one may have put in its own
        try:
            signal.setitimer(signal.ITIMER_REAL, limit_s)
            result = await work
        except TimeLimit:
            raise
        except BaseException as problem:
            if self._expired:
                raise TimeLimit from problem
            raise
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        if self._expired:
            raise TimeLimit  # user code caught the first
        return result

    def serve(self, server: Server) -> None:
        """Answer until the end of input."""
        for request in server.channel.requests():
            _drive(server.reply(request, self))


class ThreadExecutor:
    """Each request in a daemon thread, in a copy of the context. No thread can be ended: the process is, instead."""

    cancellation: tuple[type[BaseException], ...] = ()

    async def resolve(self, value: Any) -> Any:
        """Return the value, or its result if it is awaitable."""
        if not inspect.isawaitable(value):
            return value
        import asyncio

        return asyncio.run(_awaited(value))

    async def within(self, limit_s: float | None, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ARG002  # see above
        """Run the work, without a limit."""
        return await work

    def serve(self, server: Server) -> None:
        """Answer until the end of input, then end the process."""
        self.answer_all(server)
        sys.stdout.flush()
        os._exit(0)  # threads may be busy for ever

    def answer_all(self, server: Server) -> None:
        """Answer until the end of input; requests may still run then."""
        for request in server.channel.requests():
            reply = server.reply(request, self)
            threading.Thread(target=contextvars.copy_context().run, args=(_drive, reply), daemon=True).start()


class EventLoopExecutor:
    """All requests on one asyncio loop; each can be cancelled by its `call_id`.

    The server enforces limits, as only it notices a blocked loop: it cancels requests past their limit.
    """

    _GRACE_S = 0.25
    _NEARLY = 0.9  # of the limit: from here on a cancellation is taken for the server's at the deadline

    def __init__(self) -> None:
        import asyncio

        self._asyncio = asyncio
        self.cancellation: tuple[type[BaseException], ...] = (asyncio.CancelledError,)
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def resolve(self, value: Any) -> Any:
        """Return the value, or its result if it is awaitable."""
        return await value if inspect.isawaitable(value) else value

    async def within(self, limit_s: float | None, work: Coroutine[Any, Any, Any]) -> Any:
        """Run the work; raises `TimeLimit` if it is cancelled at its limit, `Cancelled` if before."""
        started = monotonic()
        task = self._asyncio.ensure_future(work)
        try:
            await self._asyncio.wait({task})
        except self._asyncio.CancelledError:
            late = limit_s is not None and monotonic() - started > self._NEARLY * limit_s
            await self._stop(task)
            raise (TimeLimit if late else Cancelled) from None
        return task.result()

    async def _stop(self, task: asyncio.Future[Any]) -> None:
        task.cancel()
        await self._asyncio.wait({task}, timeout=self._GRACE_S)
        if task.done() and not task.cancelled():
            task.exception()  # mark the exception as retrieved

    def serve(self, server: Server) -> None:
        """Answer until the end of input."""
        with open(server.channel.source, "rb", buffering=0, closefd=False) as source:
            self._asyncio.run(self._serve(server, source))

    async def _serve(self, server: Server, source: Any) -> None:
        loop, reader = self._asyncio.get_running_loop(), self._asyncio.StreamReader(limit=sys.maxsize)
        await loop.connect_read_pipe(lambda: self._asyncio.StreamReaderProtocol(reader), source)
        while (line := await reader.readline()).endswith(b"\n"):
            self._start_request(server, parse(line))

    def _start_request(self, server: Server, request: dict[str, Any]) -> None:
        if request["method"] == "cancel":
            task = self._calls.get(request["params"]["call_id"])
            if task is not None:
                task.cancel()
            status = "finished" if task is None else "cancelled"
            server.channel.answer(request["id"], "result", '{"status":"%s"}' % status)
            return
        task = self._asyncio.get_running_loop().create_task(server.reply(request, self))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():  # before its first step
                server.respond_error(request, CALL_CANCELLED)

        task.add_done_callback(ended)
        call_id = (request["params"].get("_meta") or {}).get("call_id")
        if call_id is not None:
            self._calls[call_id] = task
            task.add_done_callback(lambda _: self._calls.pop(call_id, None))


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def _drive(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits: everything it awaits is resolved at once."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise RuntimeError("a coroutine waited where nothing can be waited for")
