"""What the routes share: the stores, and how callers are recognized. Made once at the start, never changed."""

from dataclasses import dataclass
from typing import Protocol

from gepa_service.auth.principal import Principal
from gepa_service.records.store import RecordStore, TenantRecords


class Recognize(Protocol):
    """From a bearer token to its caller, as `gepa_service.auth.recognize.Recognizer` does it."""

    def __call__(self, token: str, tenant: str | None = None, /) -> Principal | None:
        """Return the caller; None for a token that is unknown, expired or revoked, or not for the tenant named."""
        ...


@dataclass(frozen=True)
class Service:
    """The parts of a running API. `journals`: the store of runs, as `gepa_client.journal.store.open_store` takes it.

    `recognize` reads a database, so it runs in a thread. `public_url`: by which the API is reached from outside.
    """

    records: RecordStore
    journals: str
    recognize: Recognize
    public_url: str

    def of(self, principal: Principal) -> TenantRecords:
        """Return the records of the caller's tenant."""
        return TenantRecords(self.records, principal.tenant)
