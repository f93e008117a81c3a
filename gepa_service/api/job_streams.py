"""The events of jobs: one reader of each job that is followed, which all its streams share."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from fastapi import Request
from pydantic import BaseModel, JsonValue
from starlette.concurrency import run_in_threadpool

from gepa_client.journal.entries import RunStatus
from gepa_client.page.event_log import EventLog
from gepa_client.page.page_events import Notices, PageEvent, Run, StatedFact, StoreTrouble, Summary
from gepa_client.page.run_reader import WatchedRun
from gepa_service.api.access import TENANT_HEADER, recognized_now
from gepa_service.api.problems import Problem
from gepa_service.auth.oidc import IssuerUnavailable
from gepa_service.jobs.settings_of_jobs import shown_settings
from gepa_service.model.work import ENDED, JobProgress, Work
from gepa_service.records import RecordStore, RecordsUnavailable

_log = logging.getLogger(__name__)

POLL_S = 0.5
"""Seconds between two looks at the records of followed jobs."""

MOST_FOLLOWED = 64
"""Jobs that streams follow at the same time, at most; each has a thread and its events in memory."""

MOST_FOLLOWED_OF_TENANT = 40
"""Of one tenant, so that others can follow theirs."""

MOST_IDLE = 8
"""Jobs that are read although no stream follows them, at most."""

MOST_STREAMS = 2000
STOP_WAIT_S = 5.0
TROUBLE = "the run cannot be read at present; the service tries again"

CHECK_S = 2.0
"""Seconds between two checks of a key."""

CREDENTIALS = ("authorization", "cookie", TENANT_HEADER)


class JobEvent(BaseModel):
    """The state of the job itself; a later one replaces an earlier one."""

    event: Literal["job"] = "job"
    status: RunStatus
    reason: str | None
    wanted: Literal["run", "pause", "cancel"]
    progress: JobProgress
    program_id: str | None
    failure: dict[str, JsonValue] | None
    attempts: int

    @classmethod
    def of(cls, job: Work) -> "JobEvent":
        """Return the event of a record."""
        return cls(**{name: getattr(job, name) for name in cls.model_fields if name != "event"})


class JobEventLog(EventLog):
    """The events of a job, as its tenant may see them: without addresses and folders of the service's machines.

    `is_gone`: the store has no run of the job. `is_over`: nothing will be added.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_gone = False
        self.is_over = False

    def add(self, event: PageEvent) -> None:
        """Add an event, unless it repeats the one that it would replace."""
        if isinstance(event, StoreTrouble):
            self.is_gone = event.gone
            if event.gone:
                return
            event = event.model_copy(update={"problem": None if event.problem is None else TROUBLE})
        elif isinstance(event, Run):
            self.is_gone = False
            hidden: dict[str, Any] = {"output": None, "driver": None, "store": "", "commands": []}
            event = event.model_copy(update={**hidden, "settings": shown_settings(event.settings)})
        elif isinstance(event, Notices):
            event = Notices(notices=[each.model_copy(update={"commands": []}) for each in event.notices])
        elif isinstance(event, Summary):
            facts = [_without_address(fact) for fact in event.facts]
            event = event.model_copy(update={"facts": facts})
        super().add(event)


def _without_address(fact: StatedFact) -> StatedFact:
    """Return a fact of the summary; that of the program without the address of the server behind which it ran."""
    return fact if fact.label != "program" else fact.model_copy(update={"text": fact.text.rpartition(", ")[0]})


@dataclass
class WatchedJob:
    """A job that is being read."""

    job: Work
    log: JobEventLog = field(default_factory=JobEventLog)
    run: WatchedRun | None = None

    def stop(self) -> None:
        """End reading its run."""
        if self.run is not None:
            self.run.stop()


class JobStreams:
    """The jobs that are read. Made and used on one event loop. `journals`: as of `Service`."""

    def __init__(self, records: RecordStore, journals: str) -> None:
        self._records, self._journals = records, journals
        self._jobs: dict[str, WatchedJob] = {}
        self._following = asyncio.get_running_loop().create_task(self._follow())
        self.keys = CheckedKeys()
        self.open = 0
        """Streams that are open."""

    def get(self, job: Work) -> WatchedJob:
        """Return a job of the tenant that asks, which is read from now on.

        Raises a problem if too many are read: 429 if they are the tenant's own, otherwise 503.
        """
        found = self._jobs.pop(job.id, None)
        if found is None:
            tenants = [watched.job.tenant for watched in self._jobs.values() if watched.log.is_followed]
            if tenants.count(job.tenant) >= MOST_FOLLOWED_OF_TENANT:
                detail = f"streams follow {MOST_FOLLOWED_OF_TENANT} jobs of the tenant already: end one first"
                raise Problem(429, "too-many-streams", "Too many streams", detail, headers={"Retry-After": "5"})
            followed = len(tenants)
            if followed >= MOST_FOLLOWED or self.open >= MOST_STREAMS:
                detail = f"streams follow {followed} jobs already; try again later, or read GET /job/{{id}}"
                raise Problem(503, "too-many-streams", "Too many streams", detail, headers={"Retry-After": "5"})
            found = WatchedJob(job)
            self._update(found, job)
        idle = [name for name, watched in self._jobs.items() if not watched.log.is_followed]
        for name in idle[: max(0, len(idle) + 1 - MOST_IDLE)]:
            self._jobs.pop(name).stop()
        self._jobs[job.id] = found
        return found

    async def close(self) -> None:
        """Stop reading all jobs."""
        self._following.cancel()
        for watched in self._jobs.values():
            watched.stop()
        until = time.monotonic() + STOP_WAIT_S
        for watched in self._jobs.values():
            if watched.run is not None:
                await asyncio.to_thread(watched.run.join, max(0.0, until - time.monotonic()))
        self._jobs = {}

    async def _follow(self) -> None:
        """Read the records of all jobs that are followed, until each has ended and all of its run was read."""
        while True:
            await asyncio.sleep(POLL_S)
            followed = [each for each in self._jobs.values() if not each.log.is_over]
            if not followed:
                continue
            read: list[tuple[WatchedJob, Work | None]] = await run_in_threadpool(self._read, followed)
            for watched, job in read:
                if self._jobs.get(watched.job.id) is watched:  # it was not dropped meanwhile
                    with _logged(watched):
                        self._update(watched, job)

    def _read(self, followed: Sequence[WatchedJob]) -> list[tuple[WatchedJob, Work | None]]:
        """Return the jobs with their records, None for one that was deleted; those that cannot be read are missing."""
        found = []
        with contextlib.suppress(RecordsUnavailable):
            for watched in followed:
                with _logged(watched):
                    found.append((watched, self._records.get(Work, watched.job.tenant, watched.job.id)))
        return found

    def _update(self, watched: WatchedJob, job: Work | None) -> None:
        """Note what the record of a job holds now."""
        log = watched.log
        if job is not None:
            watched.job = job
            log.add(cast("PageEvent", JobEvent.of(job)))
            if watched.run is None and job.attempts:
                watched.run = WatchedRun(self._journals, job.id, log)
        log.published()
        if job is None or (job.status in ENDED and _is_read(watched)):
            log.is_over = True
            log.wake()
            watched.stop()


@contextlib.contextmanager
def _logged(watched: WatchedJob) -> Iterator[None]:
    """Log a fault with one job, which must not end what the streams of the others wait for."""
    try:
        yield
    except RecordsUnavailable:
        raise
    except Exception:  # noqa: BLE001 - the other jobs are followed further
        _log.exception("job %s cannot be followed", watched.job.id)


def _is_read(watched: WatchedJob) -> bool:
    """Return whether all events of the run of an ended job are in the log."""
    if watched.run is None or watched.log.is_gone:
        return True
    position: list[dict[str, Any]] = watched.log.last_of("position")
    return any(each["complete"] for each in position)


class CheckedKeys:
    """All keys that were checked lately. Used on one event loop."""

    def __init__(self) -> None:
        self._checks: dict[tuple[str | None, ...], tuple[float, asyncio.Task[bool]]] = {}

    async def accept(self, request: Request) -> bool:
        """Return whether the key of a request is valid, as of at most `CHECK_S` ago."""
        sent, moment = tuple(request.headers.get(name) for name in CREDENTIALS), time.monotonic()
        if sent not in self._checks or moment - self._checks[sent][0] >= CHECK_S:
            self._checks = {key: check for key, check in self._checks.items() if moment - check[0] < CHECK_S}
            self._checks[sent] = moment, asyncio.create_task(_is_valid(request))
        return await asyncio.shield(self._checks[sent][1])


async def _is_valid(request: Request) -> bool:
    try:
        return await recognized_now(request) is not None
    except (RecordsUnavailable, IssuerUnavailable):  # the next check decides
        return True
    except Exception:  # noqa: BLE001 - a key that cannot be checked is not valid
        _log.exception("the key of a stream cannot be checked: it ends")
        return False
