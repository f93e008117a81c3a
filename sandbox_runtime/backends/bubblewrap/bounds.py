"""What one sandbox may use at most, and which limits each of its processes gets for that."""

from collections.abc import Container
from dataclasses import dataclass

from sandbox_runtime.api.spec import MEMORY_VARIABLE, SandboxSpec

OWN_PROCESSES = 3
"""Those that every sandbox has besides its commands: two of bubblewrap's, and the one that holds it."""

PROCESS_MEMORY_VARIABLE = "GEPA_PROCESS_MEMORY_MB"
"""Bounds the memory of each process in a jail of `gepa-server`, in MiB."""

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

        The number of processes is that of all in the sandbox; a server, and so the programs that it runs, leave some
        free, so that commands run beside it whatever they do. Memory is bounded by the control group. Where there is
        none, each process has a limit of its own, but never the server: native code may not survive an allocation that
        is refused. The server's jails set that limit, see `server_variables`.
        """
        limits = {
            "NPROC": self.tasks - (_KEPT_FREE if server else 0),
            "CORE": 0,
            "NOFILE": _OPEN_FILES,
        }
        if "memory" in lacking and not server:
            limits["DATA"] = self.memory_mb * 2**20
        if "cpu" in lacking:
            limits["CPU"] = max(1, round(self.cpu * self.lifetime_s))
        return limits

    def server_variables(self, lacking: Container[str]) -> dict[str, str]:
        """The variables by which the server knows how much memory there is, and whether its jails must bound it."""
        variables = {MEMORY_VARIABLE: str(self.memory_mb)}
        if "memory" in lacking:
            variables[PROCESS_MEMORY_VARIABLE] = str(self.memory_mb)
        return variables
