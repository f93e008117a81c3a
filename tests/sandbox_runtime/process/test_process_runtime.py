"""What the process backend does besides the suite of all: it warns, finds every process, and bounds what it can."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from evolverpc_common.process_identity import started_at
from sandbox_runtime import (
    Allow,
    Closed,
    Command,
    EgressNotEnforced,
    EnvironmentMissing,
    ResourceLimits,
    RuntimeUnavailable,
    SandboxError,
)
from sandbox_runtime.backends.lifecycle import reached_by
from sandbox_runtime.backends.process.commands import run_build
from sandbox_runtime.backends.process.runtime import NO_ISOLATION_WARNING, ProcessRuntime
from sandbox_runtime.backends.records import SandboxRecords
from tests.sandbox_runtime.ground import Ground, process_ground
from tests.sandbox_runtime.stand_in import SOURCE
from tests.sandbox_runtime.suite.acting import another_process, line_of, until, up


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    async with process_ground() as ground:
        yield ground


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_it_says_loudly_that_it_isolates_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with process_ground():
            assert [record.getMessage() for record in caplog.records] == [NO_ISOLATION_WARNING]


async def test_any_bound_on_what_is_reached_is_refused_with_what_to_use_instead(ground: Ground) -> None:
    for egress in (Closed(), Allow(domains=("example.com",))):
        with pytest.raises(EgressNotEnforced, match="bubblewrap or modal"):
            await ground.runtime.start(ground.spec(egress=egress))


async def test_a_server_that_hides_its_environment_is_ended_with_all_below_it(ground: Ground) -> None:
    hidden = "import ctypes, subprocess; ctypes.CDLL(None).prctl(4, 0)\n"  # PR_SET_DUMPABLE
    child = "subprocess.Popen(['sleep', '60'], env={}, start_new_session=True)\n"
    async with up(ground, main=ground.python(hidden + child + SOURCE.decode())) as sandbox:
        server = (await sandbox.endpoint()).pid  # type: ignore[attr-defined]
        (below,) = children(server)
    assert started_at(server) is None
    assert started_at(below) is None
    assert await ground.left() == []


@pytest.mark.parametrize("pause", ["0.001", "0"])
async def test_one_that_forks_and_ends_without_pause_is_caught(ground: Ground, tmp_path: Path, pause: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # at its end when nobody can write to it any more
    try:
        async with up(ground) as sandbox:
            hop = "import os, sys, time\nheld = open(sys.argv[1], 'wb')\nwhile True:\n if os.fork(): os._exit(0)\n "
            told = await sandbox.exec(ground.python(f"{hop}time.sleep({pause})", str(pipe), env={"HOP": ground.run}))
            assert told.status == 0
            assert os.read(held, 1) == b""
            assert ground.processes("HOP") == []
    finally:
        os.close(held)


async def test_commands_of_a_killed_process_end_without_anybody(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    build = (
        "import asyncio, pathlib, sys\nfrom sandbox_runtime.backends.process.commands import run_build\n"
        "asyncio.run(run_build(('sh', '-c', 'exec 9>\"$0\"; echo >&9; setsid sleep 60 & sleep 60', sys.argv[1]),"
        " pathlib.Path('/'), {'PATH': '/usr/bin:/bin'}, 60, ()))"
    )
    try:
        with subprocess.Popen([sys.executable, "-c", build, str(pipe)]) as other:  # noqa: ASYNC220  it is killed
            await until(lambda: said(held))
            other.kill()
        await until(lambda: at_its_end(held))
    finally:
        os.close(held)


async def test_a_sweep_ends_a_server_that_forks_and_ends_without_pause(ground: Ground, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        hop = (
            f"import os\nif not os.fork():\n held = open({str(pipe)!r}, 'wb')\n"
            " while True:\n  if os.fork(): os._exit(0)\n"
        )
        with another_process(ground, main=ground.python(hop + SOURCE.decode())) as other:
            id_ = await line_of(other)
            other.kill()
            other.wait()
        assert await ground.runtime.sweep() == [id_]
        assert await at_its_end(held)
        assert await ground.left() == []
    finally:
        os.close(held)


async def said(pipe: int) -> bool:
    try:
        return os.read(pipe, 1) == b"\n"
    except BlockingIOError:
        return False


async def at_its_end(pipe: int) -> bool:
    try:
        return os.read(pipe, 1) == b""
    except BlockingIOError:
        return False


async def test_memory_and_files_of_a_process_are_bounded(ground: Ground) -> None:
    async with up(ground, limits=ResourceLimits(memory_mb=256, workspace_mb=8)) as sandbox:
        greedy = await sandbox.exec(ground.python("b = bytearray(400 << 20)"))
        assert b"MemoryError" in greedy.stderr
        assert (await sandbox.exec(ground.python("b = bytearray(100 << 20)"))).status == 0
        too_long = await sandbox.exec(ground.shell("head -c 20000000 /dev/zero > file"))
        assert too_long.status == 128 + 25  # SIGXFSZ
        assert (await sandbox.exec(Command(("stat", "-c", "%s", "file")))).stdout == b"%d\n" % (8 << 20)


async def test_found_and_swept_without_entering_also_where_a_record_cannot_be_read(ground: Ground) -> None:
    state, sockets, workspaces = ground.folders
    records = SandboxRecords("process", state=state.parent.parent, sockets=sockets)
    with another_process(ground) as other:
        id_ = await line_of(other)
        other.kill()
        other.wait()
    (state / id_ / "record.json").write_text("{")
    outside = ProcessRuntime(records=records, workspaces=workspaces)
    assert [found.orphan for found in await outside.found()] == [True]
    assert await outside.sweep() == [id_]
    assert await ground.left() == []


async def test_what_a_later_version_started_is_never_swept(ground: Ground) -> None:
    records = SandboxRecords("process", state=ground.folders[0].parent.parent, sockets=ground.folders[1])
    record = records.add({})
    (record.folder / "record.json").write_text('{"version": 1000}')
    assert [found.orphan for found in await ground.runtime.found()] == [False]
    assert await ground.runtime.sweep() == []
    with pytest.raises(SandboxError, match="later version"):
        await ground.runtime.sweep(orphans_only=False)
    assert [found.id for found in records.all()] == [record.id]
    records.remove(record)


async def test_a_command_that_cannot_be_started_to_build_is_not_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "gone"))
    with pytest.raises(EnvironmentMissing, match="'true' cannot be run"):
        await run_build(("true",), tmp_path, {}, 10, ())


async def test_a_sweep_of_orphans_leaves_our_own_whatever_became_of_the_record(ground: Ground) -> None:
    async with up(ground) as sandbox:
        (ground.folders[0] / sandbox.id / "record.json").write_text("{")
        assert await ground.runtime.sweep() == []
        assert (await sandbox.exec(Command(("true",)))).status == 0
    assert await ground.left() == []


async def test_nothing_is_started_where_the_environment_is_gone_or_the_block_was_left(ground: Ground) -> None:
    spec = ground.spec()
    with pytest.raises(EnvironmentMissing, match="/no/where"):
        await ground.runtime.start(replace(spec, prepared=replace(spec.prepared, mounts=("/no/where",))))
    with pytest.raises(RuntimeUnavailable, match="async with"):
        await ProcessRuntime(records=SandboxRecords("process", state=ground.folders[1])).start(spec)
    assert await ground.left() == []


async def test_gepa_server_answers_there(ground: Ground) -> None:
    main = Command((*ground.prepared.server, "--conformance"))
    async with up(ground, main=main) as sandbox:
        endpoint = await sandbox.endpoint()
        connector, url = reached_by(endpoint.url)
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "discover"}
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(f"{url}/rpc", json=body, headers=headers) as answer,
        ):
            assert "program" in (await answer.json())["result"]


async def test_building_runs_with_its_own_environment_and_leaves_nothing_behind(ground: Ground, tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "SUITE_RUN": ground.run}
    status, output = await run_build(
        ("sh", "-c", "(setsid sleep 60 &); pwd; echo err >&2; exit 3"), tmp_path, env, 10, ()
    )
    assert (status, output.decode()) == (3, f"{tmp_path}\nerr\n")
    with pytest.raises(TimeoutError):
        await run_build(("sleep", "60"), tmp_path, env, 0.2, ())
    _, output = await run_build(
        (sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"), tmp_path, env, 10, ()
    )
    assert json.loads(output).keys() - {"LC_CTYPE", "PWD"} == {*env, "EVOLVERPC_SANDBOX"}
    assert ground.processes() == []
