"""Sign-in of a person at an OIDC issuer: the browser is redirected there and back, and has a session then.

Each issuer redirects to an address of its own: no answer of one is taken for that of another.
"""

import contextlib
import hmac
import logging
from collections.abc import Iterable, Iterator
from html import escape
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from gepa_service.api.access import Parts, delete_cookie, in_cookie, is_foreign, set_cookie
from gepa_service.api.routes.page import HEADERS
from gepa_service.auth.oidc import IssuerUnavailable, OidcIssuer
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
    found = _issuer(service, issuer)
    if found is None:
        return _failed(f"{issuer} is no OIDC issuer of this service")
    if is_foreign(request):
        return _failed("the page of another origin began it: begin it on the service's own page")
    try:
        with one_at_issuers(service):
            address, begun = begin(found, tenant, redirect_uri(service, found))
    except IssuerUnavailable as error:
        return _failed(str(error))
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
    issuer = None if begun is None else _issuer(service, begun.issuer)
    is_own = begun is not None and hmac.compare_digest(begun.state.encode(), state.encode())
    if begun is None or issuer is None or not is_own or place != _place(issuer):
        where, minutes = f"begin again at {service.public_url}", PendingSignIn.LIFETIME_S // 60
        return _failed(f"this browser has not begun this sign-in, or more than {minutes} minutes ago: {where}")
    if not code:
        return _failed(f"{issuer.issuer} refused it: {error_description or error or 'without a reason'}")
    try:
        with one_at_issuers(service):
            token, subject = finish(issuer, begun, code, redirect_uri(service, issuer))
            caller = service.recognize(token, begun.tenant)
    except IssuerUnavailable as failure:
        return _failed(str(failure))
    except TenantNeeded as needed:
        tenants = [(each, urlencode({"issuer": issuer.issuer, "tenant": each})) for each in needed.tenants]
        links = [(f"{BEGIN}?{query}", f"Sign in as a member of {each}") for each, query in tenants]
        return _failed("choose one of your tenants", links)
    if caller is None:
        asked = f"ask an owner to add the issuer {issuer.issuer} and the subject {subject} under Access on the page"
        wrong = "the token is not signed with RS256 or ES256 for this client"
        return _failed(f"you are not a member of {begun.tenant or 'any tenant'}, or {wrong}: {asked}")
    if len(token) > LONGEST_TOKEN:
        return _failed(f"the issuer's token has {len(token)} characters; at most {LONGEST_TOKEN} fit into a cookie")
    response = RedirectResponse("/", 303)
    set_cookie(response, request, SignedIn(token, begun.tenant))
    delete_cookie(response, request, PendingSignIn)
    return response


@contextlib.contextmanager
def one_at_issuers(service: Service) -> Iterator[None]:
    """Ask an issuer within the block, which blocks a thread. Raises `IssuerUnavailable` if too many do so already."""
    if not service.sign_ins.acquire(blocking=False):
        raise IssuerUnavailable("too many people sign in at this moment: try again")
    try:
        yield
    finally:
        service.sign_ins.release()


def redirect_uri(service: Service, issuer: OidcIssuer) -> str:
    """Return where an issuer redirects browsers to."""
    return service.public_url.rstrip("/") + CALLBACK + _place(issuer)


def _place(issuer: OidcIssuer) -> str:
    return issuer.issuer.partition("://")[2].rstrip("/")


def _issuer(service: Service, name: str) -> OidcIssuer | None:
    return next((each for each in service.issuers if each.issuer == name), None)


def _failed(reason: str, links: Iterable[tuple[str, str]] = (("/", "Back to the page"),)) -> Response:
    """Return a page that states why the sign-in failed, with links to continue."""
    _log.warning("a sign-in failed: %s", reason)
    ways = "".join(f'<p><a href="{escape(address)}">{escape(text)}</a></p>' for address, text in links)
    body = f"<!doctype html><meta charset=utf-8><title>Not signed in</title><h1>Not signed in</h1><p>{escape(reason)}"
    return HTMLResponse(body + ways, 403, headers=HEADERS)
