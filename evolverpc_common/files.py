"""Files and folders: atomic writes, locks, removal of any folder, and plain files below folders that others write."""

import asyncio
import difflib
import fcntl
import os
import shutil
import stat
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path, PurePath
from typing import BinaryIO

_BUSY_POLL_S = 0.1
_COMMANDS = (("rm", "-rf"), ("chmod", "-R", "u+rwx"), ("rm", "-rf"))
"""They handle folders thousands of levels deep, which Python does not; the second opens closed folders."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
DEEPEST = 64
"""Folders in each other below the topmost one; what is in more of them is not looked for."""


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


def write_all(descriptor: int, content: bytes) -> bool:
    """Write all of it to a pipe or a socket; return whether that still has a reader."""
    left = memoryview(content)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


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
    """Return `traim.jsonl: no such file in /home/me; did you mean train.jsonl?`, for a path that does not exist."""
    missing = Path(path)
    names: list[str] = []
    with suppress(OSError):
        names = [each.name for each in missing.parent.iterdir()]
    near = difflib.get_close_matches(missing.name, names, n=1, cutoff=0.8)
    where = "" if missing.is_absolute() else f" in {Path.cwd()}"
    return f"{path}: no such file{where}" + (f"; did you mean {missing.with_name(near[0])}?" if near else "")


class NotPlainFile(OSError):
    """It is a link, a pipe, a device, a folder, or a file that has a second name."""


def open_plain(folder: Path, name: PurePath | str) -> BinaryIO:
    """Open a file for reading. `folder`: trusted, with all that is above it. `name`: below it; `..` is refused.

    A program that writes there may replace any part of a path at any moment. So each part is opened from the one above
    it, no link is followed, and what was opened is judged, not what was there before.

    Raises:
        FileNotFoundError: it is not there. NotPlainFile: it is something else. OSError: it cannot be read.
    """
    path = PurePath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise NotPlainFile(f"{name} is not a path below {folder}")
    with ExitStack() as opened:
        above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, above)
        try:
            for part in path.parts[:-1]:
                above = os.open(part, _FOLDER, dir_fd=above)
                opened.callback(os.close, above)
            return _plain(path.name, above)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise NotPlainFile(f"{name} in {folder} is no plain file: {error.strerror or error}") from None


def plain_files(top: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield the plain files below a folder, by their paths from there, each open for reading; skip all else.

    `top` may itself have been made by others: if it is a link there is nothing below it.
    """
    for folder, folders, names, descriptor in os.fwalk(top):
        if len(Path(folder).relative_to(top).parts) == DEEPEST:
            folders.clear()
        for name in sorted(names):
            with suppress(OSError), _plain(name, descriptor) as file:
                yield Path(folder, name).relative_to(top), file


def _plain(name: str, above: int) -> BinaryIO:
    if not stat.S_ISREG(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):  # a device acts as it is opened
        raise NotPlainFile(f"{name} is no file")
    descriptor = os.open(name, _FILE, dir_fd=above)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(descriptor)
        raise NotPlainFile("it is no file, or has a second name")
    return os.fdopen(descriptor, "rb")
