"""Make the ASGI application of a service."""

import contextlib
import functools
from collections.abc import AsyncIterator

from fastapi import FastAPI

from gepa_service.api import problems
from gepa_service.api.app_state import Service
from gepa_service.api.audit_log import Audit
from gepa_service.api.body_limit import BodyLimit
from gepa_service.api.documented import EVERYWHERE, documented
from gepa_service.api.failures import Failures
from gepa_service.api.housekeeping import housekeeping
from gepa_service.api.idempotency import Idempotency
from gepa_service.api.job_streams import JobStreams
from gepa_service.api.limits import RequestLimits
from gepa_service.api.metrics import Metrics
from gepa_service.api.openapi import document_of
from gepa_service.api.request_counts import RequestCounts
from gepa_service.api.request_log import RequestLog
from gepa_service.api.route_table import routes_of
from gepa_service.api.routes import ROUTERS
from gepa_service.api.routes.job_events import Reports
from gepa_service.api.safety import Safety


def create_app(service: Service | None) -> FastAPI:
    """Return the application; `service` is closed by who made it, and None if the routes are only described."""
    errors = documented(*EVERYWHERE)
    app = FastAPI(
        title="EvolveRPC service", version="1", lifespan=_serving, docs_url=None, redoc_url=None, responses=errors
    )
    app.state.service = service
    for error in problems.HANDLED:
        app.add_exception_handler(error, problems.answer)
    for router in ROUTERS:
        app.include_router(router)
    app.__dict__["openapi"] = functools.cache(lambda: document_of(app))  # what the instance has replaces the method
    if service is not None:
        _surround(app, service)
    return app


def _surround(app: FastAPI, service: Service) -> None:
    """Add what every request passes through; the last that is added is the first that a request meets."""
    app.state.counts, app.state.metrics = RequestCounts(), Metrics()
    app.add_middleware(Audit, records=service.records)
    app.add_middleware(Idempotency, records=service.records)
    app.add_middleware(RequestLimits, records=service.records, counts=app.state.counts, routes=routes_of(app))
    app.add_middleware(BodyLimit)
    app.add_middleware(Failures)
    app.add_middleware(Safety, public_url=service.public_url)
    app.add_middleware(RequestLog, metrics=app.state.metrics)


@contextlib.asynccontextmanager
async def _serving(app: FastAPI) -> AsyncIterator[None]:
    """Hold what requests share on the event loop."""
    service: Service = app.state.service
    app.state.streams, app.state.reports = JobStreams(service.records, service.journals), Reports()
    async with housekeeping(service.records, app.state.counts):
        try:
            yield
        finally:
            await app.state.streams.close()
