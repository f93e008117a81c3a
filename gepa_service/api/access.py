"""What a route requires of its caller, declared where the route is: `caller: Annotated[Principal, requires(...)]`."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request

from gepa_service.api.app_state import Service, service_of
from gepa_service.api.problems import Problem
from gepa_service.api.session_cookie import signed_in
from gepa_service.api.threads import in_thread
from gepa_service.auth.keys import actor_name
from gepa_service.auth.permissions import Permission, Principal
from gepa_service.records.store import TenantRecords

SCHEME = "bearer "
TENANT_HEADER = "evolverpc-tenant"


async def parts(request: Request) -> Service:
    """Return as `service_of`. It is asynchronous because FastAPI runs other dependencies in a thread."""
    return service_of(request)


Parts = Annotated[Service, Depends(parts)]


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
    return await in_thread(service_of(request).recognize, token, tenant)


@dataclass(frozen=True, kw_only=True)
class TenantCaller(Principal):
    """A caller that a route lets pass. `records`: those of its tenant, and of no other."""

    records: TenantRecords

    @property
    def name(self) -> str:
        """How people read `actor`. Blocks."""
        return actor_name(self.records.store, self.actor)


def requires(permission: Permission) -> Any:
    """Return the dependency that lets callers with this permission pass. Others get a 403 problem."""

    async def check(caller: Annotated[Principal, Depends(caller_of)], service: Parts) -> TenantCaller:
        if not caller.may(permission):
            raise Problem(
                403,
                "forbidden",
                "Not permitted",
                f"this needs the permission {permission.value}, which the role {caller.role} lacks",
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
