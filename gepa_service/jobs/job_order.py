"""What a worker orders its job process to do, and what that process reports: one line of JSON each."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from evolverpc_common.redaction import Secrets

End = Literal["completed", "paused", "failed", "cancelled", "interrupted"]


class Front(BaseModel):
    """A port of this machine that sandboxes at Modal reach by the address `url`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    port: int
    url: str


class JobOrder(BaseModel):
    """Run or continue the run `run_id` in `folder`, whose subfolders are the process's own.

    `api`: the address of the service, where the journal is. `token_file`: holds the job's token, renewed by the worker.
    `settings`: of the job, with what the service decides. `budget`: the limits that are in force now. `isolated`: the
    optimizer runs in a container, else in a process with an environment of its own. `front`: given if sandboxes and
    optimizer are at Modal. `secrets`: the tenant's, which the gateway uses; this line alone carries them.
    `redacted`: values that nothing that is kept may hold: of all secrets of the tenant, used here or not.
    `allow_networks`: besides the public ones, where models and other hosts of the gateway may be.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    api: str
    folder: Path
    token_file: Path
    settings: dict[str, Any]
    budget: dict[str, int | float]
    isolated: bool
    front: Front | None = None
    secrets: dict[str, str] = {}
    redacted: tuple[str, ...] = ()
    allow_networks: tuple[str, ...] = ()

    def secrets_of_tenant(self) -> Secrets:
        """Return what replaces the secrets of the tenant."""
        return Secrets(self.redacted, declared=True)


class Ended(BaseModel):
    """How the process ended its job. `interrupted`: by infrastructure; the run continues where it stopped.

    `failure`: of a failed job: `kind`, `message`, and for a preflight its findings; of an interrupted one, what to
    record if it is not tried again. `artifacts`: the program's own JSON files by name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: End
    reason: str | None = None
    failure: dict[str, Any] | None = None
    artifacts: dict[str, Any] = {}
