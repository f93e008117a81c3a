"""From a bearer token to the caller: an API key, a job token, or a member's token of an OIDC issuer."""

import hashlib
from dataclasses import dataclass

from gepa_service.auth.job_tokens import JobTokens, is_job_token
from gepa_service.auth.keys import PREFIX, check_key
from gepa_service.auth.oidc import OidcTokens, TokenRefused
from gepa_service.auth.permissions import Principal
from gepa_service.model.tenant import Member, Role
from gepa_service.records import RecordStore

LONGEST_TOKEN = 16_384


class TenantNeeded(Exception):
    """The caller is a member of several tenants and did not name one. `tenants`: their ids."""

    def __init__(self, tenants: list[str]) -> None:
        super().__init__(f"a member of {', '.join(tenants)}")
        self.tenants = tenants


@dataclass(frozen=True)
class Recognizer:
    """Recognizes callers."""

    records: RecordStore
    job_tokens: JobTokens
    oidc: OidcTokens

    def __call__(self, token: str, tenant: str | None = None) -> Principal | None:
        """Return the caller of a token; None if it is unknown, expired or revoked. Blocks.

        `tenant`: which one the caller named; a token that is not for it is refused.

        Raises:
            TenantNeeded: the token's subject is a member of several tenants, and none is named.
            IssuerUnavailable: the token's OIDC issuer does not answer. RecordsUnavailable: the database does not.
        """
        if len(token) > LONGEST_TOKEN:
            return None
        if token.startswith(PREFIX):
            found = check_key(self.records, token)
        elif is_job_token(token):
            found = self.job_tokens.check(token)
        else:
            return self._member(token, tenant)
        return found if found is None or tenant in (None, found.tenant) else None

    def _member(self, token: str, tenant: str | None) -> Principal | None:
        try:
            who = self.oidc.check(token)
        except TokenRefused:
            return None
        members = self.records.page(Member, None, {"subject": subject_of(who.issuer, who.subject)})
        found = [each for each in members if tenant in (None, each.tenant)]
        if len(found) > 1:
            raise TenantNeeded([each.tenant for each in found])
        return Principal(found[0].tenant, found[0].role, f"oidc:{who.subject}") if found else None


def subject_of(issuer: str, subject: str) -> str:
    """Return how a member's subject is stored: the issuer's URL, which holds no blank, and the subject there."""
    return f"{issuer} {subject}"


def make_member(tenant: str, issuer: str, subject: str, role: Role) -> Member:
    """Return the record of a member; its id follows from the subject, so that a tenant has a subject once."""
    text = subject_of(issuer, subject)
    return Member(tenant=tenant, id=f"member_{hashlib.sha256(text.encode()).hexdigest()[:32]}", subject=text, role=role)
