"""Orders to the doorman's forks: JSON in a file without a name, so that no other process ever holds what is in it."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


def written(order: Mapping[str, Any]) -> int:
    """The descriptor of a file with the order in it; whoever asks closes it."""
    return in_memory(json.dumps(order).encode())


def in_memory(content: bytes) -> int:
    """The descriptor of a file with this content, to be read from its beginning."""
    descriptor = os.memfd_create("order", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@dataclass(frozen=True)
class Way:
    """How a process gets into a sandbox: as which user of the host (None: ours), and through which `cgroup.procs`."""

    user: int | None
    groups: Sequence[str]


@dataclass(frozen=True)
class RunOrder:
    """A command for the doorman to run: see `entering.run_command`."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    limits: Mapping[str, int]
    alone: bool
    warm: tuple[str, str] | None = None

    def written(self, way: Way) -> int:
        """The descriptor of a file with it."""
        return written(
            {
                "user": way.user,
                "groups": list(way.groups),
                "argv": list(self.argv),
                "cwd": self.cwd,
                "env": dict(self.env),
                "limits": dict(self.limits),
                "alone": self.alone,
                "warm": self.warm,
            }
        )
