"""The memory of this process, from which the server derives how much it keeps."""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

MEMORY_VARIABLE = "GEPA_MEMORY_MB"
"""The memory that a server and its program may use, in MiB, where the process that starts the server bounds it."""

_ROOT = Path("/")


@cache  # each call of a program asks for a share, and reading the files takes longer than answering a small call
def memory_bytes(stated: str, root: Path = _ROOT) -> int:
    """Return the least of what is stated in MiB, of what this process's control groups and the machine allow, in bytes.

    `stated`: the value of `GEPA_MEMORY_MB`. The limits of the groups are those of the first call.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *([int(stated) * 2**20] if stated.isdecimal() else []), *_group_limits(root)])


def share(parts: int, *, most: int) -> int:
    """Return one of `parts` equal parts of the memory, in bytes, at most `most`."""
    return min(most, memory_bytes(os.environ.get(MEMORY_VARIABLE, "")) // parts)


def answer_bytes() -> int:
    """Return the limit of the result of one call, in bytes: from the program to this server, and from it."""
    return share(16, most=256 * 2**20)


def _group_limits(root: Path) -> Iterator[int]:
    """Yield the limits of this process's control groups and of their parents, of either version."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            yield from _limit(folder / name)
            if folder == mount:
                break


def _limit(file: Path) -> Iterator[int]:
    try:
        text = file.read_text().strip()
    except OSError:  # the root group has none, and a container sees its own groups only
        return
    if text.isdecimal():  # else `max`
        yield int(text)
