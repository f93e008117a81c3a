"""What processes of work call: the optimizer of a job its journal, an attempt elsewhere the service."""

import contextlib
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from gepa_client.errors import JournalError, StoreUnavailable
from gepa_client.journal.http_messages import ERRORS, METHODS, Arguments, dumped, loaded
from gepa_client.journal.store import Store
from gepa_service.api.access import AttemptCaller, Optimizer, Parts
from gepa_service.api.problems import Problem, not_found
from gepa_service.jobs.attempt_records import AttemptRecords
from gepa_service.jobs.messages import Begun, Report, Wanted
from gepa_service.service import Service

router = APIRouter(include_in_schema=False)

STATUSES = {"no-such-run": 404, "unavailable": 503, "invalid": 422}
"""By code; all others are conflicts."""


def own_job(job_id: str, caller: Optimizer) -> str:
    """Return the job of the path. Any other than the one of the token is answered as one that is absent."""
    if caller.job_id != job_id:
        raise not_found("job")
    return job_id


@router.post("/job/{job_id}/journal/{method}")
async def call(
    method: str,
    request: Request,
    job: Annotated[str, Depends(own_job)],
    service: Parts,
) -> Response:
    """Call a method of the store for the job's run."""
    if method not in METHODS:
        raise not_found("method of the journal")
    found = METHODS[method]
    arguments = await run_in_threadpool(_arguments, found.arguments, await request.body())
    if found.takes_run and arguments.get("run") is not None and arguments["run"].id != job:
        raise not_found("job")
    return Response(await run_in_threadpool(_answer, service, method, job, arguments), media_type="application/json")


def _answer(service: Service, method: str, job: str, arguments: dict[str, Any]) -> bytes:
    store = service.store
    function = getattr(store, method)
    with _problems(store):
        result = function(**arguments) if METHODS[method].takes_run else function(job, **arguments)
        return dumped({"result": result})


def _arguments(type_: type[Arguments], body: bytes) -> dict[str, Any]:
    try:
        return type_.model_validate(loaded(body)).named()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Problem(422, "invalid", "Invalid request", first["msg"], field=where, code="invalid") from None
    except ValueError as error:
        raise Problem(400, "invalid", "Invalid request", f"the body is no JSON: {error}", code="invalid") from None


@contextlib.contextmanager
def _problems(store: Store) -> Iterator[None]:
    """Turn errors of the store into problems. The address of the database is in none of them."""
    try:
        yield
    except StoreUnavailable:
        raise _problem("unavailable", "the store of runs is unavailable; try again later") from None
    except JournalError as error:
        code = next((code for code, type_ in ERRORS.items() if type_ is type(error)), "journal")
        raise _problem(code, str(error).replace(store.url, "the store")) from None
    except (ValueError, OverflowError) as error:
        raise _problem("invalid", str(error)) from None


def _problem(code: str, detail: str) -> Problem:
    return Problem(STATUSES.get(code, 409), f"journal-{code}", "Not possible with this journal", detail, code=code)


async def own_attempt(request: Request, job_id: str, caller: AttemptCaller) -> AttemptRecords:
    """Return the records of the attempt of the token. Another work than its own is answered as one that is absent.

    On the event loop, so that two requests at once get the same records.
    """
    if caller.job_id != job_id:
        raise not_found("job")
    found: AttemptRecords = request.app.state.attempts(caller.tenant, job_id, caller.attempt)
    return found


Own = Annotated[AttemptRecords, Depends(own_attempt)]


@router.post("/job/{job_id}/attempt/begin")
def begin(attempt: Own) -> Begun | None:
    """Return what the attempt does, and the secrets of its tenant."""
    return attempt.begin()


@router.post("/job/{job_id}/attempt/report")
def report(attempt: Own, report: Report) -> Wanted:
    """Take a report of the attempt."""
    return attempt.report(report)
