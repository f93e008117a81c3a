"""A lock between processes of one user: a file that one of them holds, and that is never removed."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

_BUSY_POLL_S = 0.1


@asynccontextmanager
async def locked(file: Path, waiting: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
    """Hold the lock in one task of one process at a time; `waiting` is called once if another holds it."""
    descriptor = _opened(file)
    try:
        reported = False
        while not _taken(descriptor):
            if not reported:
                waiting()
                reported = True
            await asyncio.sleep(_BUSY_POLL_S)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def lock_if_free(file: Path) -> Iterator[bool]:
    """Hold the lock while the block runs if it is free; yields whether it is."""
    descriptor = _opened(file)
    try:
        yield _taken(descriptor)
    finally:
        os.close(descriptor)


def _opened(file: Path) -> int:
    file.parent.mkdir(parents=True, exist_ok=True)
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
