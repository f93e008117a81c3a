"""How much memory this server may use, from which it derives how much it keeps."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

MEMORY_VARIABLE = "GEPA_MEMORY_MB"
"""The memory that a server and its program may use, in MiB, where the process that starts the server bounds it."""

_ROOT = Path("/")


def memory_bytes(environment: Mapping[str, str] = os.environ, root: Path = _ROOT) -> int:
    """The least of what the environment, this process's control groups and the machine give, in bytes."""
    stated = environment.get(MEMORY_VARIABLE, "")
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *([int(stated) * 2**20] if stated.isdecimal() else []), *_group_limits(root)])


def share(parts: int, *, most: int) -> int:
    """One of so many parts of the memory, in bytes, at most `most`."""
    return min(most, memory_bytes() // parts)


def answer_bytes() -> int:
    """Bytes of the answer to one call, whatever it is about: from the program to this server, and from it."""
    return share(16, most=256 * 2**20)


def _group_limits(root: Path) -> Iterator[int]:
    """The limits of this process's control groups and of those around them, of either version."""
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
