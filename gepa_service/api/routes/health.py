"""Whether the API answers and can do its work, which all may ask, and its figures, for the operator's collector."""

import hmac

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gepa_client.errors import JournalError
from gepa_client.journal.store import open_store
from gepa_service.api.access import Parts
from gepa_service.api.problems import RETRY_S, Problem, documented
from gepa_service.jobs.dispatcher import sandboxes_of
from gepa_service.jobs.dispatcher_lease import ID as DISPATCHER
from gepa_service.jobs.dispatcher_lease import LeaseRecord
from gepa_service.jobs.month_spending import usage_of
from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.model.work import ENDED, NAMES, Work
from gepa_service.records import RecordError, RecordStore, now
from gepa_service.secrets.master_key import METRICS

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
STATUSES = ("pending", "running", "paused", *sorted(ENDED))


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

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request whose response begins, and measure its time."""
        known = method if method in METHODS else "other"
        self.seconds.labels(known, route).observe(seconds)
        self.requests.labels(known, route, str(status)).inc()

    def text(self, records: RecordStore) -> bytes:
        """Return the figures, with those of the databases. Raises `RecordsUnavailable`."""
        return generate_latest(self._registry) + generate_latest(_of_records(records))


def _of_records(records: RecordStore) -> CollectorRegistry:
    registry = CollectorRegistry()
    works = Gauge("gepa_service_works", "Work of all tenants.", ("what", "status"), registry=registry)
    for what, name in NAMES.items():
        for status in STATUSES:
            works.labels(name, status).set(records.count(Work, None, {"what": what, "status": status}))
    own = Gauge("gepa_service_tenant_works", "Unfinished work of a tenant.", ("tenant", "status"), registry=registry)
    for status in ("pending", "running"):
        for tenant, count in records.tenants_with(Work, {"status": status}).items():
            own.labels(tenant, status).set(count)
    age = Gauge("gepa_service_queue_age_seconds", "For how long the oldest pending work waits.", registry=registry)
    oldest = [
        each.created
        for what in NAMES
        for each in records.page(Work, None, {"what": what, "status": "pending"}, limit=1)
    ]
    age.set(max(0.0, (now() - min(oldest)).total_seconds()) if oldest else 0.0)
    used = Gauge(
        "gepa_service_tenant_sandboxes", "Sandboxes of a tenant's running work.", ("tenant",), registry=registry
    )
    for work in records.every(Work, None, {"status": "running"}):
        used.labels(work.tenant).inc(sandboxes_of(work))
    usd = Gauge("gepa_service_tenant_month_usd", "What a tenant has spent this month.", ("tenant",), registry=registry)
    for each in records.every(Tenant, TENANTS):
        usd.labels(each.id).set(usage_of(records, each.id).usd)
    warm = Gauge("gepa_service_warm_sandboxes", "Sandboxes that wait for a batch or step.", registry=registry)
    lease = records.get(LeaseRecord, TENANTS, DISPATCHER)
    warm.set(0 if lease is None else lease.warm)
    nodes = Gauge("gepa_service_nodes", "Nodes of the dispatcher's engine.", registry=registry)
    nodes.set(0 if lease is None else lease.nodes)
    return registry


router = APIRouter(tags=["operation"])


@router.get("/health")
async def health() -> dict[str, str]:
    """Report that the process answers."""
    return {"status": "ok"}


@router.get("/ready")
def ready(service: Parts) -> dict[str, str]:
    """Report whether both databases answer."""
    failed = []
    try:
        service.records.get(Tenant, TENANTS, "none")
    except RecordError:
        failed.append("the database of records")
    try:
        open_store(service.journals).close()
    except JournalError:
        failed.append("the store of runs")
    if failed:
        detail = f"not usable now: {', '.join(failed)}"
        raise Problem(503, "unavailable", "Not available now", detail, headers={"Retry-After": RETRY_S})
    return {"status": "ready"}


@router.get("/metrics", response_class=Response, responses=documented(401))
def metrics(request: Request, service: Parts) -> Response:
    """Return the figures of this process and of all work, for Prometheus.

    The bearer token is that of `evolverpc service secrets metrics-token`.
    """
    given = request.headers.get("authorization", "").encode()
    masters = () if service.vault is None else service.vault.masters
    if not any(hmac.compare_digest(given, f"Bearer {each.derived(METRICS).hex()}".encode()) for each in masters):
        detail = "send the token that `evolverpc service secrets metrics-token` prints: Authorization: Bearer TOKEN"
        raise Problem(401, "unauthorized", "Not authenticated", detail, headers={"WWW-Authenticate": "Bearer"})
    return Response(request.app.state.metrics.text(service.records), media_type=MEDIA_TYPE)
