"""Control groups: what bounds all of a sandbox at once, where this process may make them."""

import contextlib
import errno
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox_runtime.backends.bubblewrap.bounds import Bounds

CONTROLLERS = ("memory", "pids", "cpu")
SYSTEM = Path("/")

_PERIOD_US = 100_000
_BUSY_S = 5.0
_BUSY_PAUSE_S = 0.01


@dataclass(frozen=True)
class Group:
    """The group of one sandbox. `folders`: one a hierarchy."""

    folders: tuple[Path, ...]

    @property
    def entries(self) -> list[str]:
        """The files by which a process joins it."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def pids(self) -> set[int]:
        """Who is in it."""
        found: set[int] = set()
        for entry in self.entries:
            with contextlib.suppress(OSError):
                found.update(int(line) for line in Path(entry).read_text().split())
        return found

    def killed(self) -> int:
        """How many of its processes were killed as it had no memory left."""
        for folder in self.folders:
            for name in ("memory.oom_control", "memory.events"):
                with contextlib.suppress(OSError):
                    counts = dict(line.split(" ") for line in (folder / name).read_text().splitlines())
                    return int(counts.get("oom_kill", "0"))
        return 0

    def remove(self) -> None:
        """Remove it; what was in it may just be ending. Blocks, up to some seconds.

        Raises:
            OSError: somebody is still in it.
        """
        until = time.monotonic() + _BUSY_S
        for folder in self.folders:
            while True:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > until:
                        raise
                    time.sleep(_BUSY_PAUSE_S)
                else:
                    break


@dataclass(frozen=True)
class Groups:
    """Where groups can be made. `parents`: a folder for each controller that can be used; one for all in version 2."""

    version: int
    parents: Mapping[str, Path]

    @property
    def lacking(self) -> list[str]:
        """The controllers that cannot be used."""
        return [name for name in CONTROLLERS if name not in self.parents]

    def group(self, name: str) -> Group:
        """The group of this name, made or not."""
        return Group(tuple(dict.fromkeys(parent / name for parent in self.parents.values())))

    def make(self, name: str, bounds: Bounds) -> Group:
        """Make it, with these bounds. Raises `OSError`; then nothing is left."""
        group = self.group(name)
        try:
            for folder in group.folders:
                folder.mkdir()
            for controller, settings in (_settings_1(bounds) if self.version == 1 else _settings_2(bounds)).items():
                if controller in self.parents:
                    _write(self.parents[controller] / name, settings)
        except OSError:
            group.remove()
            raise
        return group


def usable(system: Path = SYSTEM) -> Groups:
    """The groups that this process may make, none perhaps. `system`: the root of the file system to look at."""
    lines = (system / "proc/self/mounts").read_text().splitlines()
    mounted = [(fields[1], fields[2], fields[3].split(",")) for fields in (line.split(" ") for line in lines)]
    own: dict[str, str] = {}
    for line in (system / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    found: dict[str, Path] = {}
    for place, kind, options in mounted:
        if kind == "cgroup":
            for name in CONTROLLERS:
                if name in options and name in own:
                    folder = _inside(system / place.lstrip("/"), own[name])
                    if os.access(folder, os.W_OK):
                        found.setdefault(name, folder)
    if found:
        return Groups(1, found)
    for place, kind, _ in mounted:
        if kind == "cgroup2" and "" in own:
            return Groups(2, _delegated(system / place.lstrip("/"), own[""]))
    return Groups(1, {})


def _inside(mount: Path, path: str) -> Path:
    """Its own group; the mount itself, where a container sees another root than the one that path begins at."""
    folder = mount / path.lstrip("/")
    return folder if folder.is_dir() else mount


def _delegated(mount: Path, path: str) -> dict[str, Path]:
    """The nearest group upwards that this process may divide: one with processes in it cannot be, its parent may."""
    folder = _inside(mount, path)
    while True:
        if os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK):
            divided = folder / "cgroup.subtree_control"
            try:
                offered = {*(folder / "cgroup.controllers").read_text().split()} & {*CONTROLLERS}
                for name in offered - {*divided.read_text().split()}:
                    with contextlib.suppress(OSError):  # then it is lacking below
                        divided.write_text(f"+{name}")
                enabled = divided.read_text().split()
            except OSError:
                enabled = []
            found = {name: folder for name in CONTROLLERS if name in enabled}
            if "memory" in found or "pids" in found:
                return found
        if folder == mount:
            return {}
        folder = folder.parent


def _settings_1(bounds: Bounds) -> dict[str, dict[str, int]]:
    memory = bounds.memory_mb * 2**20
    return {
        "memory": {"memory.limit_in_bytes": memory, "?memory.memsw.limit_in_bytes": memory},
        "pids": {"pids.max": bounds.tasks},
        "cpu": {"cpu.cfs_period_us": _PERIOD_US, "cpu.cfs_quota_us": round(bounds.cpu * _PERIOD_US)},
    }


def _settings_2(bounds: Bounds) -> dict[str, dict[str, int | str]]:
    return {
        "memory": {"memory.max": bounds.memory_mb * 2**20, "?memory.swap.max": 0},
        "pids": {"pids.max": bounds.tasks},
        "cpu": {"cpu.max": f"{round(bounds.cpu * _PERIOD_US)} {_PERIOD_US}"},
    }


def _write(folder: Path, settings: Mapping[str, int | str]) -> None:
    """Those with `?` only where this kernel has them."""
    for name, value in settings.items():
        file = folder / name.removeprefix("?")
        if not name.startswith("?") or file.exists():
            file.write_text(str(value))
