"""Limit what a build writes to the disk of this machine, which no namespace limits."""

import asyncio
import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import EnvironmentMissing

BUILD_MB = 8192
"""The largest size of one build's folder, in MiB; files linked several times count once."""

KEPT_FREE_MB = 512
"""Free space that a build leaves on the disk, in MiB: deleted files that it keeps open are in no folder."""

_MIB = 2**20
_LOOK_S = 0.2
_LOOKS = 20
_MEASURE_S = 1.0
_SHARE = 10
"""Measuring may take a tenth of the time."""

T = TypeVar("T")


async def within(folder: Path, most_mb: int, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, cancelled if `folder` exceeds `most_mb` MiB or the disk is nearly full.

    Raises:
        EnvironmentMissing: it was cancelled, or `folder` is too large at its end.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_excess(folder, most_mb))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            raise EnvironmentMissing(f"the environment cannot be built: {watching.result()}")
        if await _used(folder) > most_mb * _MIB:
            raise EnvironmentMissing(f"the environment cannot be built: {_too_much(most_mb)}")
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await await_shielded(asyncio.wait({working, watching}))


async def _excess(folder: Path, most_mb: int) -> str:
    """Wait for a violation, and return it.

    The folder is measured from time to time, and at once if as much was written to the disk as it may still hold.
    """
    used, free, due = 0, _free(folder), 0.0
    while True:
        await asyncio.sleep(_LOOK_S)
        now_free = _free(folder)
        if now_free < KEPT_FREE_MB * _MIB:
            return f"the disk of {folder} has less than {KEPT_FREE_MB} MiB left"
        began = time.monotonic()
        if began >= due or free - now_free > most_mb * _MIB - used:
            used, free = await _used(folder), now_free
            if used > most_mb * _MIB:
                return _too_much(most_mb)
            due = time.monotonic() + max(_MEASURE_S, _SHARE * (time.monotonic() - began))


def _too_much(most_mb: int) -> str:
    return f"it writes more than {most_mb} MiB to the disk; ask for fewer or smaller packages"


def _free(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


async def _used(folder: Path) -> int:
    """Return the bytes that the folder takes on its disk, by `du`, which handles paths of any depth.

    It gives up if a folder is removed while it looks, as installers do with theirs: then it looks again.
    """
    for _ in range(_LOOKS):
        process = await asyncio.create_subprocess_exec(
            *("du", "-skx", str(folder)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        size = output.partition(b"\t")[0]
        if size.isdigit():
            return int(size) * 1024
        await asyncio.sleep(_LOOK_S)
    raise EnvironmentMissing(f"the environment cannot be built: du cannot measure {folder}")
