"""What `AttemptRecords` uses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gepa_client.journal.store import Store
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.jobs.git_access import GitAccess
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
    """What `AttemptRecords` uses: stores, tokens, repositories and secrets.

    `secrets`: returns a tenant's. `git`: how repositories are read.
    """

    records: RecordStore
    journals: Store
    tokens: JobTokens
    git: GitAccess
    secrets: Callable[[str], Revealed] = lambda _tenant: Revealed()
