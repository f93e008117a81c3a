"""What a route requires of its caller, declared where the route is: `caller: Annotated[Principal, requires(...)]`."""

from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from gepa_service.api.app_state import Service, service_of
from gepa_service.api.problems import Problem
from gepa_service.api.session_cookie import signed_in
from gepa_service.auth.principal import Permission, Principal

SCHEME = "bearer "
TENANT_HEADER = "evolverpc-tenant"


async def parts(request: Request) -> Service:
    """Return as `service_of`. It is asynchronous because FastAPI runs other dependencies in a thread."""
    return service_of(request)


async def caller_of(request: Request) -> Principal:
    """Return the caller. Raises a 401 problem, the same for every kind of wrong token."""
    found = await recognized(request)
    if found is None:
        raise not_authenticated()
    return found


def not_authenticated() -> Problem:
    """Return the answer to every kind of wrong token."""
    return Problem(
        401,
        "unauthorized",
        "Not authenticated",
        "send a valid key: Authorization: Bearer KEY (evolverpc service keys create makes one)",
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
    named = () if tenant is None else (tenant,)
    found: Principal | None = await run_in_threadpool(service_of(request).recognize, token, *named)
    return found


def requires(permission: Permission) -> Any:
    """Return the dependency that lets callers with this permission pass. Others get a 403 problem."""

    async def check(caller: Annotated[Principal, Depends(caller_of)]) -> Principal:
        if not caller.may(permission):
            raise Problem(
                403,
                "forbidden",
                "Not permitted",
                f"this needs the permission {permission.value}, which the role {caller.role} lacks",
            )
        return caller

    check.permission = permission  # type: ignore[attr-defined]  # the tenant matrix reads it from the route table
    return Depends(check)


Reader = Annotated[Principal, requires(Permission.READ)]
Writer = Annotated[Principal, requires(Permission.WRITE)]
Manager = Annotated[Principal, requires(Permission.MANAGE)]
Optimizer = Annotated[Principal, requires(Permission.JOURNAL)]
Parts = Annotated[Service, Depends(parts)]
