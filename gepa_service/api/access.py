"""Who calls, by a token or the cookie of a session, and what a route requires of its caller."""

import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute, Route

from gepa_service.api.problems import Problem
from gepa_service.auth.keys import actor_name
from gepa_service.auth.permissions import PERMISSIONS, Permission, Principal
from gepa_service.auth.sessions import AnyCookie, Cookie, SignedIn
from gepa_service.records import TenantRecords
from gepa_service.service import Service

HOST_PREFIX = "__Host-"
"""The prefix of cookies' names over HTTPS: browsers accept such a cookie only from this host."""

READS = ("GET", "HEAD")
DEFAULT_PORTS = {"https": ":443", "http": ":80"}
"""What browsers leave out of an origin."""

OWN_SITES = ("same-origin", "none")
"""`Sec-Fetch-Site` of requests of the page itself, and of an address that was typed."""

SCHEME = "bearer "
TENANT_HEADER = "evolverpc-tenant"


def service_of(request: Request) -> Service:
    """Return the service that the application was made for."""
    service: Service = request.app.state.service
    return service


async def parts(request: Request) -> Service:
    """Return as `service_of`. It is asynchronous because FastAPI runs other dependencies in a thread."""
    return service_of(request)


Parts = Annotated[Service, Depends(parts)]


def not_authenticated() -> Problem:
    """Return the answer to every kind of wrong token."""
    return Problem(
        401,
        "unauthorized",
        "Not authenticated",
        "send a valid key: Authorization: Bearer KEY (an owner of the tenant makes one)",
        headers={"WWW-Authenticate": "Bearer"},
    )


async def recognized(request: Request) -> Principal | None:
    """Return the caller of a request, whose token is checked once; None without a valid token."""
    state = request.state
    if not hasattr(state, "principal"):
        state.principal = await recognized_now(request)
    found: Principal | None = state.principal
    return found


async def recognized_now(request: Request) -> Principal | None:
    """Check the token of a request, again if it was checked before: a stream outlives a key.

    A member of several tenants names one in the header `Evolverpc-Tenant`. A request of the page has its token in the
    cookie of its session.
    """
    given = request.headers.get("authorization", "")
    token = given[len(SCHEME) :].strip(" \t") if given[: len(SCHEME)].lower() == SCHEME else ""
    tenant = request.headers.get(TENANT_HEADER)
    if not given and (who := signed_in(request)) is not None:
        token, tenant = who.token, who.tenant
    if not token:
        return None
    found: Principal | None = await run_in_threadpool(service_of(request).recognize, token, tenant)
    return found


def signed_in(request: Request) -> SignedIn | None:
    """Return who signed in with the browser that sent this request; None if no page of this service sent it.

    `SameSite=Strict` keeps the cookie from requests of other sites; in those of another origin of the same site, such
    as another port of this machine, it does not count either.
    """
    is_certain = request.method in READS or "origin" in request.headers
    if not is_certain or is_foreign(request):
        return None
    return in_cookie(request, SignedIn)


def is_foreign(request: Request) -> bool:
    """Return whether the browser states that the page of another origin sent a request."""
    if request.headers.get("sec-fetch-site", "none") not in OWN_SITES:
        return True
    origin = request.headers.get("origin")
    return origin is not None and origin.lower() not in _origins(request)


def in_cookie(request: Request, type_: type[Cookie]) -> Cookie | None:
    """Return what the cookie of this type holds; None without a valid one."""
    service = service_of(request)
    cookie = request.cookies.get(_name(service, type_))
    return None if cookie is None else service.sessions.open(type_, cookie)


def set_cookie(response: Response, request: Request, content: AnyCookie) -> None:
    """Set the cookie of a session, or of a sign-in that has begun."""
    service = service_of(request)
    response.set_cookie(
        _name(service, type(content)),
        service.sessions.seal(content),
        max_age=content.LIFETIME_S,
        secure=_is_secure(service),
        httponly=True,
        samesite=content.SAME_SITE,
    )


def delete_cookie(response: Response, request: Request, type_: type[AnyCookie]) -> None:
    """Delete the browser's cookie of this type."""
    service = service_of(request)
    response.delete_cookie(_name(service, type_), secure=_is_secure(service), httponly=True, samesite=type_.SAME_SITE)


def _origins(request: Request) -> set[str]:
    """Return the origins of the page: that of the public URL; without HTTPS, that of the address asked for too."""
    service = service_of(request)
    parts = urllib.parse.urlsplit(service.public_url)
    host = parts.netloc.removesuffix(DEFAULT_PORTS.get(parts.scheme.lower(), ""))
    found = {f"{parts.scheme}://{host}".lower()}
    if not _is_secure(service):
        found.add(f"http://{request.headers.get('host', '')}".lower())
    return found


def _name(service: Service, type_: type[AnyCookie]) -> str:
    return HOST_PREFIX + type_.NAME if _is_secure(service) else type_.NAME


def _is_secure(service: Service) -> bool:
    return service.public_url.lower().startswith("https:")


@dataclass(frozen=True, kw_only=True)
class TenantCaller(Principal):
    """A caller that a route lets pass. `records`: those of its tenant, and of no other."""

    records: TenantRecords

    @property
    def name(self) -> str:
        """How people read `actor`. Blocks."""
        return actor_name(self.records.store, self.actor)


def requires(permission: Permission) -> Any:
    """Return the dependency that lets callers with this permission pass.

    Others get a 403 problem, those with a wrong token a 401 problem, the same for every kind of wrong token.
    """

    async def check(request: Request, service: Parts) -> TenantCaller:
        caller = await recognized(request)
        if caller is None:
            raise not_authenticated()
        if not caller.may(permission):
            roles = " or ".join(role for role, permitted in PERMISSIONS.items() if permission in permitted)
            raise Problem(
                403, "forbidden", "Not permitted", f"the request needs the role {roles}; yours is {caller.role}"
            )
        records = TenantRecords(service.records, caller.tenant)
        return TenantCaller(caller.tenant, caller.role, caller.actor, caller.job_id, caller.attempt, records=records)

    check.permission = permission  # type: ignore[attr-defined]  # the tenant matrix reads it from the route table
    return Depends(check)


Reader = Annotated[TenantCaller, requires(Permission.READ)]
Writer = Annotated[TenantCaller, requires(Permission.WRITE)]
Manager = Annotated[TenantCaller, requires(Permission.MANAGE)]
Optimizer = Annotated[TenantCaller, requires(Permission.JOURNAL)]
AttemptCaller = Annotated[TenantCaller, requires(Permission.ATTEMPT)]


def routes_of(app: FastAPI) -> list[Route]:
    """Return all routes, those of included routers too. Raises `TypeError` for what is no route, such as a mount."""
    return list(_flat(app.routes))


def permission_of(route: Route) -> Permission | None:
    """Return what the route requires of its caller, see `requires`; None if it is public."""
    return _required(route.dependant) if isinstance(route, APIRoute) else None


def _flat(routes: Iterable[BaseRoute]) -> Iterator[Route]:
    for route in routes:
        router = getattr(route, "original_router", None)  # of an included router, as newer versions of FastAPI keep it
        if router is not None:
            yield from _flat(router.routes)
        elif isinstance(route, Route):
            yield route
        else:
            raise TypeError(f"{route} is no route whose caller is known")


def _required(dependant: Dependant) -> Permission | None:
    own: Permission | None = getattr(dependant.call, "permission", None)
    below = (found for each in dependant.dependencies if (found := _required(each)) is not None)
    return own if own is not None else next(below, None)
