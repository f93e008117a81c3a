"""What the process backend does besides the suite of all: it warns, finds every process, and bounds what it can."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evolverpc_common.processes import started_at
from sandbox_runtime import Command, EnvironmentMissing, ResourceLimits
from sandbox_runtime.backends.process_commands import run_build
from tests.faults.execution_log import children
from tests.sandbox_runtime.backend import BackendUnderTest
from tests.sandbox_runtime.stub_server import SOURCE
from tests.sandbox_runtime.suite.acting import up


async def test_a_server_that_hides_its_environment_is_ended_with_all_below_it(backend: BackendUnderTest) -> None:
    hidden = "import ctypes, os, subprocess; print(os.getpid()); ctypes.CDLL(None).prctl(4, 0)\n"  # PR_SET_DUMPABLE
    child = "subprocess.Popen(['sleep', '60'], env={}, start_new_session=True)\n"
    async with up(backend, main=backend.python(hidden + child + SOURCE.decode())) as sandbox:
        server = int((await sandbox.logs()).splitlines()[0])
        (below,) = children(server)
    assert started_at(server) is None
    assert started_at(below) is None
    assert await backend.left() == []


async def test_a_process_that_forks_and_exits_without_pause_is_ended(backend: BackendUnderTest, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # at its end when no process can write to it any more
    try:
        async with up(backend) as sandbox:
            hop = "import os, sys\nheld = open(sys.argv[1], 'wb')\nwhile True:\n if os.fork(): os._exit(0)\n"
            result = await sandbox.exec(backend.python(hop, str(pipe), env={"HOP": backend.run}))
            assert result.status == 0
            assert os.read(held, 1) == b""
            assert backend.processes("HOP") == []
    finally:
        os.close(held)


async def test_memory_and_files_of_a_process_are_bounded(backend: BackendUnderTest) -> None:
    async with up(backend, limits=ResourceLimits(memory_mb=256, workspace_mb=8)) as sandbox:
        greedy = await sandbox.exec(backend.python("b = bytearray(400 << 20)"))
        assert b"MemoryError" in greedy.stderr
        assert (await sandbox.exec(backend.python("b = bytearray(100 << 20)"))).status == 0
        too_long = await sandbox.exec(backend.shell("head -c 20000000 /dev/zero > file"))
        assert too_long.status == 128 + 25  # SIGXFSZ
        assert (await sandbox.exec(Command(("stat", "-c", "%s", "file")))).stdout == b"%d\n" % (8 << 20)


async def test_nothing_starts_without_the_environment(backend: BackendUnderTest) -> None:
    spec = backend.spec()
    with pytest.raises(EnvironmentMissing, match="/no/where"):
        await backend.runtime.start(replace(spec, prepared=replace(spec.prepared, mounts=("/no/where",))))
    assert await backend.left() == []


async def test_a_build_runs_with_its_own_environment_and_leaves_no_process(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    env = {"PATH": "/usr/bin:/bin", "SUITE_RUN": backend.run}
    status, output = await run_build(
        ("sh", "-c", "(setsid sleep 60 &); pwd; echo err >&2; exit 3"), tmp_path, env, 10, ()
    )
    assert (status, output.decode()) == (3, f"{tmp_path}\nerr\n")
    with pytest.raises(TimeoutError):
        await run_build(("sleep", "60"), tmp_path, env, 0.2, ())
    _, output = await run_build(
        (sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"), tmp_path, env, 10, ()
    )
    assert json.loads(output).keys() - {"LC_CTYPE", "PWD"} == {*env}
    assert backend.processes() == []
