"""What the routes share: the stores, and how callers are recognized. Made once at the start, never changed."""

from collections.abc import Callable
from dataclasses import dataclass, field

from gepa_service.auth.principal import Principal
from gepa_service.records.store import RecordStore, TenantRecords
from gepa_service.repositories.github import GitHub
from gepa_service.repositories.policy import RepositoryPolicy


@dataclass(frozen=True)
class Service:
    """The parts of a running API. `journals`: the store of runs, as `gepa_client.journal.store.open_store` takes it.

    `recognize`: the caller of a bearer token; None for one that is unknown, expired or revoked. It reads a database, so
    it runs in a thread. `public_url`: by which the API is reached from outside. `repositories`: which may be connected.
    `github`: None if the service has no GitHub App. `webhook_key`: from which the secret of each webhook is derived.
    """

    records: RecordStore
    journals: str
    recognize: Callable[[str], Principal | None]
    public_url: str
    repositories: RepositoryPolicy = field(default_factory=RepositoryPolicy)
    github: GitHub | None = None
    webhook_key: bytes = field(default=b"", repr=False)

    def of(self, principal: Principal) -> TenantRecords:
        """Return the records of the caller's tenant."""
        return TenantRecords(self.records, principal.tenant)
