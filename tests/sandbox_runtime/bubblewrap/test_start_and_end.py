import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_runtime import EnvironmentMissing, SandboxError, SandboxGone, SandboxNotReady
from sandbox_runtime.backends.bubblewrap import backend as backend_module
from sandbox_runtime.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_runtime.backends.bubblewrap.container import free, host_name, processes_named
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords
from sandbox_runtime.runtime import Runtime
from tests.sandbox_runtime.bubblewrap.containers import (
    left_of,
    shell,
    spec_of,
    started,
)
from tests.support.waiting import eventually


async def test_a_sweep_continues_after_a_failure_and_closes_its_own_sandboxes(
    runtime: Runtime, records: SandboxRecords, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = await started(runtime)
    bad, _ = sorted((records.add({}) for _ in range(2)), key=lambda record: record.id)

    def freeing(record: SandboxRecord) -> None:
        if record.id == bad.id:
            raise OSError("it is stuck")
        free(record)

    monkeypatch.setattr(backend_module, "free", freeing)
    with pytest.raises(SandboxError, match=f"swept 2 .*{bad.id}: it is stuck"):
        await runtime.sweep(orphans_only=False)
    ended = await own.wait()
    assert (ended.kind, ended.detail) == ("terminated", "closed")
    assert [record.id for record in records.all()] == [bad.id]
    monkeypatch.undo()
    assert await runtime.sweep(orphans_only=False) == [bad.id]
    assert left_of(records, sockets) == []


async def test_close_raises_if_a_sandbox_cannot_be_freed(
    runtime: Runtime, records: SandboxRecords, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = await started(runtime)

    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(records, "remove", fail)
        with pytest.raises(SandboxError, match="the disk is gone; sweep it later"):
            await sandbox.close()
    assert (await sandbox.wait()).kind == "lost"
    await runtime.sweep(orphans_only=False)
    assert left_of(records, sockets) == []


async def test_a_missing_environment_is_an_error(runtime: Runtime, tmp_path: Path) -> None:
    spec = await spec_of(runtime)
    object.__setattr__(spec.prepared, "mounts", (str(tmp_path / "gone"),))
    with pytest.raises(EnvironmentMissing):
        await runtime.start(spec)


async def test_a_start_without_its_program_fails_and_leaves_nothing(
    runtime: Runtime, records: SandboxRecords, sockets: Path
) -> None:
    spec = await spec_of(runtime)
    assert runtime.backend._context is not None
    runtime.backend._context = replace(runtime.backend._context, bubblewrap="/gone/bwrap")
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


async def test_outside_its_block_the_runtime_starts_nothing(runtime: Runtime, records: SandboxRecords) -> None:
    spec = await spec_of(runtime)
    with pytest.raises((RuntimeError, SandboxError)):
        await Runtime(BubblewrapBackend(records=records)).start(spec)
