"""What the tests of the suite do with a sandbox, and look at."""

import asyncio
import base64
import contextlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from sandbox_runtime import Command, CommandResult, Sandbox
from tests.sandbox_runtime.backend import BackendUnderTest

SOON_S = 15.0
"""How long anything is waited for that is to come soon."""


@contextlib.asynccontextmanager
async def up(backend: BackendUnderTest, **changes: object) -> AsyncIterator[Sandbox]:
    sandbox = await backend.runtime.start(backend.spec(**changes))
    try:
        yield sandbox
    finally:
        await sandbox.close()


async def output(sandbox: Sandbox, argv: tuple[str, ...]) -> str:
    result = await sandbox.exec(Command(argv))
    assert result.status == 0, result.stderr
    return result.stdout.decode()


async def result(sandbox: Sandbox, script: str) -> CommandResult:
    return await sandbox.exec(Command(("sh", "-c", script), timeout_s=20))


async def shell_output(sandbox: Sandbox, script: str) -> str:
    return (await output(sandbox, ("sh", "-c", script))).strip()


def groups_of(id_: str) -> list[Path]:
    """The control groups of a sandbox."""
    folders = (folder for folder, _, _ in os.walk("/sys/fs/cgroup"))  # passes over groups that end meanwhile
    return [Path(folder) for folder in folders if folder.endswith(f"/gepa-{id_}")]


async def environment_of(backend: BackendUnderTest, sandbox: Sandbox, env: Mapping[str, str] = {}) -> dict[str, str]:
    """The variables that a command has, given these."""
    shows = backend.python("import json, os; print(json.dumps(dict(os.environ)))", env=env)
    result: dict[str, str] = json.loads((await sandbox.exec(shows)).stdout)
    return result


def command_lines() -> list[str]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes().decode("utf-8", "replace"))
    return lines


def records_of(backend: BackendUnderTest) -> list[str]:
    records = [path for folder in backend.folders for path in folder.glob("*/record.json")]
    assert bool(records) == bool(backend.folders), "there is a record to look at"
    return [path.read_text() for path in records]


@contextlib.contextmanager
def another_process(backend: BackendUnderTest, **changes: object) -> "Iterator[subprocess.Popen[str]]":
    """A process that starts a sandbox, prints its id, and later how it ended."""
    spec = base64.b64encode(pickle.dumps(backend.spec(**changes))).decode()
    code = f"""
import asyncio, base64, pickle
{backend.another}
async def main():
    async with runtime:
        sandbox = await runtime.start(pickle.loads(base64.b64decode({spec!r})))
        print(sandbox.id, flush=True)
        print((await sandbox.wait()).kind, flush=True)

asyncio.run(main())
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def line_of(process: "subprocess.Popen[str]") -> str:
    """Return the next line it prints."""
    assert process.stdout is not None
    return (await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), SOON_S)).strip()
