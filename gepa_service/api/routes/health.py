"""Whether the API answers and can do its work, which all may ask, and its figures, for the operator's collector."""

import hmac

from fastapi import APIRouter, Request, Response

from gepa_client.errors import JournalError
from gepa_client.journal.store import open_store
from gepa_service.api.access import Parts
from gepa_service.api.metrics import MEDIA_TYPE
from gepa_service.api.openapi import documented
from gepa_service.api.problems import RETRY_S, Problem
from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.records import RecordError
from gepa_service.secrets.master_key import METRICS

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
