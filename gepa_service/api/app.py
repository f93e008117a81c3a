"""Make the ASGI application of a service."""

import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI

from gepa_service.api import problems
from gepa_service.api.job_streams import JobStreams
from gepa_service.api.openapi import document_of
from gepa_service.api.routes import ROUTERS
from gepa_service.api.routes.job_events import Reports
from gepa_service.api.service import Service


def create_app(service: Service | None) -> FastAPI:
    """Return the application; `service` is closed by who made it, and None if the routes are only described."""
    app = FastAPI(title="EvolveRPC service", version="1", lifespan=_serving)
    app.state.service = service
    app.add_exception_handler(problems.Problem, problems.answer)
    for router in ROUTERS:
        app.include_router(router)
    app.__dict__["openapi"] = lambda: document_of(app)  # what the instance has comes before the method
    return app


@contextlib.asynccontextmanager
async def _serving(app: FastAPI) -> AsyncIterator[None]:
    """Hold what requests share on the event loop."""
    service: Service = app.state.service
    app.state.streams, app.state.reports = JobStreams(service.records, service.journals), Reports()
    try:
        yield
    finally:
        await app.state.streams.close()
