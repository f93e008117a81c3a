"""What one sandbox may use at most, and which limits each of its processes gets for that."""

from collections.abc import Container
from dataclasses import dataclass

from sandbox_runtime.spec import SandboxSpec

OWN_PROCESSES = 3
"""Those that every sandbox has besides its commands: two of bubblewrap's, and the one that holds it."""

_KEPT_FREE = 64
_OPEN_FILES = 4096


@dataclass(frozen=True)
class Bounds:
    """`cpu` in cores; `memory_mb` of all its processes and what they write; `workspace_mb` of that what they write."""

    cpu: float
    memory_mb: int
    workspace_mb: int
    processes: int
    lifetime_s: float

    @classmethod
    def of(cls, spec: SandboxSpec) -> "Bounds":
        """Those of a spec."""
        return cls(spec.cpu, spec.memory_mb, spec.workspace_mb, spec.processes, spec.lifetime_s)

    @property
    def tasks(self) -> int:
        """How many there may be at once in all, threads counted."""
        return self.processes + OWN_PROCESSES + _KEPT_FREE

    def limits(self, lacking: Container[str], *, server: bool) -> dict[str, int]:
        """The limits of each process, by the names of `resource`. `lacking`: what no control group bounds.

        Those of memory and processes hold besides a control group: a process that asks for too much is refused, which
        it can survive; a group that has too much is killed. The number of processes is that of all in the sandbox; a
        server, and so the programs that it runs, leave some free, so that commands run beside it whatever they do.
        """
        limits = {
            "NPROC": self.tasks - (_KEPT_FREE if server else 0),
            "DATA": self.memory_mb * 2**20,
            "CORE": 0,
            "NOFILE": _OPEN_FILES,
        }
        if "cpu" in lacking:
            limits["CPU"] = max(1, round(self.cpu * self.lifetime_s))
        return limits
