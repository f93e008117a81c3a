"""Eight methods are a backend: one of this process alone has everything that a runtime gives."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from evolverpc_common.output_tail import OutputTail
from sandbox_runtime import (
    Command,
    PreparedEnvironment,
    Recipe,
    RuntimeUnavailable,
    SandboxError,
    SandboxExit,
    SandboxGone,
    SandboxInfo,
    SandboxNotReady,
    SandboxSpec,
    ServerEndpoint,
)
from sandbox_runtime.runtime import Runtime
from tests.support.waiting import eventually

ENVIRONMENT = PreparedEnvironment(Recipe(), ())
SLEEP, FAIL, LATE = Command(("sleep",)), Command(("fail",)), Command(("late",))


@dataclass
class Toy:
    """A sandbox whose commands are words; its server answers on loopback with the status that the spec names."""

    id: str
    spec: SandboxSpec
    log: OutputTail
    over: asyncio.Future[SandboxExit]
    running: int = 0

    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        self.running += 1
        try:
            (stdout if stderr is None else stderr).add(b"!")
            stdout.add(" ".join(command.argv).encode())
            if command.argv == SLEEP.argv:
                await asyncio.Event().wait()
        finally:
            self.running -= 1
        return {FAIL.argv: 1, LATE.argv: None}.get(command.argv, 0)

    async def serve(self, main: Command, endpoint: ServerEndpoint) -> SandboxExit:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 %b -\r\nContent-Length: 0\r\n\r\n" % main.argv[0].encode())
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", int(endpoint.url.rpartition(":")[2])):
            return await asyncio.shield(self.over)

    async def endpoint(self, token: str) -> ServerEndpoint:
        return ServerEndpoint(f"http://127.0.0.1:{self.spec.env['PORT']}", token)


@dataclass(eq=False)
class ToyBackend(Runtime):
    """`others`: sandboxes of other processes. `stuck`: those that cannot be ended."""

    name = "toy"
    own: dict[str, Toy] = field(default_factory=dict)
    others: dict[str, bool] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    ids: Any = field(default_factory=lambda: map(str, itertools.count()))

    def __post_init__(self) -> None:
        super().__init__()

    async def open(self) -> None:
        return

    async def prepare(
        self, recipe: Recipe, *, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> PreparedEnvironment:
        on_progress(f"rebuild: {rebuild}")
        return PreparedEnvironment(recipe, ())

    async def begin(self, spec: SandboxSpec, log: OutputTail) -> Toy:
        await asyncio.sleep(0)
        toy = Toy(next(self.ids), spec, log, asyncio.get_running_loop().create_future())
        self.own[toy.id] = toy
        return toy

    async def stop(self, id_: str) -> None:
        if id_ in self.stuck:
            raise OSError("it is stuck")
        self.others.pop(id_, None)
        if (toy := self.own.pop(id_, None)) is not None and not toy.over.done():
            toy.over.set_result(SandboxExit("terminated"))

    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        mine = [SandboxInfo(toy.id, toy.spec.labels, 0.0, orphan=False, owner="this") for toy in self.own.values()]
        theirs = [SandboxInfo(id_, {}, 0.0, orphan, "another") for id_, orphan in self.others.items()]
        return [each for each in (*mine, *theirs) if (labels or {}).items() <= each.labels.items()]


@pytest.fixture
def spec(unused_tcp_port_factory: Callable[[], int]) -> Callable[..., SandboxSpec]:
    def of(status: str = "200", **changes: Any) -> SandboxSpec:
        port = str(unused_tcp_port_factory())
        return SandboxSpec(Command((status,)), ENVIRONMENT, env={"PORT": port}, **{"ready_s": 10.0, **changes})

    return of


Spec = Callable[..., SandboxSpec]


async def test_a_sandbox_is_set_up_served_used_and_ended(spec: Spec) -> None:
    backend = ToyBackend()
    async with backend as runtime:
        sandbox = await runtime.start(spec(setup=(Command(("first",)),)))
        assert await sandbox.logs() == "!first"
        done = await sandbox.exec(Command(("hello",)))
        assert (done.status, done.stdout, done.stderr) == (0, b"hello", b"!")
        assert (await sandbox.endpoint()).token == (await sandbox.endpoint()).token
        running = asyncio.create_task(sandbox.exec(SLEEP))
        await asyncio.sleep(0.01)
        toy = backend.own[sandbox.id]
        toy.over.set_result(SandboxExit("exited", 7))
        with pytest.raises(SandboxGone, match="exited with status 7"):
            await running
        ended = await sandbox.wait()
        assert (ended.kind, ended.status, toy.running) == ("exited", 7, 0)
        await asyncio.gather(sandbox.close(), sandbox.close())
        assert backend.own == {}
        closing = asyncio.create_task((await runtime.start(spec())).close())
        await asyncio.sleep(0)  # it has begun
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert backend.own == {}
        late = await runtime.start(spec())
    assert (await late.wait()).kind == "terminated"
    assert backend.own == {}
    with pytest.raises(RuntimeUnavailable, match="async with"):
        await runtime.start(spec())


@pytest.mark.parametrize(
    ("changes", "stage"),
    [({"setup": (FAIL,)}, "setup"), ({"setup": (LATE,)}, "setup"), ({"status": "503", "ready_s": 0.2}, "ready")],
)
async def test_one_that_does_not_become_ready_is_ended(spec: Spec, changes: dict[str, Any], stage: str) -> None:
    backend = ToyBackend()
    async with backend as runtime:
        with pytest.raises(SandboxNotReady) as raised:
            await runtime.start(spec(**changes))
    assert (raised.value.stage, backend.own) == (stage, {})


async def test_a_start_ends_with_its_task_and_with_its_runtime(spec: Spec) -> None:
    backend = ToyBackend()
    runtime = await backend.__aenter__()
    starts = [asyncio.create_task(runtime.start(spec(setup=(SLEEP,)))) for _ in range(2)]
    await eventually(lambda: [toy.running for toy in backend.own.values()] == [1, 1])
    starts[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await starts[0]
    assert len(backend.own) == 1
    beginning = asyncio.create_task(runtime.start(spec()))
    await asyncio.sleep(0)
    await runtime.__aexit__()
    with pytest.raises(SandboxNotReady, match="has ended"):
        await starts[1]
    with pytest.raises(RuntimeUnavailable, match="async with"):
        await beginning
    assert backend.own == {}


async def test_what_cannot_be_freed_is_reported_after_all_were_tried_and_can_be_tried_again(
    spec: Spec, caplog: pytest.LogCaptureFixture
) -> None:
    backend = ToyBackend()
    runtime = await backend.__aenter__()
    first, second = await runtime.start(spec()), await runtime.start(spec())
    backend.stuck = {first.id, "2"}
    with pytest.raises(SandboxNotReady):
        await runtime.start(spec(setup=(FAIL,)))
    assert "sandbox 2: it is stuck" in caplog.text
    with pytest.raises(SandboxError, match="it is stuck; sweep it later"):
        await first.close()
    assert (await first.wait()).kind == "lost"
    with pytest.raises(SandboxError, match="2 of 3 sandboxes could not be freed"):
        await runtime.__aexit__()
    assert (await second.wait()).kind == "terminated"
    backend.stuck = set()
    await first.close()
    assert await runtime.sweep(orphans_only=False) == ["2"]
    assert backend.own == {}


async def test_a_sweep_ends_orphans_or_all_and_continues_after_a_failure(spec: Spec) -> None:
    backend = ToyBackend(others={"orphan": True, "used": False, "bad": True}, stuck={"bad"})
    async with backend as runtime:
        mine = await runtime.start(spec())
        with pytest.raises(SandboxError, match="swept 1 sandboxes, but not all: bad: it is stuck"):
            await runtime.sweep()
        assert set(backend.others) == {"used", "bad"}
        backend.stuck = set()
        assert set(await runtime.sweep(orphans_only=False)) == {"used", "bad", mine.id}
        assert (await mine.wait()).kind == "terminated"
