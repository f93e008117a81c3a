import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from sandbox_runtime import EnvironmentMissing, ResourceLimits, SandboxError, SandboxGone, SandboxNotReady
from sandbox_runtime.backends.bubblewrap import runtime as runtime_module
from sandbox_runtime.backends.bubblewrap.container import RecordedResources, free
from sandbox_runtime.backends.bubblewrap.runtime import BubblewrapRuntime
from sandbox_runtime.backends.lifecycle import wait_until_healthy
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords
from tests.sandbox_runtime.bubblewrap.containers import (
    groups_of,
    left_of,
    namespaces,
    python,
    shell,
    spec_of,
    started,
    until,
)


async def test_a_started_sandbox_answers_and_a_closed_one_leaves_nothing(
    runtime: BubblewrapRuntime, records: SandboxRecords, sockets: Path
) -> None:
    sandbox = await started(runtime, labels={"run": "r1"})
    await wait_until_healthy(await sandbox.endpoint(), 5)
    spaces = await namespaces(sandbox)
    assert left_of(records, sockets, spaces) != []
    assert [found.id for found in await runtime.found({"run": "r1"})] == [sandbox.id]
    await sandbox.close()
    await sandbox.close()
    assert (await sandbox.wait()).kind == "terminated"
    assert left_of(records, sockets, spaces) == []
    assert groups_of(sandbox.id) == []
    for parse_request in (sandbox.endpoint(), sandbox.exec(shell("true"))):
        with pytest.raises(SandboxGone):
            await parse_request
    assert "listening" in await sandbox.logs()


async def test_leaving_the_runtime_ends_open_sandboxes(
    find_control_groups: None, records: SandboxRecords, sockets: Path
) -> None:
    async with BubblewrapRuntime(records=records, warm=False) as runtime:
        sandbox = await started(runtime)
        spaces = await namespaces(sandbox)
    assert (await sandbox.wait()).kind == "terminated"
    assert left_of(records, sockets, spaces) == []


async def test_setup_runs_in_order_in_one_workspace_and_is_in_the_log(runtime: BubblewrapRuntime) -> None:
    setup = (shell("echo first; mkdir there"), shell("pwd; cat", cwd="there", stdin=b"given\n"))
    sandbox = await started(runtime, setup=setup)
    assert (await sandbox.logs()).split()[:3] == ["first", "/workspace/there", "given"]


FAILING = [
    ({"setup": (shell("echo broken >&2; exit 3"),)}, "setup", "broken"),
    ({"setup": (shell("sleep 60", timeout_s=0.2),)}, "setup", "longer than 0.2 s"),
    ({"setup": (shell("sleep 60"),), "ready_s": 3.0}, "setup", "longer than 3 s"),
    ({"main": shell("echo dying; exit 4")}, "main", "dying"),
    ({"main": shell("sleep 60"), "ready_s": 3.0}, "ready", "longer than 3 s"),
    ({"main": python("no such syntax")}, "main", "SyntaxError"),
    ({"main": shell("true", cwd="nowhere")}, "main", "nowhere"),
    ({"main": shell("sleep 60"), "limits": ResourceLimits(lifetime_s=3.0)}, "main", "ended before"),
]


async def test_a_start_that_does_not_become_ready_names_the_reason_and_leaves_nothing(
    runtime: BubblewrapRuntime, records: SandboxRecords, sockets: Path
) -> None:
    await (await started(runtime)).close()  # from here on the daemon is there, and times can be short
    specs = [await spec_of(runtime, **changes) for changes, _, _ in FAILING]
    failures = await asyncio.gather(*(runtime.start(spec) for spec in specs), return_exceptions=True)
    for failure, (_, stage, expected) in zip(failures, FAILING, strict=True):
        assert isinstance(failure, SandboxNotReady)
        assert (failure.stage, expected in str(failure)) == (stage, True), failure
    assert left_of(records, sockets) == []


async def test_an_error_quotes_the_end_of_a_long_log_once(runtime: BubblewrapRuntime) -> None:
    with pytest.raises(SandboxNotReady) as failure:
        await started(runtime, setup=(python("print('x' * 100_000 + 'the end'); exit(3)"),))
    assert str(failure.value).count("the end") == 1
    assert len(str(failure.value)) < 5000
    assert len(failure.value.log_tail) <= 4096


async def test_a_sweep_continues_after_a_failure_and_closes_its_own_sandboxes(
    runtime: BubblewrapRuntime, records: SandboxRecords, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = await started(runtime)
    bad, _ = sorted((records.add({}) for _ in range(2)), key=lambda record: record.id)

    def freeing(record: SandboxRecord) -> None:
        if record.id == bad.id:
            raise OSError("it is stuck")
        free(record)

    monkeypatch.setattr(runtime_module, "free", freeing)
    with pytest.raises(SandboxError, match=f"swept 2 .*{bad.id}: it is stuck"):
        await runtime.sweep(orphans_only=False)
    ended = await own.wait()
    assert (ended.kind, ended.detail) == ("terminated", "closed")
    assert [record.id for record in records.all()] == [bad.id]
    monkeypatch.undo()
    assert await runtime.sweep(orphans_only=False) == [bad.id]
    assert left_of(records, sockets) == []


async def test_close_raises_if_a_sandbox_cannot_be_freed(
    runtime: BubblewrapRuntime, records: SandboxRecords, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = await started(runtime)

    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(records, "remove", fail)
        with pytest.raises(SandboxError, match="the disk is gone; sweep it later"):
            await sandbox.close()
    assert (await sandbox.wait()).kind == "terminated"
    await runtime.sweep(orphans_only=False)
    assert left_of(records, sockets) == []


async def test_a_missing_environment_is_an_error(runtime: BubblewrapRuntime, tmp_path: Path) -> None:
    spec = await spec_of(runtime)
    object.__setattr__(spec.prepared, "mounts", (str(tmp_path / "gone"),))
    with pytest.raises(EnvironmentMissing):
        await runtime.start(spec)


async def test_a_start_that_is_cancelled_leaves_nothing(
    runtime: BubblewrapRuntime, records: SandboxRecords, sockets: Path
) -> None:
    spec = await spec_of(runtime, setup=(shell("sleep 60"),))
    for after_s in (0.2, 0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08):  # at first the daemon itself starts
        starting = asyncio.create_task(runtime.start(spec))
        await asyncio.sleep(after_s)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert left_of(records, sockets) == []


async def test_a_cancelled_close_still_closes(
    runtime: BubblewrapRuntime, records: SandboxRecords, sockets: Path
) -> None:
    sandbox = await started(runtime)
    closing = asyncio.create_task(sandbox.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert left_of(records, sockets) == []


async def test_wait_returns_how_a_sandbox_ended(runtime: BubblewrapRuntime) -> None:
    main = python("import os, time; time.sleep(0.5); os._exit(7)")
    with pytest.raises(SandboxNotReady):
        await started(runtime, main=main, ready_s=5)
    killed, exits = await started(runtime), await started(runtime)
    (record,) = [record for record in runtime._records.all() if record.id == killed.id]
    monitor = RecordedResources.of(record).monitor
    assert monitor is not None
    os.kill(monitor, signal.SIGKILL)
    assert (await killed.wait()).kind == "terminated"
    await exits.exec(shell("true"))
    await exits.close()


async def test_a_server_that_ends_ends_its_sandbox(
    runtime: BubblewrapRuntime, records: SandboxRecords, sockets: Path
) -> None:
    code = """
import os, socket
listener = socket.socket(fileno=3)
connection = listener.accept()[0]
connection.recv(65536)
connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
connection.recv(1)
os._exit(9)
"""
    sandbox = await started(runtime, main=python(code))
    ended = await asyncio.wait_for(sandbox.wait(), 10)
    assert (ended.kind, ended.status) == ("exited", 9)
    assert left_of(records, sockets) == []


async def test_when_the_daemon_is_killed_its_sandboxes_are_lost_and_the_next_start_has_another(
    runtime: BubblewrapRuntime, records: SandboxRecords, sockets: Path
) -> None:
    sandbox = await started(runtime)
    spaces = await namespaces(sandbox)
    running = asyncio.create_task(sandbox.exec(shell("sleep 60")))
    await asyncio.sleep(0.05)
    assert runtime._context is not None
    os.kill(runtime._context.supervisor.pid, signal.SIGKILL)
    assert (await sandbox.wait()).kind == "lost"
    with pytest.raises(SandboxGone):
        await running
    await until(lambda: left_of(records, sockets, spaces) == [])
    again = await started(runtime)
    await again.close()


async def test_ten_start_at_once(runtime: BubblewrapRuntime, records: SandboxRecords, sockets: Path) -> None:
    spec = await spec_of(runtime)
    began = time.monotonic()
    sandboxes = await asyncio.gather(*(runtime.start(spec) for _ in range(10)))
    assert time.monotonic() - began < 20
    assert len({sandbox.id for sandbox in sandboxes}) == 10
    await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))
    assert left_of(records, sockets) == []


async def test_outside_its_block_the_runtime_starts_nothing(
    runtime: BubblewrapRuntime, records: SandboxRecords
) -> None:
    spec = await spec_of(runtime)
    with pytest.raises((RuntimeError, SandboxError)):
        await BubblewrapRuntime(records=records).start(spec)
