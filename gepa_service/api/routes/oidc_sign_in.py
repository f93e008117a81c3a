"""Sign-in of a person at an OIDC issuer: the browser is redirected there and back, and has a session then.

Each issuer redirects to an address of its own: no answer of one is taken for that of another.
"""

import hmac
import logging
from collections.abc import Iterable
from html import escape
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from gepa_service.api.access import Parts, delete_cookie, in_cookie, is_foreign, set_cookie
from gepa_service.api.routes.page import HEADERS, index
from gepa_service.auth.oidc import IssuerUnavailable, OidcIssuer, TokenRefused
from gepa_service.auth.oidc_sign_in import begin, finish
from gepa_service.auth.recognize import TenantNeeded
from gepa_service.auth.sessions import LONGEST_TOKEN, PendingSignIn, SignedIn
from gepa_service.records import LONGEST_ID
from gepa_service.service import Service

router = APIRouter(include_in_schema=False)

BEGIN, CALLBACK = "/session/oidc", "/session/oidc/callback/"
_log = logging.getLogger(__name__)


@router.get(BEGIN)
def begin_at_issuer(
    request: Request,
    service: Parts,
    issuer: str,
    tenant: Annotated[str | None, Query(max_length=LONGEST_ID)] = None,
) -> Response:
    """Redirect the browser to an OIDC issuer, which redirects it to `finish_at_issuer`. `tenant`: as of `SignIn`."""
    found = service.oidc.issuers.get(issuer)
    if found is None:
        return _failed(f"{issuer} is no OIDC issuer of this service.")
    if is_foreign(request):
        return _failed("The page of another origin began it: begin it on the service's own page.")
    try:
        with service.at_issuers():
            address, begun = begin(found, tenant, redirect_uri(service, found))
    except IssuerUnavailable as unavailable:
        return _not_now(unavailable)
    response = RedirectResponse(address, 303)
    set_cookie(response, request, begun)
    return response


@router.get(CALLBACK + "{place:path}")
def finish_at_issuer(
    request: Request,
    service: Parts,
    place: str,
    state: str = "",
    code: str = "",
    error: str = "",
    error_description: str = "",
) -> Response:
    """Sign a browser in after its OIDC issuer has redirected it here; redirect it to the page."""
    begun = in_cookie(request, PendingSignIn)
    issuer = None if begun is None else service.oidc.issuers.get(begun.issuer)
    is_own = begun is not None and hmac.compare_digest(begun.state.encode(), state.encode())
    if begun is None or issuer is None or not is_own or place != _place(issuer):
        where, minutes = f"begin again at {service.public_url}", PendingSignIn.LIFETIME_S // 60
        return _failed(f"This browser has not begun this sign-in, or more than {minutes} minutes ago: {where}.")
    if not code:
        return _failed(f"{issuer.issuer} refused it: {error_description or error or 'without a reason'}.")
    try:
        with service.at_issuers():
            token = finish(issuer, begun, code, redirect_uri(service, issuer))
            who = service.oidc.check(token)
        caller = service.recognize(token, begun.tenant)
    except IssuerUnavailable as unavailable:
        return _not_now(unavailable)
    except TokenRefused as refused:
        asked = "the operator of this service checks its client there, and the clock here"
        return _failed(f"The token of {issuer.issuer} is not accepted ({refused}): {asked}.")
    except TenantNeeded as needed:
        tenants = [(each, urlencode({"issuer": issuer.issuer, "tenant": each})) for each in needed.tenants]
        links = [(f"{BEGIN}?{query}", f"Sign in as a member of {each}") for each, query in tenants]
        return _failed("Choose one of your tenants.", links)
    if caller is None:
        asked = f"ask an owner to add the issuer {who.issuer} and the subject {who.subject} under Access on the page"
        return _failed(f"You are not a member of {begun.tenant or 'any tenant'}: {asked}.")
    if len(token) > LONGEST_TOKEN:
        fewer = f"at most {LONGEST_TOKEN} fit into a cookie: the operator has the issuer leave claims out"
        return _failed(f"The token of {issuer.issuer} has {len(token)} characters; {fewer}.")
    response = RedirectResponse("/", 303)
    set_cookie(response, request, SignedIn(token, begun.tenant))
    delete_cookie(response, request, PendingSignIn)
    return response


def redirect_uri(service: Service, issuer: OidcIssuer) -> str:
    """Return where an issuer redirects browsers to."""
    return service.public_url.rstrip("/") + CALLBACK + _place(issuer)


def _place(issuer: OidcIssuer) -> str:
    return issuer.issuer.partition("://")[2].rstrip("/")


def _not_now(unavailable: IssuerUnavailable) -> Response:
    return _failed(f"You cannot sign in now: {unavailable}. Try again later, or ask the operator of this service.")


def _failed(reason: str, links: Iterable[tuple[str, str]] = (("/", "Back to the page"),)) -> Response:
    """Return a page that states why the sign-in failed, with links to continue; it looks as the page to sign in on."""
    _log.warning("a sign-in failed: %s", reason)
    ways = "".join(f'<p><a href="{escape(address)}">{escape(text)}</a></p>' for address, text in links)
    why = f'<h1>Not signed in</h1><p class="notices" role="alert">{escape(reason)}</p>{ways}'
    title = '<header class="top"><div class="row title"><strong>EvolveRPC</strong></div></header>'
    shown = f'<div class="page">{title}<main><section class="panel sign-in">{why}</section></main></div>'
    head = bytes(index().body).decode().partition("<div")[0]
    return HTMLResponse(head + shown, 403, headers=HEADERS)
