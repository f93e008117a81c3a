"""API keys: make, read, check and revoke them. A key is `grk_ID_SECRET`; only a hash of it is stored."""

import hashlib
import hmac
import re
import secrets
import time
from datetime import datetime

from gepa_service.auth.permissions import Principal
from gepa_service.model.tenant import TENANTS, ApiKey, Role
from gepa_service.records import RecordStore, changed, now

PREFIX = "grk_"
SECRET_BYTES = 32
_FORM = re.compile(r"grk_([0-9a-f]{32})_[0-9a-f]{64}")
_NO_KEY = "0" * 64
"""What an unknown key is compared with: no text has this hash."""


def make_key(owner: str, name: str, role: Role, expires: datetime | None = None) -> tuple[str, ApiKey]:
    """Return a new key of the tenant `owner`, to be shown once, and its record, to be stored."""
    public_id = f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"  # sorts by time
    key = f"{PREFIX}{public_id}_{secrets.token_hex(SECRET_BYTES)}"
    record = ApiKey(
        tenant=TENANTS, id=public_id, owner=owner, name=name, role=role, hashed=hash_of(key), expires=expires
    )
    return key, record


def hash_of(key: str) -> str:
    """Return what is stored of a key. Its secret part has 256 random bits, so that no slow hash is needed."""
    return hashlib.sha256(key.encode()).hexdigest()


def public_id_of(key: str) -> str | None:
    """Return the public part of a key; None for a text that is not written as a key."""
    found = _FORM.fullmatch(key)
    return found[1] if found else None


def check_key(records: RecordStore, key: str) -> Principal | None:
    """Return the caller whose key this is; None if it is unknown, revoked or expired.

    It is read from the database each time, so that a revocation holds at once. Unknown ids, wrong secrets and keys that
    are refused take the same steps as accepted ones. Raises `RecordsUnavailable`.
    """
    public_id = public_id_of(key)
    if public_id is None:
        return None
    found = records.get(ApiKey, TENANTS, public_id)
    matches = hmac.compare_digest(hash_of(key), _NO_KEY if found is None else found.hashed)
    if found is None or not matches or found.revoked is not None:
        return None
    if found.expires is not None and found.expires <= now():
        return None
    return Principal(found.owner, found.role, f"key:{found.id}")


def key_of_owner(records: RecordStore, owner: str, public_id: str) -> ApiKey | None:
    """Return a key of the tenant `owner`; None if it is another tenant's or none."""
    found = records.get(ApiKey, TENANTS, public_id)
    return found if found is not None and found.owner == owner else None


def actor_name(records: RecordStore, actor: str) -> str:
    """Return how people read an `actor` of `Principal`: the name of its key, or the subject of its token."""
    kind, _, id_ = actor.partition(":")
    found = records.get(ApiKey, TENANTS, id_) if kind == "key" else None
    return actor if found is None and kind != "oidc" else id_ if found is None else found.name


def revoke_key(records: RecordStore, key: ApiKey) -> ApiKey:
    """Refuse a key from now on; a key that is revoked stays so. Raises `RecordChanged` if it was deleted."""
    return changed(
        records,
        key,
        lambda found: found if found.revoked is not None else found.model_copy(update={"revoked": now()}),
    )
