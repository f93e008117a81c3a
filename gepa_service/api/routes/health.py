"""Whether the API answers, whether it can do its work, and its figures; open to all, as they name no tenant."""

from fastapi import APIRouter, Request, Response

from gepa_client.errors import JournalError
from gepa_service.api.access import Parts
from gepa_service.api.metrics import MEDIA_TYPE
from gepa_service.api.problems import RETRY_S, Problem
from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.records.store import RecordError

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
        with service.opened_journals():
            pass
    except JournalError:
        failed.append("the store of runs")
    if failed:
        detail = f"not usable now: {', '.join(failed)}"
        raise Problem(503, "unavailable", "Not available now", detail, headers={"Retry-After": RETRY_S})
    return {"status": "ready"}


@router.get("/metrics", response_class=Response)
def metrics(request: Request, service: Parts) -> Response:
    """Return the figures of this process, and the numbers of jobs, for Prometheus."""
    return Response(request.app.state.metrics.text(service.records), media_type=MEDIA_TYPE)
