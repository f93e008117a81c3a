"""Open files below a folder that others write: no link is followed, and nothing but a plain file of theirs is opened.

A program that writes there may replace any part of a path at any moment. So each part is opened from the one above it,
and what was opened is judged, not what was there before.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path, PurePath
from typing import BinaryIO

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


DEEPEST = 64
"""Folders in each other below the topmost one; what is in more of them is not looked for."""


class NotPlainFile(OSError):
    """It is a link, a pipe, a device, a folder, or a file that has a second name."""


def open_plain(folder: Path, name: PurePath | str) -> BinaryIO:
    """Open a file for reading. `folder`: trusted, with all that is above it. `name`: below it; `..` is refused.

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
