"""How sandboxes end, and that nothing is left of them."""

import asyncio
import contextlib

import pytest

from sandbox_runtime import Command, ResourceLimits, SandboxGone
from sandbox_runtime.api.sandbox import LOG_BYTES
from tests.sandbox_runtime.ground import Ground, parse_request
from tests.sandbox_runtime.suite.acting import SOON_S, some, until, up


class Ending:
    async def test_a_server_that_ends_is_told_with_its_status_and_the_sandbox_is_gone(self, ground: Ground) -> None:
        sandbox = await ground.runtime.start(ground.spec())
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
        assert await ground.left() == []

    async def test_a_sandbox_ends_when_its_lifetime_is_over(self, ground: Ground) -> None:
        sandbox = await ground.runtime.start(ground.spec(limits=ResourceLimits(lifetime_s=ground.short_s)))
        ended = await asyncio.wait_for(sandbox.wait(), SOON_S)
        assert ended.kind == "timed_out"
        with pytest.raises(SandboxGone):
            await sandbox.endpoint()
        await sandbox.close()
        assert await ground.left() == []

    async def test_closing_twice_and_at_once_is_closing(self, ground: Ground) -> None:
        sandbox = await ground.runtime.start(ground.spec())
        await asyncio.gather(sandbox.close(), sandbox.close())
        await sandbox.close()
        assert (await sandbox.wait()).kind == "terminated"
        with pytest.raises(SandboxGone):
            await sandbox.endpoint()
        with pytest.raises(SandboxGone):
            await sandbox.exec(Command(("true",)))
        assert await ground.left() == []

    async def test_closing_ends_commands_that_run(self, ground: Ground) -> None:
        sandbox = await ground.runtime.start(ground.spec())
        running = asyncio.create_task(sandbox.exec(ground.shell("sleep 60", env={"BUSY": ground.run})))
        await until(lambda: some(ground, "BUSY"))
        await sandbox.close()
        with pytest.raises(SandboxGone):
            await asyncio.wait_for(running, SOON_S)
        assert await ground.left() == []

    async def test_closing_that_is_cancelled_is_done_first(self, ground: Ground) -> None:
        sandbox = await ground.runtime.start(ground.spec())
        closing = asyncio.create_task(sandbox.close())
        await asyncio.sleep(0)  # it has begun
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert await ground.left() == []

    async def test_everything_that_a_server_started_ends_with_it(self, ground: Ground) -> None:
        main = ground.spec().main
        daemons = Command(("sh", "-c", '(setsid sleep 60 &); sleep 60 & exec "$@"', "sh", *main.argv))
        sandbox = await ground.runtime.start(ground.spec(main=daemons))
        assert len(ground.processes()) >= 3
        await sandbox.close()
        assert await ground.left() == []

    async def test_leaving_the_runtimes_block_ends_what_was_not_closed(self, ground: Ground) -> None:
        sandbox = await ground.runtime.start(ground.spec())
        await ground.runtime.__aexit__(None, None, None)
        await ground.runtime.__aenter__()  # for the block that the test itself is in
        assert (await sandbox.wait()).kind == "terminated"
        assert await ground.outlived() == []

    async def test_the_end_of_what_setup_and_the_server_wrote_is_kept(self, ground: Ground) -> None:
        flood = ground.python("print('x' * 2**20)")
        async with up(ground, setup=(ground.shell("echo first"), flood)) as sandbox:

            async def told() -> bool:
                return "serving" in await sandbox.logs()

            await until(told)
            logs = await sandbox.logs()
            assert len(logs) <= LOG_BYTES
            assert "first" not in logs
        assert (await sandbox.logs()).endswith("serving\n")
