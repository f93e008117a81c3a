"""What all attempts of a process share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gepa_client.journal.store import Store
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.jobs.front_port import Forward
from gepa_service.jobs.git_access import GitAccess
from gepa_service.jobs.hosts import Hosts
from gepa_service.model.work import Work
from gepa_service.records.store import RecordStore


@dataclass(frozen=True)
class Revealed:
    """A tenant's secrets for one work: variables by name, and entries of `secret_headers`.

    `unused`: the values of secrets that no process is given.
    """

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: tuple[str, ...] = ()
    unused: tuple[str, ...] = field(default=(), repr=False)

    @property
    def values(self) -> tuple[str, ...]:
        """Every value, which nothing that is kept may hold."""
        return (*self.variables.values(), *self.unused)


@dataclass(frozen=True)
class AttemptParts:
    """What all attempts of a process share.

    `api`: the address of the API, as this machine reaches it. `folder`: for the folders of works. `cache`: of
    fetched repositories and built environments, by tenant. `sandbox`: the backend. `secrets`: returns a tenant's.
    `git`: how repositories are read. `forward`: with the backend `modal`, makes a port of this machine reachable from
    there, and gives its address. `hosts`: of this process, which does batches and steps in them.
    """

    records: RecordStore
    journals: Store
    tokens: JobTokens
    api: str
    folder: Path
    cache: Path
    git: GitAccess
    sandbox: str = "bubblewrap"
    secrets: Callable[[str], Revealed] = lambda _tenant: Revealed()
    forward: Forward | None = None
    hosts: Hosts = field(default_factory=Hosts)


def folder_of(parts: AttemptParts, work: Work, attempt: int | None = None) -> Path:
    """Return the folder of an attempt, the present one if none is named: processes of the one before may end later."""
    return parts.folder / f"{work.id}-{attempt or work.attempts}"
