"""Processes that an example leaves behind in its jail end with it, and the next example works."""

import errno
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.rpc_server.jail.conftest import PROGRAM, Server, serving
from tests.support.processes import processes_with
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

DAEMON = (
    "import os, signal, subprocess, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        os.execvp('sleep', ['sleep', '{seconds}'])\n"
    "    os._exit(0)\n"
    "os.wait()\n"
)
PIDS = "import os\nfound = [int(name) for name in os.listdir('/proc') if name.isdigit()]"
MOST = 6  # the jail's first, the warm parent, two processes, and one of them on its way


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alone(_a_jail_can_be: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A program without a repository, whose examples have a second."""
    folder: Path = tmp_path_factory.mktemp("alone")
    (folder / "app.py").write_text(PROGRAM)
    (folder / ".git").mkdir()
    flags = ("--program", "app.py", "--python", sys.executable, "--workers", "2", "--example-timeout-s", "1")
    async with serving(folder, *flags) as running:
        yield running


def unlikely() -> str:
    """Return a number of seconds that no other process sleeps."""
    return f"1000.{uuid.uuid4().int % 10**12:012}"


@pytest.mark.parametrize(
    "ending",
    ["time.sleep(60)", "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})\ntime.sleep(60)", "os._exit(3)"],
    ids=["that ends at its deadline", "that does not", "that dies"],
)
async def test_a_daemon_ends_with_the_example_that_started_it(alone: Server, ending: str) -> None:
    seconds = unlikely()
    (result,) = await alone.results(DAEMON.format(seconds=seconds) + ending)
    assert result["status"] in ("timeout", "program_error")
    await eventually(lambda: not processes_with(f"sleep {seconds}", "cmdline"))
    assert len(await alone.found(PIDS)) <= MOST


async def test_neighbours_run_on_while_a_daemon_is_ended(alone: Server) -> None:
    waits = "import subprocess\nfound = subprocess.run(['sleep', '0.7']).returncode"
    dies = DAEMON.format(seconds=unlikely()) + "os._exit(3)"
    ran, died = await alone.results(waits, dies)
    assert (ran["status"], ran["output"]) == ("ok", 0)
    assert died["error"]["type"] == "process_died"


async def test_a_fork_bomb_is_over_when_its_example_is(alone: Server) -> None:
    mark = f"bomb-{uuid.uuid4().hex}"
    # It bounds itself, in case the tests are root's, whose processes Linux does not count.
    bomb = (
        "import ctypes, os, time\n"
        f"open('/proc/self/comm', 'w').write({mark[:15]!r})\n"
        "while True:\n"
        "    if len(os.listdir('/proc')) < 200 and os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork(): os._exit(0)\n"
        "    time.sleep(0.002)\n"
    )
    (result,) = await alone.results(bomb)
    assert result["status"] in ("timeout", "program_error")
    assert await alone.found("found = 1") == 1
    await eventually(lambda: not processes_with(mark[:15], "comm"))
    assert len(await alone.found(PIDS)) <= MOST


async def test_a_warm_parent_that_is_killed_takes_all_of_its_jail_with_it(alone: Server) -> None:
    seconds = unlikely()
    code = DAEMON.format(seconds=seconds) + "os.kill(os.getppid(), 9)\ntime.sleep(60)"
    (result,) = await alone.results(code)
    assert result["error"]["type"] in ("process_died", "ProgramFailed")
    await eventually(lambda: not processes_with(f"sleep {seconds}", "cmdline"))
    assert await alone.found("found = 1") == 1


async def test_the_programs_own_folder_is_writable_but_for_its_repository(alone: Server) -> None:
    code = "import os\nopen('kept', 'w').write('x')\nfound = [os.getcwd()]\n"
    code += "try: open('.git/config', 'w')\nexcept OSError as error: found.append(error.errno)"
    folder, refused = await alone.found(code)
    folder = Path(folder)
    assert ((folder / "kept").read_text(), refused) == ("x", errno.EROFS)
