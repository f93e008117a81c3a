"""The ASGI application of a service, which also writes counts and removes old records while it serves."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from functools import cache, lru_cache, partial

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from gepa_service.api import problems
from gepa_service.api.access import routes_of
from gepa_service.api.idempotency import Idempotency, remove_old
from gepa_service.api.job_streams import JobStreams
from gepa_service.api.openapi import document_of
from gepa_service.api.problems import EVERYWHERE, Failures, documented
from gepa_service.api.request_log import Audit, RequestLog
from gepa_service.api.routes import ROUTERS, github
from gepa_service.api.routes.health import Metrics
from gepa_service.api.routes.job_events import Reports
from gepa_service.api.safety import BodyLimit, RequestCounts, RequestLimits, Safety
from gepa_service.jobs.attempt_records import AttemptRecords
from gepa_service.records import RecordError
from gepa_service.service import Service

_log = logging.getLogger(__name__)
COUNTS_S = 10.0
REMOVAL_S = 3600.0
ATTEMPTS_KEPT = 1000
"""Attempts of which a process of the API remembers the results that it has stored."""


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
    app.__dict__["openapi"] = cache(lambda: document_of(app))  # what the instance has replaces the method
    if service is not None:
        _surround(app, service)
    return app


def _surround(app: FastAPI, service: Service) -> None:
    """Add what every request passes through; the last that is added is the first that a request meets."""
    app.state.counts, app.state.metrics = RequestCounts(), Metrics()

    @lru_cache(ATTEMPTS_KEPT)
    def attempts(tenant: str, work_id: str, number: int) -> AttemptRecords:
        return AttemptRecords(service, tenant, work_id, number)

    app.state.attempts = attempts
    app.add_middleware(Audit, records=service.records)
    app.add_middleware(Idempotency, records=service.records)
    app.add_middleware(RequestLimits, records=service.records, counts=app.state.counts, routes=routes_of(app))
    app.add_middleware(BodyLimit)
    app.add_middleware(Failures)
    app.add_middleware(Safety, public_url=service.public_url)
    app.add_middleware(RequestLog, metrics=app.state.metrics)


@contextlib.asynccontextmanager
async def _serving(app: FastAPI) -> AsyncIterator[None]:
    """Hold what requests share on the event loop; write counts, also at the end, and remove old records meanwhile."""
    service: Service = app.state.service
    app.state.streams, app.state.reports = JobStreams(service.records, service.journals), Reports()

    def write_counts() -> None:
        app.state.counts.write(service.records)

    tasks = [
        asyncio.create_task(_repeat(write_counts, COUNTS_S)),
        asyncio.create_task(_repeat(partial(remove_old, service.records), REMOVAL_S)),
        asyncio.create_task(_repeat(partial(github.remove_old, service.records), REMOVAL_S)),
    ]
    try:
        yield
    finally:
        await app.state.streams.close()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await _done(write_counts)


async def _repeat(work: Callable[[], object], seconds: float) -> None:
    while True:
        await _done(work)
        await asyncio.sleep(seconds)


async def _done(work: Callable[[], object]) -> None:
    """Do it; a database that is away is met again the next time."""
    try:
        await run_in_threadpool(work)
    except RecordError as error:
        _log.warning("not done now: %s", error)
