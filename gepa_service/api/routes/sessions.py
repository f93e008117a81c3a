"""Sessions of people on the page: sign in with a browser, ask who is signed in, sign out."""

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from gepa_service.api.access import Parts, Reader, delete_cookie, is_foreign, set_cookie
from gepa_service.api.pagination import RequestBody
from gepa_service.api.problems import Problem, documented
from gepa_service.auth.oidc import IssuerUnavailable
from gepa_service.auth.permissions import Permission, Principal
from gepa_service.auth.sessions import LONGEST_TOKEN, SignedIn
from gepa_service.model.tenant import TENANTS, Role, Tenant
from gepa_service.records import LONGEST_ID
from gepa_service.service import Service

router = APIRouter(tags=["session"])


class SignIn(RequestBody):
    """`token`: an API key, or a token of an OIDC issuer. `tenant`: for a member of several."""

    token: Annotated[str, Field(min_length=1, max_length=LONGEST_TOKEN, repr=False)]
    tenant: Annotated[str, Field(min_length=1, max_length=LONGEST_ID)] | None = None


class SessionView(BaseModel):
    """Who calls. `tenant_name`: null if the tenant has none. `actor`: as the audit log names the caller."""

    tenant: str
    tenant_name: str | None
    role: Role
    actor: str


class SignInWays(BaseModel):
    """How a person signs in besides with an API key: with a token of `issuers`, or at those of them in `pages`."""

    issuers: list[str]
    pages: list[str]


@router.post("/session", responses=documented(401, 403))
def sign_in(asked: SignIn, request: Request, response: Response, service: Parts) -> SessionView:
    """Sign a browser in: its cookie holds the token, sealed, so that no script can read it."""
    if is_foreign(request):
        raise Problem(403, "wrong-origin", "Wrong origin", "a page of another origin asks: open the service's own page")
    found = service.recognize(asked.token.strip(), asked.tenant)
    if found is None or not found.may(Permission.READ):
        detail = "the key is not valid: it is mistyped, revoked or expired"
        raise Problem(401, "unauthorized", "Not authenticated", detail, field="token")
    set_cookie(response, request, SignedIn(asked.token.strip(), asked.tenant))
    return _view(service, found)


@router.get("/session")
def session(caller: Reader, service: Parts) -> SessionView:
    """Return who calls."""
    return _view(service, caller)


@router.delete("/session", status_code=204)
async def sign_out(request: Request, response: Response) -> None:
    """Sign the browser out. The key stays valid."""
    delete_cookie(response, request, SignedIn)


@router.get("/session/ways")
def sign_in_ways(service: Parts) -> SignInWays:
    """Return the OIDC issuers of the service."""
    pages = []
    for name, issuer in service.oidc.issuers.items():
        with suppress(IssuerUnavailable), service.at_issuers():
            if not issuer.has_page:
                continue
        pages.append(name)  # also one that does not answer now
    return SignInWays(issuers=list(service.oidc.issuers), pages=pages)


def _view(service: Service, caller: Principal) -> SessionView:
    found = service.records.get(Tenant, TENANTS, caller.tenant)
    assert caller.role not in ("job", "attempt")  # noqa: S101  it may not read
    return SessionView(
        tenant=caller.tenant, tenant_name=None if found is None else found.name, role=caller.role, actor=caller.actor
    )
