"""A tenant, its keys, members and secrets, and the log of what was written for it; names of keys and databases."""

from datetime import datetime
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from gepa_service.records import Record, new_id

Role = Literal["owner", "editor", "viewer"]

TENANTS = "-"
"""The tenant of the records that describe tenants themselves, and that keys are looked up by."""


class Quotas(BaseModel):
    """What a tenant may use. None: no limit.

    `jobs_at_once`: optimizations, and as many batches and steps. `jobs_queued`, `sandboxes`: of all together.
    `usd_per_month`: once its jobs have cost that much, they wait. What they spend until that is noticed, in five
    seconds and in the examples that are in flight then, is beyond it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    jobs_at_once: int = 4
    jobs_queued: int = 1000
    sandboxes: int = 20
    usd_per_month: float | None = None
    requests_per_minute: int = 600


class Tenant(Record):
    """One customer. Its own records have its id as their `tenant`; this one belongs to `TENANTS`."""

    kind: ClassVar[str] = "tenant"

    name: str = Field(min_length=1, max_length=200)
    quotas: Quotas = Quotas()
    wrapped_key: str | None = None
    """The key that encrypts its secrets, encrypted by the master key; None before the first secret."""


class ApiKey(Record):
    """A key, by the hash of its secret part; the key itself is shown once and never stored.

    `id`: the public part of the key. `revoked`, `expires`: from when it is refused. It belongs to `TENANTS`, because it
    is looked up before its tenant is known; `owner`: that tenant.
    """

    kind: ClassVar[str] = "api_key"
    indexed: ClassVar[tuple[str, ...]] = ("owner",)

    owner: str
    name: str = Field(max_length=200)
    role: Role
    hashed: str
    expires: datetime | None = None
    revoked: datetime | None = None


class Member(Record):
    """A person or a workload that signs in by OIDC. `subject`: `ISSUER SUBJECT` of its tokens."""

    kind: ClassVar[str] = "member"
    indexed: ClassVar[tuple[str, ...]] = ("subject",)

    subject: str
    role: Role


class Secret(Record):
    """A secret value, encrypted by the key of its tenant. `id`: its name. It is never returned over HTTP.

    `sealed`: the nonce and the AES-256-GCM ciphertext, in base64. `headers`: the hosts that the gateway puts it on for:
    `host`, `header`, `prefix` of each.
    """

    kind: ClassVar[str] = "secret"

    sealed: str
    headers: tuple[dict[str, str], ...] = ()


class AuditEntry(Record):
    """One write of a caller. `action`: method and route.

    `status`: of the response; 0 if there was none, because the API was killed, or is still at it.
    """

    kind: ClassVar[str] = "audit"
    indexed: ClassVar[tuple[str, ...]] = ("actor",)

    actor: str
    action: str
    resource: str
    status: int


class IdempotentResponse(Record):
    """The response to a write with an `Idempotency-Key`. `id`: derived from caller, route and key.

    `digest`: of the request; another request with the same key is refused. `status`: None while the first is answered;
    `updated` then shows that it still is. `hour`: when it was made, as `2026-01-31T23`, by which old ones are removed.
    """

    kind: ClassVar[str] = "idempotent_response"
    indexed: ClassVar[tuple[str, ...]] = ("hour",)

    digest: str
    hour: str
    status: int | None = None
    body: str = ""
    headers: dict[str, str] = Field(default_factory=dict)


class Usage(Record):
    """What a tenant used in a month. `id`: `month_2026-01`.

    `usd`: what its work has cost; `unpriced`: results of unknown cost, so that `usd` is the least that was spent.
    """

    kind: ClassVar[str] = "usage"

    requests: int = 0
    usd: float = 0.0
    unpriced: int = 0


class MasterKeyName(Record):
    """The name of the present master key: a wrong one is noticed before it encrypts anything.

    Nothing of the key follows from it. It belongs to `TENANTS`.
    """

    kind: ClassVar[str] = "master_key"

    name: str


class DatabaseName(Record):
    """The name of a database. `id`: `own`, or `other` for that of the one it is used with."""

    kind: ClassVar[str] = "database"

    tenant: str = TENANTS
    name: str = Field(default_factory=lambda: new_id("database"))
