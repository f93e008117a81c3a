"""The cache between processes: built again after a kill or by who waited, swept when unused."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evolverpc_common.build_cache import KEPT_DAYS
from sandbox_runtime import Recipe
from sandbox_runtime.environments.cache import EnvironmentCache
from tests.sandbox_runtime.environments.wheels import HostRun, exists, places

TOP = Path(__file__).parents[3]
RECIPE = Recipe(python=">=3.8")

OTHER = f"""
import asyncio, sys
sys.path.insert(0, {str(TOP)!r})
from pathlib import Path
from sandbox_runtime import Recipe
from sandbox_runtime.environments.cache import EnvironmentCache
from tests.sandbox_runtime.environments.wheels import HostRun

class Run(HostRun):
    async def __call__(self, *arguments):
        print("building", flush=True)
        Path(arguments[1], "half").write_text("done")
        await asyncio.sleep(600)

environments = EnvironmentCache(Path(sys.argv[1]))
asyncio.run(environments.ready(Recipe(python=">=3.8"), run=Run(), on_progress=lambda words: None))
"""


async def test_a_build_that_was_killed_is_begun_again(cache: Path, run: HostRun) -> None:
    command = [sys.executable, "-c", OTHER, str(cache)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:  # noqa: ASYNC220  it is killed
        assert killed.stdout is not None
        assert killed.stdout.readline() == "building\n"
        killed.send_signal(signal.SIGKILL)
    built = await EnvironmentCache(cache).ready(RECIPE, run=run, on_progress=print)
    assert exists(built.python)
    assert places(cache) == [Path(built.mounts[0]).parent.name]


async def test_a_cancelled_build_leaves_nothing_and_the_waiting_caller_builds(cache: Path, run: HostRun) -> None:
    begun = asyncio.Event()

    class Hanging(HostRun):
        async def __call__(self, *_: object) -> tuple[int, bytes]:
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

    first = asyncio.create_task(EnvironmentCache(cache).ready(RECIPE, run=Hanging(), on_progress=print))
    await asyncio.wait_for(begun.wait(), 30)
    waiting: asyncio.Queue[str] = asyncio.Queue()
    second = asyncio.create_task(EnvironmentCache(cache).ready(RECIPE, run=run, on_progress=waiting.put_nowait))
    assert await asyncio.wait_for(waiting.get(), 30) == "waiting for another process that builds this environment"
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    built = await asyncio.wait_for(second, 60)
    assert len(places(cache)) == 1
    assert exists(built.python)


async def test_an_environment_unused_for_a_month_is_swept_and_a_used_one_stays(cache: Path, run: HostRun) -> None:
    environments = EnvironmentCache(cache)
    used = await environments.ready(RECIPE, run=run, on_progress=print)
    unused = await environments.ready(Recipe(python=">=3.9"), run=run, on_progress=print)
    long_ago = time.time() - (KEPT_DAYS + 1) * 24 * 3600
    for built in (used, unused):
        os.utime(Path(built.mounts[0]).with_name("complete"), (long_ago, long_ago))
    await environments.ready(RECIPE, run=run, on_progress=print)
    environments.sweep()
    assert exists(used.mounts[0])
    assert not exists(unused.mounts[0])
    assert len(places(cache)) == 1
