"""What the routes share: the stores, and how callers are recognized. Made once at the start, never changed."""

import functools
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gepa_client.journal.store import Store, open_store
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.auth.permissions import Principal
from gepa_service.auth.sessions import Sessions
from gepa_service.jobs.parts import AttemptParts, GitAccess, Revealed
from gepa_service.records import RecordStore
from gepa_service.repositories.github_installations import GitHub
from gepa_service.repositories.repository_access import RepositoryPolicy
from gepa_service.secrets.vault import Vault

if TYPE_CHECKING:  # the dispatcher, which has a `Service` too, serves no requests
    from starlette.requests import Request


@dataclass(frozen=True)
class Service:
    """The parts of a running API. `journals`: the address of the store of runs.

    `recognize`: as `auth.recognize.Recognizer`; it blocks. `public_url`: by which the API is reached from outside.
    `repositories`: which may be connected. `github`: None if the service has no GitHub App. `webhook_key`: from which
    the secret of each webhook is derived. `vault`: None if the service has no master key, and so keeps no secrets.
    `sessions`: of the page; by default they end with this process. `issuers`: the OIDC issuers whose tokens it accepts.
    `job_tokens`, `revealed`: the tokens and a tenant's secrets for attempts.
    """

    records: RecordStore
    journals: str
    recognize: Callable[[str, str | None], Principal | None]
    public_url: str
    repositories: RepositoryPolicy = field(default_factory=RepositoryPolicy)
    github: GitHub | None = None
    webhook_key: bytes = field(default=b"", repr=False)
    vault: Vault | None = None
    sessions: Sessions = field(default_factory=lambda: Sessions(secrets.token_bytes(32)), repr=False)
    issuers: tuple[str, ...] = ()
    job_tokens: JobTokens | None = field(default=None, repr=False)
    revealed: Callable[[str], Revealed] = field(default=lambda _tenant: Revealed(), repr=False)

    @functools.cached_property
    def store(self) -> Store:
        """The store of runs, which its first use opens. Safe to use from several threads. Raises `JournalError`."""
        return open_store(self.journals)

    def attempt_parts(self) -> AttemptParts:
        """Return what the records of attempts are kept with. Raises `JournalError`."""
        assert self.job_tokens is not None, "attempts are known by tokens"  # noqa: S101
        return AttemptParts(
            records=self.records,
            journals=self.store,
            tokens=self.job_tokens,
            git=GitAccess(self.records, self.repositories, self.github),
            secrets=self.revealed,
        )


def service_of(request: "Request") -> Service:
    """Return the service that the application was made for."""
    service: Service = request.app.state.service
    return service
