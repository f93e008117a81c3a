"""How sandboxes end, and that nothing is left of them."""

import asyncio
import contextlib

import pytest

from sandbox_runtime import Command, ResourceLimits, SandboxGone
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
