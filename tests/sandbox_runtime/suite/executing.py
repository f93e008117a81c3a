"""What `exec` promises."""

import asyncio
import time
from pathlib import Path

import pytest

from sandbox_runtime import Command
from sandbox_runtime.api.sandbox import EXEC_BYTES
from tests.sandbox_runtime.ground import Ground, parse_request
from tests.sandbox_runtime.suite.acting import SOON_S, some, until, up


class Executing:
    async def test_a_command_has_its_input_and_folder_and_its_streams_are_told_apart(
        self, ground: Ground, tmp_path: Path
    ) -> None:
        async with up(ground, setup=(Command(("mkdir", "-p", "some/where")),)) as sandbox:
            script = "cat; pwd >&2; echo $EXTRA >&2; exit 3"
            told = await sandbox.exec(ground.shell(script, cwd="some/where", stdin=b"from here", env={"EXTRA": "more"}))
            assert (told.status, told.stdout, told.timed_out) == (3, b"from here", False)
            assert told.stderr.endswith(b"/some/where\nmore\n")
            (tmp_path / "input").write_bytes(b"x" * 300_000)
            counted = await sandbox.exec(Command(("wc", "-c"), stdin=tmp_path / "input"))
            assert counted.stdout.split() == [b"300000"]
            assert (await sandbox.exec(Command(("cat",)))).stdout == b""

    async def test_a_status_says_who_killed_it_or_that_it_does_not_exist(self, ground: Ground) -> None:
        async with up(ground) as sandbox:
            assert (await sandbox.exec(ground.shell("kill -9 $$"))).status == 128 + 9
            missing = await sandbox.exec(Command(("no-such-command",)))
            assert missing.status == 127
            assert b"no-such-command" in missing.stderr

    async def test_a_command_that_is_out_of_time_is_ended_with_all_that_it_started(self, ground: Ground) -> None:
        async with up(ground) as sandbox:
            script = "echo begun; setsid sleep 60 & sleep 60 & sleep 60"
            told = await sandbox.exec(ground.shell(script, timeout_s=0.5, env={"LATE": ground.run}))
            assert (told.status, told.timed_out, told.stdout) == (None, True, b"begun\n")
            assert told.seconds < SOON_S
            assert await ground.outlived("LATE") == []
            assert (await parse_request(await sandbox.endpoint()))[0] == 200

    async def test_what_a_command_leaves_running_is_ended_with_it(self, ground: Ground) -> None:
        async with up(ground) as sandbox:
            began = time.monotonic()
            told = await sandbox.exec(ground.shell("(setsid sleep 60 &); echo done", env={"DAEMON": ground.run}))
            assert (told.status, told.stdout) == (0, b"done\n")
            assert time.monotonic() - began < SOON_S
            assert await ground.outlived("DAEMON") == []
            assert (await parse_request(await sandbox.endpoint()))[0] == 200

    async def test_a_command_whose_caller_is_cancelled_is_ended(self, ground: Ground) -> None:
        async with up(ground) as sandbox:
            running = asyncio.create_task(sandbox.exec(ground.shell("sleep 60", env={"WANTED": ground.run})))
            await until(lambda: some(ground, "WANTED"))
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert await ground.outlived("WANTED") == []

    async def test_the_end_of_what_a_command_writes_is_kept(self, ground: Ground) -> None:
        async with up(ground) as sandbox:
            flood = ground.python("import sys; sys.stdout.write('x' * 5 * 2**20 + 'end'); sys.stderr.write('short')")
            told = await sandbox.exec(flood)
            assert len(told.stdout) == EXEC_BYTES
            assert told.stdout.endswith(b"xend")
            assert told.stderr == b"short"

    async def test_commands_run_at_the_same_time(self, ground: Ground) -> None:
        async with up(ground) as sandbox:
            meet = "echo > here-$0; while [ ! -e here-$1 ]; do sleep 0.02; done; echo $0"
            pair = [sandbox.exec(Command(("sh", "-c", meet, *names))) for names in (("1", "2"), ("2", "1"))]
            assert [told.stdout for told in await asyncio.gather(*pair)] == [b"1\n", b"2\n"]
