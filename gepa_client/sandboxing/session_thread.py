"""Sandboxes and their gateway on an event loop of their own, in a thread, while a command goes on in the main one."""

import asyncio
import contextlib
import json
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from gepa_client.cli.views.console import safe
from gepa_client.run import control_messages
from gepa_client.settings.run_config import RunConfig
from sandbox_runtime import SandboxError
from sandbox_runtime.gateway import ModelCall, Refusal
from sandbox_runtime.pool import GaveUp, Member, PoolEvent, RosterFile, SandboxPool, fleet_folder

CLOSE_S = 60.0
"""Seconds that ending everything may take; what is left then, a sweep ends."""

LONGEST_EXAMPLE_S = 900.0
"""Seconds that a sandbox nobody needs any more has to come to the end of its calls, changes of code apart."""


@dataclass(frozen=True)
class Said:
    """Something to tell the user."""

    text: str
    is_warning: bool = False

    @property
    def markup(self) -> str:
        """As it is shown."""
        return f"[bold yellow]warning:[/] {safe(self.text)}" if self.is_warning else f"[dim]{safe(self.text)}[/]"


@dataclass(frozen=True)
class Up:
    """The first sandbox is ready. `fleet`: the file that lists those that are. `commit`: what all of them run."""

    fleet: Path
    commit: str


@dataclass(frozen=True)
class Capped:
    """The spend cap is reached: what programs ask of models from now on is held."""


@dataclass(frozen=True)
class Failed:
    """There are no sandboxes, and there will be none; `error` says why."""

    error: BaseException


Told = Said | Up | Capped | Failed | PoolEvent | ModelCall | Refusal


class Ground(Protocol):
    """What sandboxes are started from: a runtime, the program's source and a gateway."""

    @property
    def commit(self) -> str:
        """The commit that all of them run, in full."""
        ...

    async def start(self, number: int) -> Member:
        """As `sandbox_runtime.pool.Start`."""
        ...

    def spent(self, usd: float) -> None:
        """What is known to be spent in all of the run, on whatever, this gateway's calls included."""
        ...


class Optimizer(Protocol):
    """What the sandboxes have to say to the optimizer's process; from any thread."""

    def tell(self, line: Mapping[str, object]) -> None:
        """A line of `gepa_client.run.control_messages`."""
        ...

    def stop(self, reason: str | None = None) -> None:
        """Have it stop, with what is in flight kept."""
        ...


OpenGround = Callable[[RunConfig, str, Callable[[Told], None]], AbstractAsyncContextManager[Ground]]
"""From settings, the run's id, and who is told."""


def line_of(told: ModelCall | Refusal) -> Mapping[str, object]:
    """As the optimizer is told of it."""
    if isinstance(told, Refusal):
        return {"refusal": asdict(told)}
    tokens = told.tokens
    counted = {} if tokens is None else {"input_tokens": tokens.all_input, "output_tokens": tokens.output}
    return {"model_call": {**asdict(told), **counted}}


def untold(
    told: "queue.SimpleQueue[Told]",
) -> list[control_messages.ModelCallMessage | control_messages.RefusalMessage]:
    """Of what nobody has read, the calls and refusals, as the optimizer would have been told of them."""
    found = []
    while not told.empty():
        message = told.get()
        if isinstance(message, ModelCall | Refusal):
            found.append(control_messages.parse_message(json.dumps(line_of(message))))
    return [
        each for each in found if isinstance(each, control_messages.ModelCallMessage | control_messages.RefusalMessage)
    ]


class SandboxThread:
    """`size` sandboxes in a thread of their own. Every method is for the main thread; `told` is what it should read."""

    def __init__(self, settings: RunConfig, run_id: str, open_ground: OpenGround, *, size: int) -> None:
        self.told: queue.SimpleQueue[Told] = queue.SimpleQueue()
        self._settings = settings
        self._run_id = run_id
        self._open_ground = open_ground
        self._size = size
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun = threading.Event()
        self._pool: SandboxPool | None = None
        self._ground: Ground | None = None
        self._optimizer: Optimizer | None = None
        self._thread = threading.Thread(target=self._run, name="sandboxes", daemon=True)

    def start(self) -> None:
        """Begin to start them: `Up` or `Failed` follows."""
        self._thread.start()
        self._begun.wait()

    def report_to(self, optimizer: Optimizer | None) -> None:
        """From now on it is told of calls of models as they end, without a detour through `told`."""
        self._optimizer = optimizer

    def close(self) -> bool:
        """End all of them; returns whether that was done within its time."""
        if self._thread.ident is None:
            return True  # it was never begun
        task = self._task
        if task is not None:
            self._call(task.cancel)
        self._thread.join(CLOSE_S)
        return not self._thread.is_alive()

    def demand(self, sandboxes: int) -> None:
        """See `SandboxPool.demand`."""
        if self._pool is not None:
            self._call(self._pool.demand, sandboxes)

    def refused(self, url: str) -> None:
        """See `SandboxPool.refused`."""
        if self._pool is not None:
            self._call(self._pool.refused, url)

    def left(self, url: str) -> None:
        """See `SandboxPool.left`."""
        if self._pool is not None:
            self._call(self._pool.left, url)

    def spent(self, usd: float) -> None:
        """See `Ground.spent`."""
        if self._ground is not None:
            self._call(self._ground.spent, usd)

    def _tell(self, told: Told) -> None:
        optimizer = self._optimizer
        if optimizer is not None and isinstance(told, ModelCall | Refusal):
            optimizer.tell(line_of(told))
            return
        self.told.put(told)
        if isinstance(told, Capped) and optimizer is None and self._task is not None:
            self._task.cancel()  # nobody is there to end the run: whoever tries the program would wait for ever

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        try:
            loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # it was closed in this moment: nobody is left to be told

    def _run(self) -> None:
        try:
            with _warnings(self.told):
                asyncio.run(self._main())
        except asyncio.CancelledError:
            pass  # closed
        except GaveUp as gave_up:
            self.told.put(Failed(gave_up.__cause__ or gave_up))
        except Exception as error:  # noqa: BLE001  the main thread raises it
            self.told.put(Failed(error))
        finally:
            self._begun.set()

    async def _main(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._begun.set()
        with fleet_folder() as folder:
            async with self._open_ground(self._settings, self._run_id, self._tell) as ground:
                self._ground = ground
                roster = RosterFile(folder)
                async with SandboxPool(
                    ground.start,
                    self._size,
                    roster=roster,
                    told=self.told.put,
                    starts_per_s=self._settings.starts_per_s,
                    idle_s=self._settings.sandbox_idle_s,
                    retire_s=max(LONGEST_EXAMPLE_S, self._settings.mutation_timeout_s),
                ) as pool:
                    self._pool = pool
                    await pool.first_ready()
                    self.told.put(Up(roster.path, ground.commit))
                    await asyncio.Event().wait()  # until it is cancelled


@contextlib.contextmanager
def _warnings(told: "queue.SimpleQueue[Told]") -> Iterator[None]:
    """What the runtime logs as a warning is told with the rest, instead of being printed into a display."""

    class Tells(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.put(Said(record.getMessage(), is_warning=True))

    handler, log = Tells(logging.WARNING), logging.getLogger("sandbox_runtime")
    log.addHandler(handler)
    log.propagate, before = False, log.propagate
    try:
        yield
    finally:
        log.propagate = before
        log.removeHandler(handler)


def is_expected(error: BaseException) -> bool:
    """Whether its text alone tells the user what is wrong, rather than a traceback."""
    return isinstance(error, SandboxError | GaveUp | OSError | ValueError)
