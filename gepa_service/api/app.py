"""Make the ASGI application of a service."""

from fastapi import FastAPI

from gepa_service.api import problems
from gepa_service.api.routes import ROUTERS
from gepa_service.api.service import Service


def create_app(service: Service | None) -> FastAPI:
    """Return the application; `service` is closed by who made it, and None if the routes are only described."""
    app = FastAPI(title="EvolveRPC service", version="1")
    app.state.service = service
    app.add_exception_handler(problems.Problem, problems.answer)
    for router in ROUTERS:
        app.include_router(router)
    return app
