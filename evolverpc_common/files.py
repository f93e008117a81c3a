"""Files and folders: atomic writes, a lock between a user's processes, removal of any folder, and missing files."""

import asyncio
import fcntl
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """Write a file under a temporary name and rename it to `path`. One process writes a given file at a time.

    Text is written in UTF-8; characters that UTF-8 cannot encode become escapes. `mode`: permissions of the new file,
    reduced by the umask.

    Raises:
        OSError: the file cannot be written; `path` is unchanged.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
        file.write(data)
    draft.replace(path)


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


_COMMANDS = (("rm", "-rf"), ("chmod", "-R", "u+rwx"), ("rm", "-rf"))
"""They handle folders thousands of levels deep, which Python does not; the second opens closed folders."""


def remove_tree(folder: Path) -> None:
    """Remove a folder of any depth and any modes, or a file; do nothing if it does not exist. Blocks.

    Links are not followed.

    Raises:
        OSError: a part of it remains; the message names it, and the reason.
    """
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        stderr = b""
        for command in _COMMANDS:
            if not os.path.lexists(folder):
                return
            stderr = subprocess.run([*command, "--", str(folder)], capture_output=True, check=False).stderr  # noqa: S603  no shell
        if os.path.lexists(folder):
            first = stderr.decode("utf-8", "replace").partition("\n")[0]
            raise OSError(f"{folder} cannot be removed: {first[:500]}") from None


def no_such_file(path: Path | str) -> str:
    """Return `train.jsonl: no such file in /home/me`, for a path that does not exist."""
    return f"{path}: no such file" + ("" if Path(path).is_absolute() else f" in {Path.cwd()}")
