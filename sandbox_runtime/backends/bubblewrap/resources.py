"""What a record says of a sandbox's parts, so that any later process can free them."""

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
from sandbox_runtime.backends.records import Record

_END_S = 10.0
_PAUSE_S = 0.01


def host_name(id_: str) -> str:
    """A sandbox's host name, which stands in the command of its bubblewrap; its control groups have it too."""
    return f"gepa-{id_}"


class RecordedResources(BaseModel):
    """`groups`: folders of its control group. `monitor`, `started`: bubblewrap's process, once it is up."""

    model_config = ConfigDict(frozen=True)

    groups: list[str] = []
    monitor: int | None = None
    started: int | None = None

    def written(self) -> Mapping[str, Any]:
        """As a record keeps it."""
        return self.model_dump()

    @classmethod
    def of(cls, record: Record) -> "RecordedResources":
        """Those of a record; none where it was not written by this."""
        try:
            return cls.model_validate(record.resources)
        except ValidationError:
            return cls()


def free(record: Record) -> None:
    """End whatever runs of it, and remove its control group. Blocks. Raises `OSError` where something stays."""
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
    """The bubblewraps of it: also one whose other half was killed before it knew that it had to die with that."""
    wanted = b"\0--hostname\0" + name.encode() + b"\0"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "cmdline").read_bytes():
                    yield int(entry.name)
