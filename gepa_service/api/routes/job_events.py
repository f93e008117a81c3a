"""What happens in a job: its events, as a stream or in pages, logs, report and certificate, and parts of its run."""

import asyncio
import contextlib
import functools
import re
import time
from collections.abc import AsyncIterator
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from gepa_client.certificate.certificate import Certificate
from gepa_client.errors import NoSuchRun
from gepa_client.journal.store import Store
from gepa_client.page.candidate_details import NotThere
from gepa_client.page.event_log import to_json
from gepa_client.page.page_events import PageEvent
from gepa_client.page.run_details import DETAILS, BadQuery, RunDetails
from gepa_service.api.access import Parts, Reader
from gepa_service.api.job_streams import CHECK_S, JobEvent, JobStreams, WatchedJob
from gepa_service.api.pagination import Id, Paging, known, known_work, next_of
from gepa_service.api.problems import Problem, Responses, documented
from gepa_service.jobs.report import NoReport, certificate_of, report_of
from gepa_service.model.work import ENDED, LogChunk, LogLine, Work

router = APIRouter(tags=["events of jobs"])

HEARTBEAT_S = 15.0
"""Seconds after which a silent stream sends a comment, so that both sides notice a lost connection."""

SENT_AT_ONCE = 64 << 10
"""Bytes of events in one write: what a slow client holds in memory here."""

PAGE_BYTES = 1 << 20

LONGEST_EVENT_ID = 60
REPORTS_AT_ONCE = 2
REPORTS_KEPT = 8

PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; sandbox allow-scripts"
)
"""A report is shown with the rights of no origin: it holds what programs and models wrote."""

EventId = Annotated[str, Field(max_length=LONGEST_EVENT_ID, pattern=r"^[0-9a-f]+-[0-9]{1,18}$")]

STREAM: Responses = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "The events."}
}
REPORT: Responses = {
    200: {
        "content": {"text/html": {"schema": {"type": "string"}}},
        "description": "The report.",
    }
}


class EventPage(BaseModel):
    """Events of a job in order; an event that a later one replaced is missing.

    `next`: the id that the next page follows. `reset`: `after` is of another server, whose events must be forgotten:
    the page begins with the first event. `complete`: the job has ended, and these are its last events.
    """

    events: list[Annotated[PageEvent | JobEvent, Field(discriminator="event")]]
    next: str
    reset: bool
    complete: bool


class LogPage(BaseModel):
    """Lines of a job. `next`: what the next page follows; null if there are no more now."""

    lines: list[LogLine]
    next: str | None


PAGE: Responses = {200: {"model": EventPage, "description": "The events."}}


@router.get("/job/{job_id}/stream", response_class=StreamingResponse, responses={**documented(404), **STREAM})
async def stream(
    job_id: Id,
    request: Request,
    caller: Reader,
    last_event_id: Annotated[str | None, Header(max_length=LONGEST_EVENT_ID)] = None,
    after: Annotated[EventId | None, Query(description="As `Last-Event-ID`, which comes before it.")] = None,
) -> StreamingResponse:
    """Send the events of a job as they happen, as server-sent events.

    Each has an id; a request with `Last-Event-ID` continues after it. `event: reset` precedes the events of another
    server, which come from the beginning; `event: end` follows the last one of a job that has ended; `event: revoked`
    the end of a stream whose key is no longer valid.
    """
    job = await run_in_threadpool(known_work, caller.records, job_id, "optimize")
    streams: JobStreams = request.app.state.streams
    streams.get(job)  # raises its problem before the response begins
    events = _events(request, streams, job, last_event_id or after)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _events(request: Request, streams: JobStreams, job: Work, last: str | None) -> AsyncIterator[bytes]:
    watched = streams.get(job)  # now, as until a stream listens the job may be dropped to make room for others
    log, woken = watched.log, asyncio.Event()
    epoch, number, is_reset = log.epoch.encode(), *_begin(watched, last)
    stop = log.listen(woken)
    streams.open += 1
    try:
        if is_reset:
            yield b"event: reset\ndata: {}\n\n"
        sent = time.monotonic()
        while await streams.keys.accept(request):
            woken.clear()
            over = log.is_over
            found, number = log.since(number, SENT_AT_ONCE)
            if found:
                yield b"".join(b"id: %s-%d\ndata: %s\n\n" % (epoch, at, data) for at, data in found)
            elif over:
                yield b"event: end\ndata: {}\n\n"
                return
            elif time.monotonic() - sent >= HEARTBEAT_S:
                yield b": nothing new\n\n"
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(HEARTBEAT_S, CHECK_S)):
                        await woken.wait()
                continue
            sent = time.monotonic()
        yield b"event: revoked\ndata: {}\n\n"
    finally:
        streams.open -= 1
        stop()


def _begin(watched: WatchedJob, last: str | None) -> tuple[int, bool]:
    """Return the number of the first event to send, and whether `last` is an id of another log."""
    read = re.fullmatch(r"([0-9a-f]+)-(\d{1,18})", last or "")
    if read is not None and read[1] == watched.log.epoch:
        return int(read[2]) + 1, False
    return 0, bool(last)


@router.get("/job/{job_id}/events", responses={**documented(404), **PAGE})
async def events(
    job_id: Id,
    request: Request,
    caller: Reader,
    after: Annotated[EventId | None, Query(description="`next` of the page before.")] = None,
) -> Response:
    """Return the events of a job in pages of about a megabyte."""
    job = await run_in_threadpool(known_work, caller.records, job_id, "optimize")
    watched = request.app.state.streams.get(job)
    number, is_reset = _begin(watched, after)
    over = watched.log.is_over
    found, end = watched.log.since(number, PAGE_BYTES)
    complete = over and end >= watched.log.end
    last = b"%s-%d" % (watched.log.epoch.encode(), max(0, end - 1))
    body = b'{"events":[%s],"next":"%s","reset":%s,"complete":%s}' % (
        b",".join(data for _, data in found),
        last,
        orjson.dumps(is_reset),
        orjson.dumps(complete),
    )
    return Response(body, media_type="application/json")


@router.get("/job/{job_id}/logs", responses=documented(404))
def logs(job_id: Id, caller: Reader, query: Paging) -> LogPage:
    """Return what the attempts and processes of a job, batch or step printed, oldest first."""
    where = {"job_id": known(caller.records, Work, job_id, "job").id}
    found = caller.records.page(LogChunk, where, after=query.after, limit=query.limit)
    return LogPage(lines=[line for chunk in found for line in chunk.lines], next=next_of(found, query))


@router.get("/job/{job_id}/report", response_class=Response, responses={**documented(404, 409), **REPORT})
async def report(
    job_id: Id,
    request: Request,
    caller: Reader,
    service: Parts,
) -> Response:
    """Return the report of a job that has ended, a page."""
    job = await run_in_threadpool(known_work, caller.records, job_id, "optimize")
    if job.status not in ENDED:
        raise Problem(409, "wrong-status", "Status does not allow it", f"the job is {job.status}: it has no report yet")
    reports: Reports = request.app.state.reports
    try:
        body = await reports.get(service.store, job_id)
    except NoReport as error:
        raise Problem(409, "no-report", "No report", str(error)) from None
    headers = {"Content-Security-Policy": PAGE_POLICY, "X-Content-Type-Options": "nosniff"}
    return Response(body, media_type="text/html", headers=headers)


@router.get("/job/{job_id}/certificate", responses=documented(404, 409))
def certificate(job_id: Id, caller: Reader, service: Parts) -> Certificate:
    """Return whether the job improved the program, derived from the record of its run."""
    known_work(caller.records, job_id, "optimize")
    try:
        return certificate_of(service.store, job_id)
    except NoReport as error:
        raise Problem(409, "no-certificate", "No certificate", str(error)) from None


class Reports:
    """Makes reports, a few at the same time, and keeps the last ones: the run of an ended job does not change."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(REPORTS_AT_ONCE)
        self._made = functools.lru_cache(REPORTS_KEPT)(report_of)

    async def get(self, store: Store, job_id: str) -> bytes:
        """Return a report of a job. Raises as `report_of`."""
        async with self._slots:
            made: bytes = await run_in_threadpool(self._made, store, job_id)
        return made


def detail(job_id: Id, caller: Reader, service: Parts, request: Request) -> Response:
    """Return the detail of a job's run that the path names. Raises a 404 problem if it is not there."""
    known_work(caller.records, job_id, "optimize")
    try:
        found = RunDetails(service.store, job_id).read(request.url.path.rpartition("/")[2], request.query_params)
        return Response(to_json(found), media_type="application/json")
    except NoSuchRun:
        raise Problem(404, "not-found", "Not found", "the job has no run yet") from None
    except NotThere as error:
        raise Problem(404, "not-found", "Not found", str(error)) from None
    except BadQuery as error:
        raise Problem(422, "invalid", "Field not valid", str(error)) from None


for name in DETAILS:
    router.add_api_route(f"/job/{{job_id}}/{name}", detail, include_in_schema=False)
