import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_runtime import SandboxGone, SandboxNotReady
from sandbox_runtime.backends.bubblewrap.container import host_name, processes_named
from sandbox_runtime.backends.records import SandboxRecords
from sandbox_runtime.runtime import Runtime
from tests.sandbox_runtime.bubblewrap.containers import (
    left_of,
    shell,
    spec_of,
    started,
)
from tests.support.waiting import eventually


async def test_a_start_without_its_program_fails_and_leaves_nothing(
    runtime: Runtime, records: SandboxRecords, sockets: Path
) -> None:
    spec = await spec_of(runtime)
    assert runtime._context is not None
    runtime._context = replace(runtime._context, bubblewrap="/gone/bwrap")
    with pytest.raises(SandboxNotReady, match="No such file"):
        await runtime.start(spec)
    assert left_of(records, sockets) == []


async def test_a_start_that_is_cancelled_leaves_nothing(
    runtime: Runtime, records: SandboxRecords, sockets: Path
) -> None:
    spec = await spec_of(runtime, setup=(shell("sleep 60"),))
    for after_s in (0.2, 0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08):
        starting = asyncio.create_task(runtime.start(spec))
        await asyncio.sleep(after_s)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert left_of(records, sockets) == []


async def test_a_sandbox_whose_process_is_killed_from_outside_ends_and_leaves_nothing(
    runtime: Runtime, records: SandboxRecords, sockets: Path
) -> None:
    sandbox = await started(runtime)
    running = asyncio.create_task(sandbox.exec(shell("sleep 60")))
    await asyncio.sleep(0.05)
    os.kill(min(processes_named(host_name(sandbox.id))), signal.SIGKILL)
    assert (await sandbox.wait()).kind == "terminated"
    with pytest.raises(SandboxGone):
        await running
    await eventually(lambda: left_of(records, sockets, sandbox.id) == [])
