"""The event loop of a session: sandboxes and their gateway in a thread, while the command works in the main thread."""

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from gepa_client.sandboxing.remote_exec import FindSandbox, serving_exec
from gepa_client.sandboxing.session_interface import Driver, Log
from gepa_client.settings.run_config import RunConfig
from sandbox_runtime import RunningSandbox
from sandbox_runtime.gateway import GatewayRefusal, ProviderCall
from sandbox_runtime.pool import EndpointsFile, PoolEvent, PoolFailed, SandboxPool, endpoints_folder

CLOSE_S = 60.0
"""Seconds that ending everything may take; a sweep ends what is left then."""

LONGEST_EXAMPLE_S = 900.0
"""Seconds that a sandbox without further work may take to complete its calls, code mutations excepted."""


@dataclass(frozen=True)
class Ready:
    """The first sandbox is ready. `fleet`: the file that lists ready sandboxes. `commit`: the one that they all run."""

    fleet: Path
    commit: str


@dataclass(frozen=True)
class BudgetExhausted:
    """The spend cap is reached: the gateway holds all further model calls."""


@dataclass(frozen=True)
class SessionFailed:
    """There is no sandbox, and there will be none, because of `error`."""

    error: BaseException


SessionMessage = Log | Ready | BudgetExhausted | SessionFailed | PoolEvent | ProviderCall | GatewayRefusal


class Setup(Protocol):
    """What sandboxes are started from: a runtime, the program's source and a gateway."""

    @property
    def commit(self) -> str:
        """The full id of the commit that all sandboxes run."""
        ...

    @property
    def find(self) -> FindSandbox:
        """Find a running sandbox by its id."""
        ...

    async def start(self, number: int) -> RunningSandbox:
        """Start a sandbox; see `sandbox_runtime.pool.Start`."""
        ...

    def spent(self, usd: float) -> None:
        """Report what the whole run has spent so far, calls through this gateway included."""
        ...


OpenSetup = Callable[[RunConfig, str, Callable[[SessionMessage], None]], AbstractAsyncContextManager[Setup]]
"""Opens a set-up from the settings, the run's id, and a function that takes its messages."""


def control_message(event: ProviderCall | GatewayRefusal) -> Mapping[str, object]:
    """Return the message of `gepa_client.run.control_messages` for an event of the gateway."""
    if isinstance(event, GatewayRefusal):
        return {"refusal": asdict(event)}
    tokens = event.tokens
    counts = {} if tokens is None else {"input_tokens": tokens.all_input, "output_tokens": tokens.output}
    return {"model_call": {**asdict(event), **counts}}


class SandboxThread:
    """`size` sandboxes in a thread. The main thread calls every method and reads `messages`."""

    def __init__(self, settings: RunConfig, run_id: str, open_setup: OpenSetup, *, size: int) -> None:
        self.messages: queue.SimpleQueue[SessionMessage] = queue.SimpleQueue()
        self._settings = settings
        self._run_id = run_id
        self._open_setup = open_setup
        self._size = size
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._started = threading.Event()
        self._pool: SandboxPool | None = None
        self._setup: Setup | None = None
        self._driver: Driver | None = None
        self._thread = threading.Thread(target=self._run, name="sandboxes", daemon=True)

    def start(self) -> None:
        """Begin to start the sandboxes; `Ready` or `SessionFailed` follows."""
        self._thread.start()
        self._started.wait()

    def report_to(self, driver: Driver | None) -> None:
        """Send calls and refusals straight to the driver from now on, instead of through `messages`."""
        self._driver = driver

    def close(self) -> bool:
        """End all sandboxes; return whether that was done within its time."""
        if self._thread.ident is None:
            return True  # it was never started
        if self._task is not None:
            self._call(self._task.cancel)
        self._thread.join(CLOSE_S)
        return not self._thread.is_alive()

    def to_pool(self, method: Callable[..., object], *arguments: object) -> None:
        """Call a method of the pool in its thread, such as `SandboxPool.demand`, if there is a pool yet."""
        if self._pool is not None:
            self._call(method, self._pool, *arguments)

    def spent(self, usd: float) -> None:
        """See `Setup.spent`."""
        if self._setup is not None:
            self._call(self._setup.spent, usd)

    def _receive(self, message: SessionMessage) -> None:
        driver = self._driver
        if driver is not None and isinstance(message, ProviderCall | GatewayRefusal):
            driver.send(control_message(message))
            return
        self.messages.put(message)
        if isinstance(message, BudgetExhausted) and driver is None and self._task is not None:
            self._task.cancel()  # no driver can end the run: a check would wait for the held calls for ever

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        try:
            loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # the loop was closed in this moment

    def _run(self) -> None:
        try:
            with _warnings_to(self.messages):
                asyncio.run(self._main())
        except asyncio.CancelledError:
            pass  # closed
        except PoolFailed as gave_up:
            self.messages.put(SessionFailed(gave_up.__cause__ or gave_up))
        except Exception as error:  # noqa: BLE001  the main thread raises it
            self.messages.put(SessionFailed(error))
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._started.set()
        with endpoints_folder() as folder:
            async with (
                self._open_setup(self._settings, self._run_id, self._receive) as setup,
                serving_exec(folder, setup.find),
            ):
                self._setup = setup
                endpoints_file = EndpointsFile(folder)
                async with SandboxPool(
                    setup.start,
                    self._size,
                    endpoints_file=endpoints_file,
                    on_event=self.messages.put,
                    starts_per_s=self._settings.starts_per_s,
                    idle_s=self._settings.sandbox_idle_s,
                    retire_s=max(LONGEST_EXAMPLE_S, self._settings.mutation_timeout_s),
                ) as pool:
                    self._pool = pool
                    await pool.first_ready()
                    self.messages.put(Ready(endpoints_file.path, setup.commit))
                    await asyncio.Event().wait()  # until it is cancelled


@contextlib.contextmanager
def _warnings_to(messages: "queue.SimpleQueue[SessionMessage]") -> Iterator[None]:
    """Turn warnings that the runtime logs into messages, so that they are not printed into a display."""

    class QueueHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.put(Log(record.getMessage(), is_warning=True))

    handler, log = QueueHandler(logging.WARNING), logging.getLogger("sandbox_runtime")
    log.addHandler(handler)
    log.propagate, before = False, log.propagate
    try:
        yield
    finally:
        log.propagate = before
        log.removeHandler(handler)
