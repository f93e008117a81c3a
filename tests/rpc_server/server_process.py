"""A server as a process of its own."""

import asyncio
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

WAIT_S = 30


@asynccontextmanager
async def server_process(folder: Path, *command: str, env: Mapping[str, str], **given: Any) -> AsyncIterator[Process]:
    """Run it while the block runs; Ctrl-C ends it."""
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=env, stdout=PIPE, stderr=PIPE, **given)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), WAIT_S)
