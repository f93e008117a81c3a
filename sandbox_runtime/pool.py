"""Start sandboxes in parallel, replace those that die, and end those that have nothing to do."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, Self

from sandbox_runtime.api.sandbox import (
    EgressNotEnforced,
    EnvironmentMissing,
    RunningSandbox,
    RuntimeThrottled,
    RuntimeUnavailable,
    SandboxError,
    SandboxExit,
    SandboxGone,
    SandboxNotReady,
)
from sandbox_runtime.endpoints_file import EndpointsFile

PoolEventKind = Literal["ready", "failed", "unasked", "died", "not_freed", "grows", "shrinks", "gave_up"]


@dataclass(frozen=True)
class PoolEvent:
    """One change of a pool, reported on its event loop; `ready` of the `wanted` sandboxes run after it.

    `ready`: a sandbox is in the endpoints file. `failed`: a start failed and is repeated in `seconds`; reported once
    for starts that fail together at one stage. `unasked`: a server refused its token, and its endpoint could not be
    renewed. `died`: a sandbox ended by itself and is replaced in `seconds`. `not_freed`: something of one, or of
    several if there is no `id`, may be left; a sweep ends it. `grows`, `shrinks`: there is work for more, or for fewer;
    those that retire leave the endpoints file. `gave_up`: none runs and starts have failed too often in a row.

    `elapsed_s`: since the pool began. `id`: the sandbox's, if it has one.
    """

    kind: PoolEventKind
    ready: int
    wanted: int
    detail: str = ""
    seconds: float | None = None
    id: str | None = None
    elapsed_s: float = 0.0


StartSandbox = Callable[[int], Awaitable[RunningSandbox]]
"""Starts the sandbox of a number, from 0. Raises `SandboxError`; a cancellation leaves nothing behind."""


FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
"""Seconds without a start after one that failed, and at most."""

FAILURES = 3
"""Failures in a row after which the pool gives up, if no start ever succeeded."""

FAILURES_BROKEN = 2
"""Failures in a row after which it gives up, if the server ended each time."""

FAILURES_LATER = 8
"""Failures in a row after which it gives up, if a start succeeded before and none runs: some two minutes."""

SHORT_LIFE_S = 10.0
"""A sandbox that dies before this is replaced after a pause, if the one before it was as short-lived."""

RENEW_PAUSE_S = 2.0
"""How often at most an endpoint is requested again; an earlier refusal waits until then."""


@dataclass(eq=False)
class _PoolSlot:
    """One slot of the pool. `url`: of the endpoint that was listed last."""

    number: int
    task: asyncio.Task[None] | None = None
    member: RunningSandbox | None = None
    url: str = ""
    retiring: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    refused: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class SandboxPool:
    """Up to `size` sandboxes, each started by `start_sandbox` and listed in `endpoints_file` while it is ready.

    Use it in an `async with` block: entering starts all of them; leaving ends all, within `close_s`. `demand` changes
    how many are wanted. `on_event` is called for every change, on this event loop.

    `idle_s`: how long there must have been work for fewer before any is ended. `retire_s`: how long a sandbox may take
    to finish its calls once it is no longer listed.
    """

    start_sandbox: StartSandbox
    size: int
    _: KW_ONLY
    endpoints_file: EndpointsFile
    on_event: Callable[[PoolEvent], None]
    idle_s: float = 60.0
    retire_s: float = 900.0
    close_s: float = 30.0
    first_pause_s: float = FIRST_PAUSE_S

    def __post_init__(self) -> None:
        self.wanted = self.size
        self._useful = self.size
        self._most_useful = self.size
        self._starts = _StartLimits(self.first_pause_s)
        self._slots: dict[int, _PoolSlot] = {}
        self._ever_ready = False
        self._over = False
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._began = time.monotonic()

    async def __aenter__(self) -> Self:
        self._timer = asyncio.get_running_loop().call_later(self.idle_s, self._reconsider)
        self._fill()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [slot.task for slot in self._slots.values() if slot.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            late = (await asyncio.wait(tasks, timeout=self.close_s))[1]
            if late:
                self._emit("not_freed", f"{len(late)} did not end within {self.close_s:g} s")
        self._first.cancel()

    # --- public interface -------------------------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        """How many run and are listed."""
        return len(self.endpoints_file)

    async def first_ready(self) -> None:
        """Wait until the first is ready.

        Raises:
            SandboxError: none ever was, and starts have failed too often in a row: the first of these failures.
        """
        await asyncio.shield(self._first)

    def demand(self, sandboxes: int) -> None:
        """Set for how many sandboxes there is work: start further ones at once, and end idle ones in time.

        One always stays.
        """
        self._useful = max(1, min(sandboxes, self.size))
        self._most_useful = max(self._most_useful, self._useful)
        if self._useful > self.wanted and not self._over:
            self.wanted = self._useful
            self._emit("grows")
            self._fill()

    def resize(self, size: int) -> None:
        """Have so many instead, at least as many as before; further ones are started at once."""
        self.size = size
        self.demand(size)

    def refused(self, url: str) -> None:
        """Request a new endpoint for a server that refused the listed token."""
        slot = self._at(url)
        if slot is not None:
            slot.refused.set()

    def left(self, url: str) -> None:
        """Report that a retiring sandbox has no more calls."""
        slot = self._at(url)
        if slot is not None and slot.retiring.is_set():
            slot.left.set()

    # --- how many there are ------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Start as many as are wanted; retiring ones take up room until they have ended."""
        staying = sum(not slot.retiring.is_set() for slot in self._slots.values())
        free = (number for number in range(self.size) if number not in self._slots)
        for number in list(free)[: max(0, self.wanted - staying)]:
            slot = self._slots[number] = _PoolSlot(number)
            slot.task = asyncio.get_running_loop().create_task(self._keep(slot))
            slot.task.add_done_callback(lambda task, slot=slot: self._emptied(slot, task))  # type: ignore[misc]

    def _emptied(self, slot: _PoolSlot, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._over:
            # A `SandboxError` is of a start that came to nothing together with the one that ended the pool.
            if error is not None and not isinstance(error, SandboxError):
                self._emit("not_freed", f"{type(error).__name__}: {error}")
            return
        del self._slots[slot.number]
        if error is not None:
            self._give_up(error)
        else:
            self._fill()

    def _reconsider(self) -> None:
        """Shrink the pool to the highest demand of the last `idle_s` seconds."""
        if self._most_useful < self.wanted:
            self.wanted = self._most_useful
            self._emit("shrinks")
            staying = [slot for slot in self._slots.values() if not slot.retiring.is_set()]
            staying.sort(key=lambda slot: (slot.member is not None, -slot.number))  # first those that are not up yet
            for slot in staying[: max(0, len(staying) - self.wanted)]:
                slot.retiring.set()
                if slot.member is None and slot.task is not None:
                    slot.task.cancel()
        self._most_useful = self._useful
        self._timer = asyncio.get_running_loop().call_later(self.idle_s, self._reconsider)

    def _give_up(self, error: BaseException) -> None:
        self._over = True
        for slot in self._slots.values():
            if slot.task is not None:
                slot.task.cancel()
        self._emit("gave_up", str(error))
        if not self._first.done():
            self._first.set_exception(error)
            self._first.exception()  # retrieved, even if no task waits for it

    # --- one slot ---------------------------------------------------------------------------------------------------

    async def _keep(self, slot: _PoolSlot) -> None:
        """Keep a sandbox running in this slot until it retires."""
        short_lives = 0
        while not slot.retiring.is_set():
            member = await self._begin(slot)
            began = time.monotonic()
            try:
                ended = await self._serve(slot, member)
            finally:
                slot.member = None
                try:
                    self.endpoints_file.drop(member.id)
                finally:
                    await self._free(member)
            if ended is None:
                return
            short_lives = short_lives + 1 if time.monotonic() - began < SHORT_LIFE_S else 0
            pause_s = min(LONGEST_PAUSE_S, self.first_pause_s * 2.0 ** (short_lives - 2)) if short_lives > 1 else 0.0
            self._emit("died", str(ended), seconds=pause_s, of=member)
            await asyncio.sleep(pause_s)

    async def _begin(self, slot: _PoolSlot) -> RunningSandbox:
        """Return a listed sandbox; raise the first error of a series once a further start is hopeless."""
        while True:
            async with self._starts.attempt() as failures:
                try:
                    member = await self.start_sandbox(slot.number)
                    await self._list(slot, member)
                except RuntimeThrottled as error:
                    self._starts.hold(error.retry_after_s)
                    self._emit("failed", str(error), seconds=error.retry_after_s)
                    continue
                except SandboxError as error:
                    is_news = self._starts.failed(failures, error)
                    if self.ready == 0 and self._is_hopeless(error):
                        raise (self._starts.first_error or error) from None
                    if is_news:
                        self._emit("failed", str(error), seconds=self._starts.pause_s)
                    continue
                self._starts.succeeded()
            self._ever_ready = True
            self._emit("ready", of=member)
            if not self._first.done():
                self._first.set_result(None)
            return member

    def _is_hopeless(self, error: SandboxError) -> bool:
        """Return whether another start would hardly help; a server that ends twice at its start is broken."""
        if isinstance(error, RuntimeUnavailable | EgressNotEnforced | EnvironmentMissing):
            return True
        if self._ever_ready:
            return self._starts.in_a_row >= FAILURES_LATER
        broken = isinstance(error, SandboxNotReady) and error.stage == "main"
        return self._starts.in_a_row >= (FAILURES_BROKEN if broken else FAILURES)

    async def _list(self, slot: _PoolSlot, member: RunningSandbox) -> None:
        try:
            await self._put(slot, member)
        except BaseException:
            await self._free(member)
            raise
        slot.member = member
        slot.refused.clear()

    async def _put(self, slot: _PoolSlot, member: RunningSandbox) -> None:
        endpoint = await member.endpoint()
        self.endpoints_file.put(member.id, endpoint)
        slot.url = _bare(endpoint.url)

    async def _free(self, member: RunningSandbox) -> None:
        """Close it; what cannot be freed is left to a sweep."""
        try:
            await member.close()
        except (SandboxError, OSError) as error:
            self._emit("not_freed", str(error), of=member)

    async def _serve(self, slot: _PoolSlot, member: RunningSandbox) -> SandboxExit | None:
        """Wait until it has died, or return None when it was to retire and has finished its calls."""
        died = asyncio.ensure_future(member.wait())
        retires = asyncio.ensure_future(slot.retiring.wait())
        renewing = asyncio.ensure_future(self._renew_endpoint(slot, member))
        left = asyncio.ensure_future(slot.left.wait())
        try:
            await asyncio.wait({died, retires}, return_when=asyncio.FIRST_COMPLETED)
            if died.done():
                return died.result()
            renewing.cancel()
            self.endpoints_file.drop(member.id)
            await asyncio.wait({died, left}, timeout=self.retire_s, return_when=asyncio.FIRST_COMPLETED)
            return None
        finally:
            for task in (died, retires, renewing, left):
                task.cancel()
            await asyncio.wait({died, retires, renewing, left})

    async def _renew_endpoint(self, slot: _PoolSlot, member: RunningSandbox) -> None:
        while True:
            await slot.refused.wait()
            slot.refused.clear()
            try:
                await self._put(slot, member)
            except SandboxGone:
                return  # `wait` reports its end
            except (SandboxError, OSError) as error:
                self._emit("unasked", str(error), of=member)
            await asyncio.sleep(RENEW_PAUSE_S)

    def _at(self, url: str) -> _PoolSlot | None:
        bare = _bare(url)
        return next((slot for slot in self._slots.values() if slot.url == bare), None)

    def _emit(
        self, kind: PoolEventKind, detail: str = "", *, seconds: float | None = None, of: RunningSandbox | None = None
    ) -> None:
        id_ = None if of is None else of.id
        self.on_event(PoolEvent(kind, self.ready, self.wanted, detail, seconds, id_, time.monotonic() - self._began))


def _bare(url: str) -> str:
    return url.rstrip("/").removesuffix("/rpc")


class _StartLimits:
    """Slows starts down after failures.

    After a failure one start is tried at a time, each after twice the last pause, until one succeeds. Starts that ran
    together and fail for the same reason are one failure: `in_a_row` counts starts that began after the last one.
    """

    def __init__(self, first_pause_s: float) -> None:
        self.in_a_row = 0
        self.first_error: Exception | None = None
        self._first_pause_s = first_pause_s
        self._not_before = 0.0
        self._alone = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def attempt(self) -> AsyncIterator[int]:
        """Wait until a start may begin, which runs in the block; yields the argument for `failed`."""
        while True:
            failures = self.in_a_row
            async with self._alone if failures else contextlib.nullcontext():
                while self.pause_s:  # noqa: ASYNC110  only time ends it
                    await asyncio.sleep(self.pause_s)
                if failures == self.in_a_row:
                    yield failures
                    return

    def hold(self, seconds: float) -> None:
        """Begin no further start for so many seconds."""
        self._not_before = max(self._not_before, time.monotonic() + seconds)

    def succeeded(self) -> None:
        """Record a successful start."""
        self.in_a_row, self.first_error = 0, None

    def failed(self, failures: int, error: Exception) -> bool:
        """Record a failed start. `failures`: what `attempt` yielded. Return whether the failure is new."""
        if failures != self.in_a_row:
            # The texts of their servers name files and times of their own.
            return len({getattr(each, "stage", str(each)) for each in (error, self.first_error)}) > 1
        self.in_a_row += 1
        self.first_error = self.first_error or error
        self.hold(min(LONGEST_PAUSE_S, self._first_pause_s * 2.0**failures))
        return True

    @property
    def pause_s(self) -> float:
        """Seconds until the next start may begin."""
        return max(0.0, self._not_before - time.monotonic())
