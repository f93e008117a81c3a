"""Limit the resources of a container: control groups, where they can be made, and limits of each process."""

import contextlib
import errno
import os
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox_runtime.api.spec import ResourceLimits

OWN_PROCESSES = 3
"""Processes of every container besides its commands: one of bubblewrap, the first one, and the helper of the server."""

PROCESS_MEMORY_VARIABLE = "GEPA_PROCESS_MEMORY_MB"
"""The variable that limits the memory of each process in a jail of `evolverpc serve`, in MiB."""

_KEPT_FREE = 64
_OPEN_FILES = 4096


def max_tasks(limits: ResourceLimits) -> int:
    """Return how many tasks a container may have at once, threads included."""
    return limits.processes + OWN_PROCESSES + _KEPT_FREE


def process_limits(limits: ResourceLimits, missing_controllers: Container[str], *, server: bool) -> dict[str, int]:
    """Return the limits of each process, by the names of `resource`. `missing_controllers`: what no cgroup limits.

    The number of processes counts all in the container. A server, and so the programs that it runs, leave some of them
    free, so that commands can run beside it. If no control group limits the memory, each process has a limit of its
    own, but never the server: native code may not survive an allocation that is refused. The server's jails set that
    limit, see `server_variables`.
    """
    found = {"NPROC": max_tasks(limits) - (_KEPT_FREE if server else 0), "CORE": 0, "NOFILE": _OPEN_FILES}
    if "memory" in missing_controllers and not server:
        found["DATA"] = limits.memory_mb * 2**20
    if "cpu" in missing_controllers:
        found["CPU"] = max(1, round(limits.cpu * limits.lifetime_s))
    return found


def server_variables(limits: ResourceLimits, missing_controllers: Container[str]) -> dict[str, str]:
    """Return the variable by which the server's jails limit the memory of processes, if they must."""
    return {PROCESS_MEMORY_VARIABLE: str(limits.memory_mb)} if "memory" in missing_controllers else {}


CONTROLLERS = ("memory", "pids", "cpu")
SYSTEM = Path("/")

_PERIOD_US = 100_000
_BUSY_S = 5.0
_BUSY_PAUSE_S = 0.01


@dataclass(frozen=True)
class ControlGroup:
    """The control group of one container. `folders`: one in each hierarchy."""

    folders: tuple[Path, ...]

    @property
    def entries(self) -> list[str]:
        """The files by which a process joins the group."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def killed(self) -> int:
        """Return how many of its processes were killed because the memory was exhausted."""
        for folder in self.folders:
            for name in ("memory.oom_control", "memory.events"):
                with contextlib.suppress(OSError):
                    counts = dict(line.split(" ") for line in (folder / name).read_text().splitlines())
                    return int(counts.get("oom_kill", "0"))
        return 0

    def remove(self) -> None:
        """Remove the group, whose processes may still be ending. Blocks for up to some seconds.

        Raises:
            OSError: a process is still in it.
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
class ControlGroups:
    """Where control groups can be made. `parents`: a folder for each usable controller; one for all in version 2."""

    version: int
    parents: Mapping[str, Path]

    @property
    def missing_controllers(self) -> list[str]:
        """The controllers that cannot be used."""
        return [name for name in CONTROLLERS if name not in self.parents]

    def group(self, name: str) -> ControlGroup:
        """Return the group of this name, made or not."""
        return ControlGroup(tuple(dict.fromkeys(parent / name for parent in self.parents.values())))

    def make(self, name: str, limits: ResourceLimits) -> ControlGroup:
        """Make the group with these limits. Raises `OSError`; then nothing is left."""
        group = self.group(name)
        try:
            for folder in group.folders:
                folder.mkdir()
            for controller, settings in (_settings_1(limits) if self.version == 1 else _settings_2(limits)).items():
                if controller in self.parents:
                    _write(self.parents[controller] / name, settings)
        except OSError:
            group.remove()
            raise
        return group


def find_control_groups(system: Path = SYSTEM) -> ControlGroups:
    """Find the control groups that this process may make, possibly none. `system`: the root folder to examine."""
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
        return ControlGroups(1, found)
    for place, kind, _ in mounted:
        if kind == "cgroup2" and "" in own:
            return ControlGroups(2, _delegated(system / place.lstrip("/"), own[""]))
    return ControlGroups(1, {})


def _inside(mount: Path, path: str) -> Path:
    """Return the process's own group; the mount itself if a container has another root than the one of the path."""
    folder = mount / path.lstrip("/")
    return folder if folder.is_dir() else mount


def _delegated(mount: Path, path: str) -> dict[str, Path]:
    """Find the nearest group upwards that this process may divide: one with processes in it cannot be divided."""
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


def _settings_1(limits: ResourceLimits) -> dict[str, dict[str, int]]:
    memory = limits.memory_mb * 2**20
    return {
        "memory": {"memory.limit_in_bytes": memory, "?memory.memsw.limit_in_bytes": memory},
        "pids": {"pids.max": max_tasks(limits)},
        "cpu": {"cpu.cfs_period_us": _PERIOD_US, "cpu.cfs_quota_us": round(limits.cpu * _PERIOD_US)},
    }


def _settings_2(limits: ResourceLimits) -> dict[str, dict[str, int | str]]:
    return {
        "memory": {"memory.max": limits.memory_mb * 2**20, "?memory.swap.max": 0},
        "pids": {"pids.max": max_tasks(limits)},
        "cpu": {"cpu.max": f"{round(limits.cpu * _PERIOD_US)} {_PERIOD_US}"},
    }


def _write(folder: Path, settings: Mapping[str, int | str]) -> None:
    """Write settings; those with `?` only if this kernel has them."""
    for name, value in settings.items():
        file = folder / name.removeprefix("?")
        if not name.startswith("?") or file.exists():
            file.write_text(str(value))
