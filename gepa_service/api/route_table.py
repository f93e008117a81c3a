"""The routes of an application, and what each requires of its caller."""

from collections.abc import Iterable, Iterator

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route

from gepa_service.auth.permissions import Permission


def routes_of(app: FastAPI) -> list[Route]:
    """Return all routes, those of included routers too. Raises `TypeError` for what is no route, such as a mount."""
    return list(_flat(app.routes))


def permission_of(route: Route) -> Permission | None:
    """Return what the route requires of its caller, see `access.requires`; None if it is public."""
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
