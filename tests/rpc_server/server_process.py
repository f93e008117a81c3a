"""A server as a process of its own, and calls of its methods."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

WAIT_S = 30
ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def server_process(
    folder: Path,
    *arguments: str,
    command: Sequence[str] = (sys.executable, "-m", "rpc_server"),
    stderr: int | None = PIPE,
    pass_fds: Sequence[int] = (),
    **variables: str,
) -> AsyncIterator[Process]:
    """Run it with these further variables while the block runs; Ctrl-C ends it."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    streams = {"stdin": PIPE, "stdout": PIPE, "stderr": stderr}
    process = await asyncio.create_subprocess_exec(
        *command, *arguments, cwd=folder, env=env, pass_fds=pass_fds, **streams
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), WAIT_S)


async def first_line(process: Process) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), WAIT_S)).decode()
    assert line, (await process.communicate())[1]
    return line


async def ready(process: Process) -> dict[str, Any]:
    """The event in which it states where it is."""
    event: dict[str, Any] = json.loads(await first_line(process))
    assert event["event"] == "ready", event
    return event


async def asked(
    url: str, method: str, params: dict[str, Any], *, connector: aiohttp.BaseConnector | None = None, **headers: str
) -> tuple[int, Any]:
    """The HTTP status and the answer."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(url, json=body, headers=headers) as response,
    ):
        return response.status, await response.json()
