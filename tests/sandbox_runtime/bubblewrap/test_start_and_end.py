import asyncio
import os
import signal
from dataclasses import replace

import pytest

from sandbox_runtime import SandboxGone, SandboxNotReady
from sandbox_runtime.backends.bubblewrap.container import host_name, processes_named
from tests.sandbox_runtime.backend import BackendUnderTest
from tests.support.waiting import eventually


async def test_a_start_without_its_program_fails_and_leaves_nothing(backend: BackendUnderTest) -> None:
    runtime = backend.runtime
    assert runtime._context is not None
    runtime._context = replace(runtime._context, bubblewrap="/gone/bwrap")
    with pytest.raises(SandboxNotReady, match="No such file"):
        await backend.started()
    assert await backend.left() == []


async def test_a_start_that_is_cancelled_at_any_time_leaves_nothing(backend: BackendUnderTest) -> None:
    for after_s in (0.2, 0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08):
        starting = asyncio.create_task(backend.started(setup=(backend.shell("sleep 60"),)))
        await asyncio.sleep(after_s)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert await backend.left() == []


async def test_a_sandbox_whose_process_is_killed_from_outside_ends_and_leaves_nothing(
    backend: BackendUnderTest,
) -> None:
    sandbox = await backend.started()
    running = asyncio.create_task(sandbox.exec(backend.shell("sleep 60")))
    await asyncio.sleep(0.05)
    os.kill(min(processes_named(host_name(sandbox.id))), signal.SIGKILL)
    assert (await sandbox.wait()).kind == "terminated"
    with pytest.raises(SandboxGone):
        await running
    await eventually(lambda: not processes_named(host_name(sandbox.id)))
    await sandbox.close()
    assert await backend.left() == []
