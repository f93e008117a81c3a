"""Removes a folder whatever was done to it: nested beyond what a path can say, or made unreadable by its owner."""

import os
import stat
import tempfile
from pathlib import Path


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it; links are removed, not followed. Raises `FileNotFoundError`, `OSError`.

    Folders inside are first moved beside each other, so that neither the depth of calls nor the length of paths grows
    with how deep they were.
    """
    heap = Path(tempfile.mkdtemp(prefix="removing-", dir=folder.parent))
    try:
        _move(folder, heap / "0")
    except BaseException:
        heap.rmdir()
        raise
    moved = 1
    waiting = [heap / "0"]
    while waiting:
        emptied = waiting.pop()
        with os.scandir(emptied) as entries:
            for entry in entries:
                inside = emptied / entry.name
                if entry.is_dir(follow_symlinks=False):
                    aside = heap / str(moved)
                    _move(inside, aside)
                    waiting.append(aside)
                    moved += 1
                else:
                    inside.unlink()
        emptied.rmdir()
    heap.rmdir()


def _move(folder: Path, target: Path) -> None:
    mode = stat.S_IMODE(folder.lstat().st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        folder.chmod(mode | stat.S_IRWXU)  # else its owner cannot empty it, nor move it
    folder.rename(target)
