"""The sandboxes of one command: started before its work, controlled by the run's events, ended with it."""

import asyncio
import contextlib
import logging
import math
import queue
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from types import FrameType
from typing import Any

from evolverpc_common.display_text import counted
from evolverpc_common.processes import signals_handled
from gepa_client.journal.run_events import Event, Finished, FleetChanged, Progress
from gepa_client.run.control_messages import CapMessage, GatewayMessage
from gepa_client.run.output_folder import unpack_artifacts
from gepa_client.sandboxing.remote_exec import serving_exec
from gepa_client.sandboxing.session_interface import SWEEP, Driver, Log, NoSandboxes, Show
from gepa_client.sandboxing.session_messages import (
    ConnectionLog,
    SessionFailed,
    SessionMessage,
    control_message,
    pool_log,
    refusal_log,
)
from gepa_client.sandboxing.setup import Setup
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.run_settings import MUTATION_LIMIT_S
from gepa_client.transport.address import socket_of
from sandbox_runtime import EnvironmentMissing, RuntimeInterrupted, SandboxError
from sandbox_runtime.backends.records import owned_folders
from sandbox_runtime.endpoints_file import SESSIONS, EndpointsFile
from sandbox_runtime.gateway import CapReached, GatewayRefusal, HostConnection, ProviderCall
from sandbox_runtime.pool import PoolEvent, SandboxPool

IDLE_S = 60.0
"""Seconds of work for fewer sandboxes after which one ends."""

COLLECT_S = 120.0
"""Seconds that reading a program's files may take."""

SHOWN = 5
"""Files that are named one by one."""

OpenSetup = Callable[[RunConfig, str, Callable[[SessionMessage], None]], AbstractAsyncContextManager[Setup]]
"""Opens a set-up from the settings, the run's id, and a function that takes its messages."""


@dataclass(frozen=True)
class OpenSandboxes:
    """A set-up and a pool that starts sandboxes from it."""

    setup: Setup
    pool: SandboxPool

    async def collect_artifacts(self, endpoint: str, folder: Path) -> list[Log]:
        """Copy the program's artifacts from the sandbox of an endpoint; return what to report."""
        copied, left_out = list[str](), list[str]()
        try:
            async with asyncio.timeout(COLLECT_S):
                client = await self.setup.at(endpoint)
                contents = [] if client is None else await client.artifacts()
            for content in filter(None, contents):
                unpacked = await asyncio.to_thread(unpack_artifacts, content, folder)
                copied += unpacked[0]
                left_out += unpacked[1]
        except (SandboxError, OSError) as error:
            reason = str(error) or f"it took longer than {COLLECT_S:g} s"
            return [Log(f"the program's artifacts could not be copied from its sandbox: {reason}", is_warning=True)]
        logs = [Log(f"{counted(len(copied), 'file')} of the program copied to {folder}")] if copied else []
        if b"" in contents:
            logs.append(Log("the program's folder `artifacts` is not there: nothing was copied", is_warning=True))
        if left_out:
            more = f" and {len(left_out) - SHOWN} more" if len(left_out) > SHOWN else ""
            logs.append(
                Log(f"not copied from the program's artifacts: {', '.join(left_out[:SHOWN])}{more}", is_warning=True)
            )
        return logs

    async def program_config(self, endpoint: str) -> dict[str, Any]:
        """Return the `gepa.toml` of the program at an endpoint, which is untrusted; empty if there is none.

        Raises:
            SandboxError: it cannot be read.
        """
        try:
            async with asyncio.timeout(COLLECT_S):
                client = await self.setup.at(endpoint)
                return {} if client is None else await client.config()
        except TimeoutError:
            raise SandboxError(f"gepa.toml was not read within {COLLECT_S:g} s") from None


@asynccontextmanager
async def open_sandboxes(
    opening: Callable[[], AbstractAsyncContextManager[Setup]], size: int, on_event: Callable[[PoolEvent], None]
) -> AsyncIterator[OpenSandboxes]:
    """Open the set-up and start `size` sandboxes for the block; all end with it. `on_event`: as of `SandboxPool`.

    Raises:
        Exception: what `opening` raises.
    """
    with owned_folders(SESSIONS) as folders:
        async with opening() as setup, serving_exec(folders.sockets, setup.find):
            file = EndpointsFile(folders.sockets)
            async with SandboxPool(
                setup.start, size, endpoints_file=file, on_event=on_event, idle_s=IDLE_S, retire_s=MUTATION_LIMIT_S
            ) as pool:
                yield OpenSandboxes(setup, pool)


CLOSE_S = 60.0
"""Seconds that ending everything may take; a sweep ends what is left then."""

CAP_GRACE_S = 70.0
"""Seconds from the spend cap to the end of the sandboxes; longer than the driver needs to abandon calls that are held
and to end the run by itself."""

ASK_EVERY_S = 15.0
"""Seconds between two requests for a new token of a sandbox that takes no calls."""

SERVER, WARNING = "evolverpc serve: ", "evolverpc serve: warning: "
"""How lines of the server begin in a log."""


class SessionNotStarted(Exception):
    """No sandbox became ready; the text begins with what its server refused, if it did, and has the end of its log.

    `must_publish`: at Modal, the environment was never built. `size`: how many were wanted. `was_interrupted`: a
    process was killed, so another try may succeed.
    """

    def __init__(self, error: BaseException, *, must_publish: bool, size: int = 1) -> None:
        tail = str(getattr(error, "log_tail", "")).strip()
        more = f"\n{tail}" if tail and tail not in str(error) else ""
        refused = [text for text in tail.splitlines() if text.startswith(SERVER) and not text.startswith(WARNING)]
        first = f"{refused[-1].removeprefix(SERVER)}\n" if refused else ""
        none = "no sandbox" if size == 1 else f"none of {size} sandboxes"
        super().__init__(f"{first}{none} could be started: {error}{more}")
        self.must_publish = must_publish
        self.was_interrupted = isinstance(error, RuntimeInterrupted)


class SandboxSession(NoSandboxes):
    """`size` sandboxes started from the repository that `settings` name.

    They and their gateway run in the event loop of a thread; the main thread calls the public methods.
    """

    def __init__(self, settings: RunConfig, run_id: str, open_setup: OpenSetup, *, size: int) -> None:
        super().__init__(settings)
        self._run_id = run_id
        self._open_setup = open_setup
        self._size = size
        self._messages: queue.SimpleQueue[SessionMessage] = queue.SimpleQueue()
        self._task: asyncio.Task[None] | None = None
        self._started = threading.Event()
        self._opened: OpenSandboxes | None = None
        self._driver: Driver | None = None
        self._thread = threading.Thread(target=self._run, name="sandboxes", daemon=True)
        self._exhausted_s: float | None = None
        self._in_cooldown: dict[str, float] = {}
        self._connections = ConnectionLog()

    def start(self, show: Show, progress: Callable[[str], None], *, spent_usd: float = 0.0) -> None:
        """Start the sandboxes and wait for the first; `settings` then name its commit and the fleet file.

        `progress` gets the number of sandboxes that are ready, `spent_usd` is what the run has spent before.

        Raises:
            SessionNotStarted: none became ready.
        """
        self._thread.start()
        self._started.wait()
        for_driver: list[SessionMessage] = []
        is_ready = False
        while not is_ready:
            match message := self._messages.get():
                case SessionFailed():
                    if not isinstance(message.error, SandboxError | OSError | ValueError):
                        raise message.error
                    unpublished = isinstance(message.error, EnvironmentMissing) and self.settings.sandbox == "modal"
                    raise SessionNotStarted(message.error, must_publish=unpublished, size=self._size) from message.error
                case Log():
                    show(message)
                case GatewayRefusal():
                    show(refusal_log(message))
                    for_driver.append(message)
                case PoolEvent():
                    progress(f"{message.ready} of {message.wanted} sandboxes ready")
                    is_ready = message.kind == "ready"
                    brief = replace(message, detail=message.detail.partition("\n")[0])  # the error has the rest
                    if message.kind == "failed" and (log := pool_log(brief)) is not None:
                        show(log)
                case _:
                    for_driver.append(message)
        for message in for_driver:
            self._messages.put(message)
        self._spent(spent_usd)
        assert self._opened is not None, "its pool has started a sandbox"  # noqa: S101
        here = {"fleet": self._opened.pool.endpoints_file.path, "ref": self._opened.setup.commit}
        if self.settings.engine is not None:  # endpoints are ports of the cluster's nodes
            here["allow_insecure"] = True
        self.settings = self.settings.model_copy(update=here)

    def close(self) -> bool:
        """End all sandboxes; return whether that was done in time."""
        # It is bounded in time, and leaves nothing behind only if it completes.
        with signals_handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            return self._stop_thread()

    @property
    def has_gateway(self) -> bool:
        """Whether models are called through a gateway: at Modal only if it is reachable from there."""
        return self.settings.sandbox != "modal" or self.settings.gateway is not None

    def displayed(self, event: Event) -> Event | None:
        """Replace the address of a sandbox by its name; drop what pool events report already."""
        if not isinstance(event, FleetChanged) or event.url is None:
            return event
        if event.kind in ("joined", "left"):
            return None
        path = socket_of(event.url)
        if path is None:
            return event
        name = f"sandbox {PurePath(path).parent.name}"  # the socket's folder has the sandbox's name
        return event.model_copy(update={"url": name, "detail": event.detail.replace(event.url, "it")})

    @contextlib.contextmanager
    def reporting_to(self, driver: Driver) -> Iterator[None]:
        """Forward model calls to the driver as they end, while the block runs."""
        self._driver = driver
        try:
            yield
        finally:
            self._driver = None

    def check_findings(self) -> list[Log]:
        """Return the spend cap, if it was reached, and each different refusal once."""
        found: dict[tuple[str, str], Log] = {}
        for message in _drain(self._messages):
            if isinstance(message, CapReached):
                text = f"`max_cost_usd` of ${self.settings.max_cost_usd:g} was reached by checking a few rows"
                found["", ""] = Log(f"{text}: give more, or set `check` to off", is_warning=True)
            elif isinstance(message, GatewayRefusal):
                found.setdefault((message.what, message.reason), refusal_log(message))
        return list(found.values())

    def collect_artifacts(self, endpoint: str, folder: Path) -> list[Log]:
        """Copy the program's artifacts from the sandbox of an endpoint; return what to report."""
        opened, task = self._opened, self._task
        if opened is None or task is None:
            return []
        try:
            collecting = opened.collect_artifacts(endpoint, folder)
            return asyncio.run_coroutine_threadsafe(collecting, task.get_loop()).result()
        except (RuntimeError, CancelledError):
            return [Log("the program's artifacts could not be copied: its sandbox has ended", is_warning=True)]

    def write_connections(self, file: Path) -> None:
        """Append the connections of ended sandboxes to a file of JSON lines, unless there was none."""
        if self._connections.first:
            with file.open("a", encoding="utf-8") as log:
                log.writelines(f"{line}\n" for line in self._connections.lines())

    def end(self) -> list[GatewayMessage]:
        """End the sandboxes; the block's own `close` reports one that did not end in time."""
        self.close()
        left = _drain(self._messages)
        return [control_message(each) for each in left if isinstance(each, ProviderCall | GatewayRefusal)]

    def forward(self, driver: Driver, show: Show) -> None:
        """Forward messages of the sandboxes; ask again for tokens; end the sandboxes some time after the spend cap."""
        for message in _drain(self._messages):
            self._forward_one(message, driver, show)
        for url, since in self._in_cooldown.items():
            if time.monotonic() - since > ASK_EVERY_S:  # the new token may have expired too, which no event reports
                self._in_cooldown[url] = time.monotonic()
                self._to_pool(SandboxPool.refused, url)
        if self._exhausted_s is not None and time.monotonic() - self._exhausted_s > CAP_GRACE_S:
            self._exhausted_s = None
            show(Log("the spend cap is reached and calls are held: the sandboxes are ended", is_warning=True))
            if not self._stop_thread():
                show(Log(f"not all sandboxes have ended: {SWEEP}", is_warning=True))

    def observe(self, event: Event) -> None:
        """Adapt the number of sandboxes to the work; ask for a new token of one that takes no calls."""
        match event:
            case FleetChanged(kind="joined" | "back" | "left", url=str(url)):
                self._in_cooldown.pop(url, None)
                if event.kind == "left":
                    self._to_pool(SandboxPool.left, url)
            case FleetChanged(kind="resting" | "warning" | "refused", url=str(url)):
                self._in_cooldown[url] = time.monotonic()
                self._to_pool(SandboxPool.refused, url)  # its token may have expired
            case Progress():
                self._spent(event.spent_usd)
                if event.up and event.slots:
                    wanted = math.ceil((event.in_flight + event.waiting) * event.up / event.slots)
                    self._to_pool(SandboxPool.demand, wanted)
            case Finished():
                self._exhausted_s = None

    def _forward_one(self, message: SessionMessage, driver: Driver, show: Show) -> None:
        match message:
            case ProviderCall() | GatewayRefusal():
                driver.send(control_message(message))
            case CapReached():
                self._exhausted_s = time.monotonic()
                driver.send(CapMessage(reason=f"max_cost_usd of {self.settings.max_cost_usd:g} is reached"))
            case PoolEvent(kind="gave_up"):
                driver.stop(f"no sandbox is running, and none can be started: {message.detail}")
            case PoolEvent():
                if (log := pool_log(message)) is not None:
                    show(log)
            case SessionFailed():
                driver.stop(f"the sandboxes are lost: {message.error}")
            case Log():
                show(message)

    # --- the thread of the sandboxes ----------------------------------------------------------------------------------

    def _stop_thread(self) -> bool:
        if self._thread.ident is None:
            return True  # it was never started
        if self._task is not None:
            self._call(self._task.cancel)
        self._thread.join(CLOSE_S)
        return not self._thread.is_alive()

    def _to_pool(self, method: Callable[..., object], *arguments: object) -> None:
        """Call a method of the pool in its thread, such as `SandboxPool.demand`, if there is a pool yet."""
        if self._opened is not None:
            self._call(method, self._opened.pool, *arguments)

    def _spent(self, usd: float) -> None:
        if self._opened is not None:
            self._call(self._opened.setup.spent, usd)

    def _receive(self, message: SessionMessage) -> None:
        driver = self._driver
        if isinstance(message, HostConnection):
            self._connections.add(message)
            return
        if driver is not None and isinstance(message, ProviderCall | GatewayRefusal):
            driver.send(control_message(message))
            return
        self._messages.put(message)
        if isinstance(message, CapReached) and driver is None and self._task is not None:
            self._task.cancel()  # no driver can end the run: a check would wait for the held calls without end

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        if self._task is None:
            return
        try:
            self._task.get_loop().call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # the loop is closed

    def _run(self) -> None:
        try:
            with _warnings_to(self._messages):
                asyncio.run(self._main())
        except asyncio.CancelledError:
            pass  # closed
        except Exception as error:  # noqa: BLE001  the main thread raises it
            self._messages.put(SessionFailed(error))
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._task = asyncio.current_task()
        self._started.set()
        opening = partial(self._open_setup, self.settings, self._run_id, self._receive)
        async with open_sandboxes(opening, self._size, self._messages.put) as opened:
            self._opened = opened
            await opened.pool.first_ready()
            await asyncio.Event().wait()  # until it is cancelled


def _drain(messages: "queue.SimpleQueue[SessionMessage]") -> Iterator[SessionMessage]:
    while not messages.empty():
        yield messages.get()


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt the block as Ctrl-C does, so that what it started is ended too."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    with signals_handled(interrupt, *ours):
        yield


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
