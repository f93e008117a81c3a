"""Sandboxes of the batches and steps of one process: each work has its own, one of which was started before it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from evolverpc_common.network_addresses import Network
from gepa_client.errors import ClientError
from gepa_client.fleet.endpoints_file import read_endpoints_file
from gepa_client.sandboxing.session import OpenSandboxes, SessionNotStarted, open_sandboxes
from gepa_client.sandboxing.session_interface import Log
from gepa_client.sandboxing.session_messages import SessionMessage, pool_log, refusal_log
from gepa_client.sandboxing.setup import open_setup, source_of
from gepa_client.settings.run_config import RunConfig
from gepa_client.transport.address import Address
from gepa_service.jobs.messages import Warm
from protocol.errors import RpcError
from sandbox_runtime import SandboxError
from sandbox_runtime.gateway import GatewayRefusal, ProviderCall
from sandbox_runtime.pool import PoolEvent
from sandbox_runtime.source import Source

MOST_WARM = 2
"""Sandboxes that wait for a work at the same time: as many steps as people make beside each other."""

WARM_S = 300.0
"""Seconds that one waits: longer than a person looks at the result of a step before the next one."""

CLOSE_S = 10.0
"""Seconds that the end of a work waits for its sandboxes; they end in the background then."""

NO_SANDBOX_S = 120.0
"""Seconds without a sandbox after which work is tried no longer; longer than a pool pauses between two starts."""

WARM = "warm"
"""The run that a sandbox belongs to until a work gets it."""

_PER_WORK = {"sandboxes", "ref", "fleet"}
"""Settings in which two works on the same sandbox may differ; the commit stands for `ref`."""

_log = logging.getLogger(__name__)


WarmUp = Callable[[Address], Coroutine[Any, Any, None]]
"""What is done at the first server once it is ready, so that a work need not wait for it."""


@dataclass
class ModelSpending:
    """What finished calls to models of one work have cost, in whichever of its sandboxes.

    `usd`: US dollars, as far as that is known. `unpriced`: calls among them whose cost is not known.
    """

    usd: float = 0.0
    unpriced: int = 0


class WorkSandboxes:
    """Sandboxes that one work uses, with a gateway of their own; the first is started at once, also before the work.

    Calls to models are held until `begin`. `settings`: of the work; once one is ready they name the commit and the
    fleet file.
    """

    def __init__(
        self,
        run_id: str,
        settings: RunConfig,
        version: str,
        source: Source,
        networks: Sequence[Network],
        warm_up: WarmUp,
    ) -> None:
        self.settings = settings
        self.version = version
        self._spending = ModelSpending()
        self._printed: list[Log] = []
        self._show: Callable[[Log], None] = self._printed.append
        self._has_begun = self._gave_up = False
        self._is_there = asyncio.Event()
        self._open: OpenSandboxes | None = None
        self._opened: asyncio.Future[OpenSandboxes] = asyncio.get_running_loop().create_future()
        self._opened.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved in any case
        opening = partial(
            open_setup,
            settings,
            run_id,
            self._receive,
            allowed_networks=networks,
            source=source,
            holds_model_calls=True,
            publishes=True,
        )
        self._holding = asyncio.create_task(self._hold(opening, warm_up if run_id == WARM else None))

    @property
    def is_fit(self) -> bool:
        """Whether a sandbox is there, or is being started."""
        return not self._holding.done() and not self._gave_up

    @property
    def opened(self) -> OpenSandboxes:
        """The sandboxes, once the work has begun."""
        return self._opened.result()

    @property
    def is_ready(self) -> bool:
        """Whether a sandbox is there."""
        return self.is_fit and self._opened.done() and self._is_there.is_set()

    async def begin(self, settings: RunConfig, show: Callable[[Log], None], spending: ModelSpending) -> None:
        """Let a work use them: answer calls to models, start as many as it has, and wait until one is ready.

        `show`: gets what happens to them, and has happened. `spending`: of the work; what their calls cost is added.

        Raises:
            SessionNotStarted: none became ready.
        """
        self.settings, self._show, self._spending, self._has_begun = settings, show, spending, True
        for line in self._printed:
            show(line)
        self._let_begin()
        try:
            opened = await asyncio.shield(self._opened)
            if not self._is_there.is_set():  # it has died meanwhile, and is replaced
                await asyncio.wait_for(self._is_there.wait(), NO_SANDBOX_S)
        except TimeoutError:
            none = SandboxError(f"none was there for {NO_SANDBOX_S:g} s")
            raise SessionNotStarted(none, must_publish=False) from None
        except Exception as error:  # the pool raises what its first start raised
            raise SessionNotStarted(error, must_publish=False) from error
        of_pool = {"fleet": opened.pool.endpoints_file.path, "ref": opened.setup.commit}
        self.settings = settings.model_copy(update=of_pool)

    async def close(self) -> None:
        """End them, and wait for that for at most `CLOSE_S`."""
        self._holding.cancel()
        done, _ = await asyncio.wait({self._holding}, timeout=CLOSE_S)
        if not done:
            _log.warning("sandboxes of %s do not end within %g s", self.version, CLOSE_S)

    async def _hold(self, opening: Callable[[], Any], warm_up: WarmUp | None) -> None:
        try:
            async with open_sandboxes(opening, 1, self._receive) as opened:
                self._open = opened
                self._let_begin()
                await opened.pool.first_ready()
                if warm_up is not None:
                    with contextlib.suppress(ClientError, RpcError):  # the work meets it too, and reports it
                        for first in read_endpoints_file(opened.pool.endpoints_file.path)[:1]:
                            await warm_up(first)
                self._opened.set_result(opened)
                await asyncio.Event().wait()  # until it is cancelled
        except asyncio.CancelledError:
            self._opened.cancel()
            raise
        except Exception as error:  # noqa: BLE001  the work that gets them raises it
            if self._opened.done():
                _log.warning("sandboxes: %s", error)
            else:
                self._opened.set_exception(error)

    def _let_begin(self) -> None:
        if self._has_begun and self._open is not None:
            self._open.setup.release_model_calls()
            self._open.pool.resize(self.settings.sandboxes)

    def _receive(self, message: SessionMessage) -> None:
        match message:
            case Log():
                self._show(message)
            case ProviderCall():
                self._spending.usd += message.cost_usd or 0.0
                self._spending.unpriced += message.cost_usd is None
            case GatewayRefusal():
                self._show(refusal_log(message))
            case PoolEvent():
                (self._is_there.set if message.ready else self._is_there.clear)()
                self._gave_up = self._gave_up or message.kind == "gave_up"
                if (line := pool_log(message)) is not None:
                    self._show(line)


class WarmSandboxes:
    """Gives each work its sandboxes, and starts one for the next work on the same version. Close it at the end.

    No sandbox serves two works: what the program of one has left in it, and calls that it still makes, reach no other.
    `report`: called with those that wait. `most_mb`: the memory that they may use together.
    """

    def __init__(self, networks: Sequence[Network], report: Callable[[Warm], None], most_mb: int) -> None:
        self._networks = networks
        self._most_mb = most_mb
        self._report = report
        self._warm: list[WorkSandboxes] = []
        self._ending: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def taken(
        self,
        run_id: str,
        settings: RunConfig,
        show: Callable[[Log], None],
        spending: ModelSpending,
        code: str | None,
        warm_up: WarmUp,
    ) -> AsyncIterator[WorkSandboxes]:
        """Give a work its sandboxes for the block; an image that Modal lacks is built first.

        `show`, `spending`: as of `WorkSandboxes.begin`. `code`: names the code of a version that no repository has.
        `warm_up`: for sandboxes that wait.

        Raises:
            SessionNotStarted: none became ready.
        """
        try:
            source = source_of(settings)
            checkout = await source.ready(on_progress=lambda text: show(Log(text)))
        except (SandboxError, OSError, ValueError) as error:
            raise SessionNotStarted(error, must_publish=False) from error
        version = f"{checkout.commit} {checkout.branch} {code} {settings.model_dump_json(exclude=_PER_WORK)}"

        def start(run: str) -> WorkSandboxes:
            return WorkSandboxes(run, settings, version, source, self._networks, warm_up)

        start_next = partial(self._prepare, settings, partial(start, WARM), version)
        sandboxes = self._take(version)
        if is_warm := sandboxes is not None:
            show(Log("the sandbox was started before the work"))
            start_next(1 if sandboxes.is_ready else MOST_WARM)  # works come faster than one sandbox after the other
        try:
            sandboxes = sandboxes or start(run_id)
            try:
                await sandboxes.begin(settings, show, spending)
            except SessionNotStarted:
                if not is_warm:
                    raise
                await sandboxes.close()
                sandboxes = start(run_id)
                await sandboxes.begin(settings, show, spending)
            if not is_warm:
                start_next(1)
            yield sandboxes
        finally:
            if sandboxes is not None:
                await sandboxes.close()

    async def close(self) -> None:
        """End all that wait, and return once they have ended."""
        self.end()
        await asyncio.gather(*self._ending)

    def end(self) -> None:
        """End all that wait, in the background."""
        for each in tuple(self._warm):
            self._end(each)

    def _take(self, version: str) -> WorkSandboxes | None:
        fit = [each for each in self._warm if each.version == version and each.is_fit]
        fit.sort(key=lambda each: not each.is_ready)
        if fit:
            self._warm.remove(fit[0])
            self._report_warm()
        return fit[0] if fit else None

    def _prepare(self, settings: RunConfig, start: Callable[[], WorkSandboxes], version: str, count: int) -> None:
        """Have so many sandboxes wait for works on the version; the oldest of other versions make room for them."""
        own = [each for each in self._warm if each.version == version and each.is_fit]
        others = [each for each in self._warm if each not in own]
        for _ in range(count - len(own)):
            while others and not (all(each.is_fit for each in others) and self._has_room_for(settings)):
                self._end(others.pop(0))
            if self._has_room_for(settings):
                waiting = start()
                self._warm.append(waiting)
                self._report_warm()
                asyncio.get_running_loop().call_later(WARM_S, self._end, waiting)

    def _has_room_for(self, settings: RunConfig) -> bool:
        return len(self._warm) < MOST_WARM and self._memory_mb() + settings.sandbox_memory_mb <= self._most_mb

    def _memory_mb(self) -> int:
        return sum(each.settings.sandbox_memory_mb for each in self._warm)

    def _report_warm(self) -> None:
        self._report(Warm(warm=len(self._warm), memory_mb=self._memory_mb()))

    def _end(self, waiting: WorkSandboxes) -> None:
        """End sandboxes in the background, if no work has taken them."""
        if waiting in self._warm:
            self._warm.remove(waiting)
            self._report_warm()
            ending = asyncio.create_task(waiting.close())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
