"""What `exec` promises."""

import asyncio
import time
from pathlib import Path

import pytest

from sandbox_runtime import Command
from sandbox_runtime.api.sandbox import EXEC_BYTES
from tests.sandbox_runtime.backend import BackendUnderTest, parse_request
from tests.sandbox_runtime.suite.acting import SOON_S, up
from tests.support.waiting import eventually


class TestExecuting:
    async def test_a_command_has_its_input_and_folder_and_separate_output_streams(
        self, backend: BackendUnderTest, tmp_path: Path
    ) -> None:
        async with up(backend, setup=(Command(("mkdir", "-p", "some/where")),)) as sandbox:
            script = "cat; pwd >&2; echo $EXTRA >&2; exit 3"
            result = await sandbox.exec(
                backend.shell(script, cwd="some/where", stdin=b"from here", env={"EXTRA": "more"})
            )
            assert (result.status, result.stdout, result.timed_out) == (3, b"from here", False)
            assert result.stderr.endswith(b"/some/where\nmore\n")
            (tmp_path / "input").write_bytes(b"x" * 300_000)
            counted = await sandbox.exec(Command(("wc", "-c"), stdin=tmp_path / "input"))
            assert counted.stdout.split() == [b"300000"]
            assert (await sandbox.exec(Command(("cat",)))).stdout == b""

    async def test_a_status_encodes_the_signal_or_a_missing_program(self, backend: BackendUnderTest) -> None:
        async with up(backend) as sandbox:
            assert (await sandbox.exec(backend.shell("kill -9 $$"))).status == 128 + 9
            missing = await sandbox.exec(Command(("no-such-command",)))
            assert missing.status == 127
            assert b"no-such-command" in missing.stderr

    async def test_a_command_that_times_out_or_ends_or_whose_caller_is_cancelled_ends_with_its_descendants(
        self, backend: BackendUnderTest
    ) -> None:
        async with up(backend) as sandbox:
            script = "echo begun; setsid sleep 60 & sleep 60 & sleep 60"
            result = await sandbox.exec(backend.shell(script, timeout_s=0.5, env={"LATE": backend.run}))
            assert (result.status, result.timed_out, result.stdout) == (None, True, b"begun\n")
            assert result.seconds < SOON_S
            assert await backend.outlived("LATE") == []
            began = time.monotonic()
            result = await sandbox.exec(backend.shell("(setsid sleep 60 &); echo done", env={"DAEMON": backend.run}))
            assert (result.status, result.stdout) == (0, b"done\n")
            assert time.monotonic() - began < SOON_S
            assert await backend.outlived("DAEMON") == []
            running = asyncio.create_task(sandbox.exec(backend.shell("sleep 60", env={"WANTED": backend.run})))
            await eventually(lambda: backend.processes("WANTED"))
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert await backend.outlived("WANTED") == []
            assert (await parse_request(await sandbox.endpoint()))[0] == 200

    async def test_the_end_of_a_commands_output_is_kept(self, backend: BackendUnderTest) -> None:
        async with up(backend) as sandbox:
            flood = backend.python("import sys; sys.stdout.write('x' * 5 * 2**20 + 'end'); sys.stderr.write('short')")
            result = await sandbox.exec(flood)
            assert len(result.stdout) == EXEC_BYTES
            assert result.stdout.endswith(b"xend")
            assert result.stderr == b"short"

    async def test_commands_run_at_the_same_time(self, backend: BackendUnderTest) -> None:
        async with up(backend) as sandbox:
            meet = "echo > here-$0; while [ ! -e here-$1 ]; do sleep 0.02; done; echo $0"
            pair = [sandbox.exec(Command(("sh", "-c", meet, *names))) for names in (("1", "2"), ("2", "1"))]
            assert [result.stdout for result in await asyncio.gather(*pair)] == [b"1\n", b"2\n"]
