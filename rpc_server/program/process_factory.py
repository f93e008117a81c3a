"""Where program processes come from and where they go: starts in the background, tries again, and bounded ends."""

import asyncio
from collections.abc import Callable

from protocol.errors import ProgramFailed
from rpc_server.program.launch import Launcher
from rpc_server.program.process import ProgramProcess
from rpc_server.program.starting import Started, start_process

TRIES = 2
"""Starts that fail in a row before a program counts as gone."""

_POLITE_S = 1.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


class Supply:
    """Starts processes as ordered. After a failure there is a pause, longer each time, before `on_retry` is called."""

    def __init__(
        self,
        launcher: Launcher,
        *,
        start_timeout_s: float,
        on_started: Callable[[Started], None],
        on_failed: Callable[[ProgramFailed], None],
        on_retry: Callable[[], None],
    ) -> None:
        self._launcher = launcher
        self._start_timeout_s = start_timeout_s
        self._on_started = on_started
        self._on_failed = on_failed
        self._on_retry = on_retry
        self._loop = asyncio.get_running_loop()
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._closed = False
        self.failures = 0
        """Starts that failed since the last that succeeded."""
        self.last_failure: ProgramFailed | None = None
        """Why the last of them failed."""

    def order(self, count: int) -> None:
        """Have `count` processes on their way, those ordered before included; none during a pause."""
        if self._closed or self._pause is not None:
            return
        for _ in range(count - len(self._starting)):
            start = self._loop.create_task(self._start())
            self._starting.add(start)
            start.add_done_callback(self._starting.discard)

    async def _start(self) -> None:
        failures = self.failures
        try:
            started = await start_process(self._launcher, self._start_timeout_s)
        except ProgramFailed as error:
            # Several that were starting together fail together: that counts once.
            if self.failures <= failures:
                self.failed(error)
            return
        self.failures = 0
        self.last_failure = None
        task = asyncio.current_task()
        if task is not None:
            self._starting.discard(task)  # it has arrived: `on_started` may order more
        self._on_started(started)

    def failed(self, error: ProgramFailed) -> None:
        """Count a failure and pause."""
        self.failures += 1
        error.retryable = True  # the program ran before, and is tried again
        self.last_failure = error
        self._on_failed(error)
        if self._pause is None and not self._closed:
            pause = min(_FIRST_PAUSE_S * 2 ** (self.failures - 1), _LONGEST_PAUSE_S)
            self._pause = self._loop.call_later(pause, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._on_retry()

    def end(self, process: ProgramProcess, *, polite: bool) -> None:
        """See a process off in the background: asked first if `polite`, else killed at once."""
        if not polite:
            process.kill()
        task = self._loop.create_task(process.end(polite_s=_POLITE_S if polite else 0))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Stop starting, and wait for all ends."""
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        for start in tuple(self._starting):
            start.cancel()
        await asyncio.gather(*self._starting, *self._ending, return_exceptions=True)
        await self._launcher.close()
