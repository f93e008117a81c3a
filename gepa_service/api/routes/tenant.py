"""What a tenant has: keys, members, secrets, what it has used and may use, and the log of what was written."""

import functools
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from gepa_service.api.access import Manager, Parts, Reader
from gepa_service.api.idempotency import shown_once
from gepa_service.api.pagination import Id, Page, Paging, RequestBody, View
from gepa_service.api.problems import Problem, documented, not_found
from gepa_service.auth.keys import actor_name, key_of_owner, make_key, revoke_key
from gepa_service.auth.oidc import LONGEST_SUBJECT
from gepa_service.auth.recognize import make_member
from gepa_service.jobs.job_environment import may_be_secret
from gepa_service.jobs.month_spending import month_of, quotas_of, usage_of
from gepa_service.model.tenant import TENANTS, ApiKey, AuditEntry, Member, Quotas, Role, Secret
from gepa_service.model.work import OPTIMIZATIONS, Work
from gepa_service.records import TenantRecords, id_at, now, stored
from gepa_service.repositories.destinations import refused_host
from gepa_service.secrets.vault import Vault
from gepa_service.service import Service
from sandbox_runtime.gateway import SecretHeader as GatewayHeader

router = APIRouter()

LONGEST_DAYS = 3650

LONGEST_VALUE = 16_384
MOST_HEADERS = 50
Name = Annotated[
    str, Path(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64, description="As of a variable: MODEL_KEY.")
]


class KeyRequest(RequestBody):
    """A new key. `expires_in_days`: null for a key that is valid until it is revoked."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    role: Role
    expires_in_days: Annotated[float, Field(gt=0, le=LONGEST_DAYS)] | None = None


class KeyView(View):
    """A key without its secret part. `revoked`, `expires`: from when it is refused."""

    key_id: str
    name: str
    role: Role
    created_at: datetime
    expires: datetime | None
    revoked: datetime | None


class NewKey(KeyView):
    """A key that was made. `key`: the whole of it, which is never shown again."""

    key: str


class KeyPage(Page[KeyView]):
    """Keys, the newest first."""


@router.post("/keys", tags=["keys"], status_code=201)
def create_key(request: Request, asked: KeyRequest, caller: Manager, service: Parts) -> NewKey:
    """Make a key, which is shown in this response alone."""
    days = asked.expires_in_days
    expires = None if days is None else now() + timedelta(days=days)
    key, record = make_key(caller.tenant, asked.name, asked.role, expires)
    shown_once(request)
    service.records.insert(record)
    return NewKey.of(record, key=key)


@router.get("/keys", tags=["keys"])
def keys(caller: Manager, service: Parts, query: Paging) -> KeyPage:
    """List the keys, revoked and expired ones too."""
    records, where = TenantRecords(service.records, TENANTS), {"owner": caller.tenant}
    return KeyPage.read(KeyView.of, records, ApiKey, query, where, newest_first=True)


@router.delete("/keys/{key_id}", tags=["keys"], responses=documented(404))
def delete_key(key_id: Id, caller: Manager, service: Parts) -> KeyView:
    """Revoke a key, at once. It stays in the list."""
    found = key_of_owner(service.records, caller.tenant, key_id)
    if found is None:
        raise not_found("key")
    return KeyView.of(revoke_key(service.records, found))


class MemberRequest(RequestBody):
    """A person or a workload. `issuer`: the URL of the OIDC issuer, `subject`: the `sub` of its tokens."""

    issuer: Annotated[str, Field(max_length=2000, pattern=r"^https?://[^\s]+$")]
    subject: Annotated[str, Field(min_length=1, max_length=LONGEST_SUBJECT, pattern=r"^[^\x00]+$")]
    role: Role


class MemberView(BaseModel):
    """A member."""

    member_id: str
    issuer: str
    subject: str
    role: Role
    created_at: datetime

    @classmethod
    def of(cls, record: Member) -> "MemberView":
        """Return what is shown of a record."""
        issuer, _, subject = record.subject.partition(" ")
        return cls(member_id=record.id, issuer=issuer, subject=subject, role=record.role, created_at=record.created)


class MemberPage(Page[MemberView]):
    """Members, in the order of their ids."""


@router.post("/members", tags=["members"], status_code=201)
def add_member(asked: MemberRequest, caller: Manager) -> MemberView:
    """Add a member; one that is there gets this role."""
    record = make_member(caller.tenant, asked.issuer, asked.subject, asked.role)
    return MemberView.of(
        stored(caller.records.store, record, lambda each: each.model_copy(update={"role": record.role}))
    )


@router.get("/members", tags=["members"])
def members(caller: Manager, query: Paging) -> MemberPage:
    """List the members."""
    return MemberPage.read(MemberView.of, caller.records, Member, query)


@router.delete("/members/{member_id}", tags=["members"], status_code=204, responses=documented(404))
def delete_member(member_id: Id, caller: Manager) -> None:
    """Remove a member, whose tokens are refused at once."""
    if not caller.records.remove(Member, member_id):
        raise not_found("member")


class SecretHeader(RequestBody):
    """A header that the gateway puts on requests to a host: `header: PREFIX VALUE`.

    `host`: in small letters, with `:PORT` if it is not 443. `prefix`: empty, or a word and a space.
    """

    host: Annotated[str, Field(max_length=260, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[1-9][0-9]{0,4})?$")]
    header: Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9-]+$")] = "authorization"
    prefix: Annotated[str, Field(max_length=100, pattern=r"^([\x21-\x3c\x3e-\x7e]+ )?$")] = "Bearer "


class SecretRequest(RequestBody):
    """A secret. `headers`: for which hosts the gateway puts it on, and how."""

    model_config = ConfigDict(hide_input_in_errors=True)

    value: Annotated[str, Field(min_length=1, max_length=LONGEST_VALUE, repr=False)]
    headers: Annotated[list[SecretHeader], Field(max_length=MOST_HEADERS)] = Field(default_factory=list)


class SecretView(View):
    """A secret without its value."""

    name: str
    headers: list[SecretHeader]
    created_at: datetime
    updated_at: datetime


class SecretPage(Page[SecretView]):
    """Secrets, in the order of their names."""


@router.put("/secrets/{name}", tags=["secrets"], status_code=204)
def put_secret(name: Name, asked: SecretRequest, caller: Manager, service: Parts) -> None:
    """Write a secret, over one of this name. Jobs that start from now on use it."""
    if not may_be_secret(name):
        detail = f"`{name}` decides what programs of this service do, so it is never passed on: choose another name"
        raise Problem(422, "refused-name", "Name refused", detail, field="name")
    headers = [each.model_dump() for each in asked.headers]
    _check_headers(service, asked)
    _vault(service).put(caller.tenant, name, asked.value, headers)


@router.get("/secrets", tags=["secrets"])
def secrets(caller: Manager, query: Paging) -> SecretPage:
    """List the secrets, without their values."""
    return SecretPage.read(SecretView.of, caller.records, Secret, query)


@router.delete("/secrets/{name}", tags=["secrets"], status_code=204, responses=documented(404))
def delete_secret(name: Name, caller: Manager, service: Parts) -> None:
    """Delete a secret."""
    if not _vault(service).delete(caller.tenant, name):
        raise not_found("secret")


def _check_headers(service: Service, asked: SecretRequest) -> None:
    """Raise a problem if the gateway cannot, or may not, set a header with the secret."""
    for at, each in enumerate(asked.headers):
        try:
            GatewayHeader(each.host, each.header, asked.value, each.prefix)
        except ValueError as error:
            raise Problem(422, "wrong-header", "Header refused", str(error), field=f"headers.{at}") from None
        if (reason := refused_host(each.host, service.repositories.allow_networks)) is not None:
            raise Problem(422, "wrong-header", "Header refused", reason, field=f"headers.{at}.host")


def _vault(service: Service) -> Vault:
    if service.vault is None:
        detail = "the operator of this service has given it no master key, so that it keeps no secrets"
        raise Problem(409, "no-master-key", "No master key", detail)
    return service.vault


class UsageView(BaseModel):
    """This month, in UTC.

    `jobs`: submitted this month. `usd`: what jobs, batches and steps have cost this month; at least that, if results
    are `unpriced`. `requests`: to the API. `jobs_queued`, `jobs_running`: jobs, batches and steps now. `quotas`: null
    for no limit.
    """

    month: str
    jobs: int
    usd: float
    unpriced: int
    requests: int
    jobs_queued: int
    jobs_running: int
    quotas: Quotas


@router.get("/usage", tags=["usage"])
def usage(request: Request, caller: Reader, service: Parts) -> UsageView:
    """Return what the tenant has used."""
    tenant, records, moment = caller.tenant, service.records, now()
    start = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    used = usage_of(records, tenant)
    return UsageView(
        month=month_of(moment),
        jobs=sum(1 for _ in records.every(Work, tenant, OPTIMIZATIONS, after=id_at("job", start))),
        usd=used.usd,
        unpriced=used.unpriced,
        requests=request.app.state.counts.of(tenant) + used.requests,
        jobs_queued=records.count(Work, tenant, {"status": "pending"}),
        jobs_running=records.count(Work, tenant, {"status": "running"}),
        quotas=quotas_of(records, tenant),
    )


class AuditView(View):
    """A write. `actor_name`: of the key of `actor`, or its subject.

    `status`: of its response; 0 if the API was ended before it answered: its outcome is not known.
    """

    audit_id: str
    actor: str
    actor_name: str
    action: str
    resource: str
    status: int
    created_at: datetime


class AuditPage(Page[AuditView]):
    """Writes, the newest first."""


@router.get("/audit", tags=["audit"])
def audit(
    caller: Manager,
    query: Paging,
    service: Parts,
    actor: Annotated[str | None, Query(max_length=300, description="Only writes of this caller.")] = None,
) -> AuditPage:
    """List the writes of all callers of the tenant."""
    where = None if actor is None else {"actor": actor}
    name = functools.cache(functools.partial(actor_name, service.records))

    def shown(entry: AuditEntry) -> AuditView:
        return AuditView.of(entry, actor_name=name(entry.actor))

    return AuditPage.read(shown, caller.records, AuditEntry, query, where, newest_first=True)
