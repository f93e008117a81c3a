"""API keys of a tenant: make, list and revoke them."""

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from gepa_service.api.access import Manager, Parts
from gepa_service.api.idempotency import shown_once
from gepa_service.api.openapi import documented
from gepa_service.api.pages import Page, Paging, RequestBody, View
from gepa_service.api.problems import not_found
from gepa_service.api.routes.repositories import Id
from gepa_service.auth.keys import key_of_owner, make_key, revoke_key
from gepa_service.model.tenant import TENANTS, ApiKey, Role
from gepa_service.records import TenantRecords, now

router = APIRouter(tags=["keys"])

LONGEST_DAYS = 3650


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


@router.post("/keys", status_code=201)
def create_key(request: Request, asked: KeyRequest, caller: Manager, service: Parts) -> NewKey:
    """Make a key, which is shown in this response alone."""
    days = asked.expires_in_days
    expires = None if days is None else now() + timedelta(days=days)
    key, record = make_key(caller.tenant, asked.name, asked.role, expires)
    shown_once(request)
    service.records.insert(record)
    return NewKey.of(record, key=key)


@router.get("/keys")
def keys(caller: Manager, service: Parts, query: Paging) -> KeyPage:
    """List the keys, revoked and expired ones too."""
    records, where = TenantRecords(service.records, TENANTS), {"owner": caller.tenant}
    return KeyPage.read(KeyView.of, records, ApiKey, query, where, newest_first=True)


@router.delete("/keys/{key_id}", responses=documented(404))
def delete_key(key_id: Id, caller: Manager, service: Parts) -> KeyView:
    """Revoke a key, at once. It stays in the list."""
    found = key_of_owner(service.records, caller.tenant, key_id)
    if found is None:
        raise not_found("key")
    return KeyView.of(revoke_key(service.records, found))
