"""Members of tenants: people and workloads that sign in by OIDC."""

import hashlib

from gepa_service.model.tenant import Member, Role
from gepa_service.records.store import RecordStore


def subject_of(issuer: str, subject: str) -> str:
    """Return how a member's subject is stored: the issuer's URL, which holds no blank, and the subject there."""
    return f"{issuer} {subject}"


def make_member(tenant: str, issuer: str, subject: str, role: Role) -> Member:
    """Return the record of a member; its id follows from the subject, so that a tenant has a subject once."""
    text = subject_of(issuer, subject)
    return Member(tenant=tenant, id=f"member_{hashlib.sha256(text.encode()).hexdigest()[:32]}", subject=text, role=role)


def memberships(records: RecordStore, issuer: str, subject: str) -> list[Member]:
    """Return the subject's memberships, in any tenant. Raises `RecordsUnavailable`."""
    return records.page(Member, None, {"subject": subject_of(issuer, subject)})
