"""The parts of a sandbox that its record names, so that any later process can free them."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from evolverpc_common.process_identity import started_at
from sandbox_runtime.backends.bubblewrap.cgroups import ControlGroup
from sandbox_runtime.backends.records import SandboxRecord

_END_S = 10.0
_PAUSE_S = 0.01


def host_name(id_: str) -> str:
    """Return a sandbox's host name, which is in the command line of its bubblewrap and names its control groups."""
    return f"gepa-{id_}"


class RecordedResources(BaseModel):
    """`groups`: folders of its control group. `monitor`, `started`: bubblewrap's process, once it runs."""

    model_config = ConfigDict(frozen=True)

    groups: list[str] = []
    monitor: int | None = None
    started: int | None = None

    def written(self) -> Mapping[str, Any]:
        """Return them as a record stores them."""
        return self.model_dump()

    @classmethod
    def of(cls, record: SandboxRecord) -> "RecordedResources":
        """Return those of a record; none if the record has another form."""
        try:
            return cls.model_validate(record.resources)
        except ValidationError:
            return cls()


def free(record: SandboxRecord) -> None:
    """End everything of a sandbox, and remove its control group. Blocks. Raises `OSError` if something is left."""
    resources = RecordedResources.of(record)
    name = host_name(record.id)
    group = ControlGroup(tuple(Path(folder) for folder in resources.groups if Path(folder).name == name))
    until = time.monotonic() + _END_S
    while pids := {*_named(name), *group.pids(), *_monitor(resources)}:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise OSError(f"processes {sorted(pids)} of sandbox {record.id} do not end")
        time.sleep(_PAUSE_S)
    group.remove()


def _monitor(resources: RecordedResources) -> Iterator[int]:
    if resources.monitor is not None and started_at(resources.monitor) == resources.started:
        yield resources.monitor


def _named(name: str) -> Iterator[int]:
    """Yield the bubblewrap processes of a sandbox, also one whose parent was killed before it could notice."""
    wanted = b"\0--hostname\0" + name.encode() + b"\0"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "cmdline").read_bytes():
                    yield int(entry.name)
