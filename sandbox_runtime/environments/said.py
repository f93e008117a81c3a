"""Asks a program of this machine's own something: its version, or where it finds things."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

ASKED_S = 600.0
"""How long it may take; uv fetches a Python in this time."""


async def said_by(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> tuple[int, str]:
    """Its status (1 where it does not run, or not in time), and what it wrote: to stderr where it failed."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return 1, f"{argv[0]}: {error.strerror}"
    try:
        async with asyncio.timeout(ASKED_S):
            written, complained = await process.communicate()
        status = await process.wait()
        return status, (complained if status else written).decode("utf-8", "replace")
    except TimeoutError:
        return 1, f"it took longer than {ASKED_S:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
