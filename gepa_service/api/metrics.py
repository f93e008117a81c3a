"""Figures of one process of the API for Prometheus; none of them names a tenant."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gepa_service.api.audit_log import route_of
from gepa_service.jobs.dispatcher_lease import ID as DISPATCHER
from gepa_service.jobs.dispatcher_lease import LeaseRecord
from gepa_service.model.tenant import TENANTS
from gepa_service.model.work import Work
from gepa_service.records.store import RecordStore

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
STATUSES = ("pending", "running", "paused", "completed", "failed", "cancelled")


class Metrics:
    """The figures."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "gepa_service_requests",
            "Requests that were answered.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self.seconds = Histogram(
            "gepa_service_request_seconds",
            "Time until a response begins.",
            ("method", "route"),
            registry=self._registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )
        self.open = Gauge("gepa_service_open_requests", "Requests and streams that are open.", registry=self._registry)
        self.jobs = Gauge("gepa_service_jobs", "All work of all tenants.", ("status",), registry=self._registry)
        self.waiting = Gauge("gepa_service_tenants_waiting", "Tenants with pending work.", registry=self._registry)

        self.warm = Gauge(
            "gepa_service_warm_sandboxes", "Sandboxes that wait for a batch or step.", registry=self._registry
        )

    def text(self, records: RecordStore) -> bytes:
        """Return the figures, with those of the database. Raises `RecordsUnavailable`."""
        for status in STATUSES:
            self.jobs.labels(status).set(records.count(Work, None, {"status": status}))
        self.waiting.set(len(records.tenants_with(Work, {"status": "pending"})))
        lease = records.get(LeaseRecord, TENANTS, DISPATCHER)
        self.warm.set(0 if lease is None else lease.warm)
        return generate_latest(self._registry)


class Measured:
    """Middleware that counts requests and measures their time."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":  # the start and the end of the application, which concern no other middleware
            await scope["app"].router(scope, receive, send)
            return
        began = time.monotonic()
        method = scope["method"] if scope["method"] in METHODS else "other"

        async def measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = route_of(scope)
                self._metrics.seconds.labels(method, route).observe(time.monotonic() - began)
                self._metrics.requests.labels(method, route, str(message["status"])).inc()
            await send(message)

        with self._metrics.open.track_inprogress():
            await self._app(scope, receive, measured)
