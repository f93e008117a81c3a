"""How sandboxes end, and that nothing is left of them."""

import asyncio
import contextlib

import pytest

from sandbox_runtime import Command, ResourceLimits, RuntimeUnavailable, SandboxError, SandboxGone, SandboxNotReady
from sandbox_runtime.api.sandbox import LOG_BYTES
from tests.sandbox_runtime.backend import BackendUnderTest, parse_request
from tests.sandbox_runtime.suite.acting import SOON_S, up
from tests.support.waiting import eventually


class TestEnding:
    async def test_when_the_server_exits_wait_returns_its_status_and_the_sandbox_is_gone(
        self, backend: BackendUnderTest
    ) -> None:
        sandbox = await backend.runtime.start(backend.spec())
        endpoint = await sandbox.endpoint()
        with contextlib.suppress(Exception):  # how its last connection ends is not the question
            await parse_request(endpoint, exit=7)
        ended = await asyncio.wait_for(sandbox.wait(), SOON_S)
        assert (ended.kind, ended.status) == ("exited", 7)
        with pytest.raises(SandboxGone):
            await sandbox.endpoint()
        with pytest.raises(SandboxGone):
            await sandbox.exec(Command(("true",)))
        assert "serving" in await sandbox.logs()
        await sandbox.close()
        assert (await sandbox.wait()).kind == "exited"
        assert await backend.left() == []

    async def test_a_sandbox_ends_when_its_lifetime_is_over(self, backend: BackendUnderTest) -> None:
        sandbox = await backend.runtime.start(backend.spec(limits=ResourceLimits(lifetime_s=backend.short_s)))
        ended = await asyncio.wait_for(sandbox.wait(), SOON_S)
        assert ended.kind == "timed_out"
        with pytest.raises(SandboxGone):
            await sandbox.endpoint()
        await sandbox.close()
        assert await backend.left() == []

    async def test_closing_ends_commands_that_run(self, backend: BackendUnderTest) -> None:
        sandbox = await backend.runtime.start(backend.spec())
        running = asyncio.create_task(sandbox.exec(backend.shell("sleep 60", env={"BUSY": backend.run})))
        await eventually(lambda: backend.processes("BUSY"))
        await sandbox.close()
        with pytest.raises(SandboxGone):
            await asyncio.wait_for(running, SOON_S)
        assert await backend.left() == []

    async def test_everything_that_a_server_started_ends_with_it(self, backend: BackendUnderTest) -> None:
        main = backend.spec().main
        daemons = Command(("sh", "-c", '(setsid sleep 60 &); sleep 60 & exec "$@"', "sh", *main.argv))
        sandbox = await backend.runtime.start(backend.spec(main=daemons))
        assert len(backend.processes()) >= 3
        await sandbox.close()
        assert await backend.left() == []

    async def test_the_log_keeps_the_end_of_the_output_of_setup_and_server(self, backend: BackendUnderTest) -> None:
        flood = backend.python("print('x' * 2**20)")
        async with up(backend, setup=(backend.shell("echo first"), flood)) as sandbox:
            async with asyncio.timeout(SOON_S):
                while "serving" not in (logs := await sandbox.logs()):  # noqa: ASYNC110  it is another process
                    await asyncio.sleep(0.02)
            assert len(logs) <= LOG_BYTES
            assert "first" not in logs
        assert (await sandbox.logs()).endswith("serving\n")

    async def test_a_setup_command_or_a_server_that_is_late_is_an_error_and_leaves_nothing(
        self, backend: BackendUnderTest
    ) -> None:
        late, serves_nothing = backend.shell("sleep 60", timeout_s=0.2), backend.shell("sleep 60")
        for stage, changes in {
            "setup": {"setup": (late,)},
            "ready": {"main": serves_nothing, "ready_s": backend.short_s},
        }.items():
            with pytest.raises(SandboxNotReady) as failed:
                await backend.runtime.start(backend.spec(**changes))
            assert failed.value.stage == stage
        assert await backend.left() == []

    async def test_a_close_that_is_cancelled_or_repeated_frees_the_sandbox(self, backend: BackendUnderTest) -> None:
        first, second = [await backend.runtime.start(backend.spec()) for _ in range(2)]
        await asyncio.gather(first.close(), first.close())
        closing = asyncio.create_task(second.close())
        await asyncio.sleep(0)  # it has begun
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert await backend.left() == []

    async def test_a_runtime_that_ends_ends_its_sandboxes_and_what_it_starts(self, backend: BackendUnderTest) -> None:
        sandbox = await backend.runtime.start(backend.spec())
        setup = (backend.shell("sleep 60", env={"SLOW": backend.run}),)
        starting = asyncio.create_task(backend.runtime.start(backend.spec(setup=setup)))
        await eventually(lambda: backend.processes("SLOW"))
        beginning = asyncio.create_task(backend.runtime.start(backend.spec()))
        await asyncio.sleep(0)
        await backend.runtime.__aexit__()
        assert (await sandbox.wait()).kind == "terminated"
        with pytest.raises(SandboxNotReady, match="has ended"):
            await starting
        with pytest.raises((RuntimeUnavailable, SandboxNotReady), match=r"async with|has ended"):
            await beginning
        with pytest.raises(RuntimeUnavailable, match="async with"):
            await backend.runtime.start(backend.spec())
        assert await backend.left() == []

    async def test_what_cannot_be_freed_is_reported_after_all_were_tried_and_can_be_tried_again(
        self, backend: BackendUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def stop_if_free(id_: str) -> None:
            if id_ not in free:
                raise OSError("it is stuck")
            await stop(id_)

        runtime, stop, free = backend.runtime, backend.runtime.stop, set[str]()
        monkeypatch.setattr(runtime, "stop", stop_if_free)
        first, second = [await runtime.start(backend.spec()) for _ in range(2)]
        with pytest.raises(SandboxNotReady):
            await runtime.start(backend.spec(setup=(Command(("false",)),)))
        assert "it is stuck" in caplog.text
        with pytest.raises(SandboxError, match="it is stuck; sweep it later"):
            await first.close()
        assert (await first.wait()).kind == "lost"
        free.add(second.id)
        with pytest.raises(SandboxError, match=r"swept 1 sandboxes, but not all: .*it is stuck"):
            await runtime.sweep({"suite": backend.run}, orphans_only=False)
        assert (await second.wait()).kind == "terminated"
        with pytest.raises(SandboxError, match="2 of 2 sandboxes could not be freed"):
            await runtime.__aexit__()
        if not backend.outlive:
            await eventually(lambda: not backend.processes())
            return
        free.update(each.id for each in await runtime.found({"suite": backend.run}))
        await first.close()
        assert len(await runtime.sweep({"suite": backend.run}, orphans_only=False)) == 1
        assert await backend.left() == []
