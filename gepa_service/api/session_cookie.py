"""The cookie of a session: its name, its attributes, and which requests of a browser it counts for.

Browsers send it with requests of this service's own page. `SameSite=Strict` keeps it from those of other sites; in
requests of another origin of the same site, such as another port of this machine, it does not count either.
"""

import urllib.parse

from fastapi import Request, Response

from gepa_service.api.app_state import Service, service_of
from gepa_service.auth.sessions import LIFETIME_S, SignedIn

PLAIN, SECURE = "gepa_session", "__Host-gepa_session"
"""Its names over HTTP and over HTTPS; browsers accept the second one only from this host, by HTTPS."""

READS = ("GET", "HEAD")
DEFAULT_PORTS = {"https": ":443", "http": ":80"}
"""What browsers leave out of an origin."""

OWN_SITES = ("same-origin", "none")
"""`Sec-Fetch-Site` of requests of the page itself, and of an address that was typed."""


def signed_in(request: Request) -> SignedIn | None:
    """Return who signed in with the browser that sent this request; None if no page of this service sent it."""
    service = service_of(request)
    cookie = request.cookies.get(_name(service))
    is_certain = request.method in READS or "origin" in request.headers
    if cookie is None or not is_certain or is_foreign(request):
        return None
    return service.sessions.open(cookie)


def is_foreign(request: Request) -> bool:
    """Return whether the browser states that the page of another origin sent a request."""
    if request.headers.get("sec-fetch-site", "none") not in OWN_SITES:
        return True
    origin = request.headers.get("origin")
    return origin is not None and origin.lower() not in _origins(request)


def set_cookie(response: Response, request: Request, who: SignedIn) -> None:
    """Have the browser keep the session."""
    service = service_of(request)
    response.set_cookie(
        _name(service),
        service.sessions.seal(who),
        max_age=LIFETIME_S,
        secure=_is_secure(service),
        httponly=True,
        samesite="strict",
    )


def delete_cookie(response: Response, request: Request) -> None:
    """Have the browser forget the session."""
    service = service_of(request)
    response.delete_cookie(_name(service), secure=_is_secure(service), httponly=True, samesite="strict")


def _origins(request: Request) -> set[str]:
    """Return the origins of the page: that of the public URL; without HTTPS, that of the address asked for too."""
    service = service_of(request)
    parts = urllib.parse.urlsplit(service.public_url)
    host = parts.netloc.removesuffix(DEFAULT_PORTS.get(parts.scheme.lower(), ""))
    found = {f"{parts.scheme}://{host}".lower()}
    if not _is_secure(service):
        found.add(f"http://{request.headers.get('host', '')}".lower())
    return found


def _name(service: Service) -> str:
    return SECURE if _is_secure(service) else PLAIN


def _is_secure(service: Service) -> bool:
    return service.public_url.lower().startswith("https:")
