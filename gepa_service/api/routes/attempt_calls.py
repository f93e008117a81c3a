"""What an attempt on another machine gets, its secrets too, and what it reports. See `AttemptService`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from gepa_service.api.access import AttemptCaller
from gepa_service.api.problems import not_found
from gepa_service.jobs.attempt_messages import Begun, Report, Wanted
from gepa_service.jobs.attempt_records import AttemptRecords

router = APIRouter(tags=["attempt"], include_in_schema=False)


async def own_attempt(
    request: Request,
    job_id: str,
    caller: AttemptCaller,
) -> AttemptRecords:
    """Return the records of the attempt of the token. Another work than its own is answered as one that is absent.

    On the event loop, so that two requests at once get the same records.
    """
    if caller.job_id != job_id:
        raise not_found("job")
    found: AttemptRecords = request.app.state.attempts(caller.tenant, job_id, caller.attempt)
    return found


Own = Annotated[AttemptRecords, Depends(own_attempt)]


@router.post("/job/{job_id}/attempt/begin")
def begin(
    caller: AttemptCaller,  # noqa: ARG001  the permission of the route
    attempt: Own,
) -> Begun | None:
    """Return what the attempt does, and the secrets of its tenant."""
    return attempt.begin()


@router.post("/job/{job_id}/attempt/report")
def report(
    caller: AttemptCaller,  # noqa: ARG001  as above
    attempt: Own,
    report: Report,
) -> Wanted:
    """Take a report of the attempt."""
    return attempt.report(report)
