"""Fake sandboxes, and a recorder of the events of a pool of them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandbox_runtime import SandboxExit, ServerEndpoint
from sandbox_runtime.endpoints_file import EndpointsFile
from sandbox_runtime.pool import PoolEvent, SandboxPool

LIMIT_S = 10.0


class FakeSandbox:
    """A running sandbox, until it is closed or a test ends it."""

    def __init__(self, name: str) -> None:
        self.id = self.path = name
        self.tokens = 0
        self.closed = 0
        self._ended: asyncio.Future[SandboxExit] = asyncio.get_running_loop().create_future()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1/{self.path}"

    async def endpoint(self) -> ServerEndpoint:
        self.tokens += 1
        return ServerEndpoint(self.url, f"token {self.tokens} of {self.id}", f"proxy {self.tokens}")

    async def wait(self) -> SandboxExit:
        return await asyncio.shield(self._ended)

    async def close(self) -> None:
        self.closed += 1
        self.die(SandboxExit("terminated"))

    def die(self, ended: SandboxExit | None = None) -> None:
        if not self._ended.done():
            self._ended.set_result(ended or SandboxExit("exited", 1))

    def die_soon(self) -> None:
        """The same from another thread than the pool's."""
        self._ended.get_loop().call_soon_threadsafe(self.die)

    @property
    def up(self) -> bool:
        return not self._ended.done()


class FakeStarter:
    """Start fake sandboxes of a kind; `before` runs at each start and may raise or wait."""

    def __init__(
        self, before: Callable[[int], Any] | None = None, kind: Callable[[str], FakeSandbox] = FakeSandbox
    ) -> None:
        self.before = before
        self.kind = kind
        self.begun = 0
        self.cancelled = 0
        self.made: list[FakeSandbox] = []

    async def start(self, number: int) -> FakeSandbox:
        self.begun += 1
        try:
            if self.before is not None:
                waiting = self.before(self.begun)
                if waiting is not None:
                    await waiting
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.made.append(self.kind(f"s{len(self.made)}-{number}"))
        return self.made[-1]

    @property
    def up(self) -> list[FakeSandbox]:
        return [sandbox for sandbox in self.made if sandbox.up]


class Watched:
    """The events of a pool, and a way to wait for one."""

    def __init__(self) -> None:
        self.events: list[PoolEvent] = []
        self._changed = asyncio.Event()

    def take(self, event: PoolEvent) -> None:
        self.events.append(event)
        self._changed.set()

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    async def until(self, met: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not met():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def pool_of(
    yard: FakeStarter, size: int, folder: Path, **given: Any
) -> AsyncIterator[tuple[SandboxPool, Watched]]:
    watched = Watched()
    options: dict[str, Any] = {"first_pause_s": 0.01, **given}
    async with SandboxPool(
        yard.start, size, endpoints_file=EndpointsFile(folder), on_event=watched.take, **options
    ) as pool:
        yield pool, watched
    assert not yard.up


def listed(folder: Path) -> list[str]:
    """The addresses in the fleet file."""
    return [line.split()[0] for line in (folder / "fleet").read_text().splitlines()]
