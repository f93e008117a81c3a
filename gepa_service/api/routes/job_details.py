"""Parts of a job's run that the page loads when they are asked for: cells, texts, proposals, origins, explanations.

Their forms are those of the page of `evolverpc watch` (`gepa_client.page.page_answers`), which shows them.
"""

import contextlib
from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel

from gepa_client.errors import NoSuchRun
from gepa_client.journal.store import Store, open_store
from gepa_client.page.cell_reader import CellReader
from gepa_client.page.event_log import to_json
from gepa_client.page.explanation_answers import explanation, provenance
from gepa_client.page.proposal_answers import proposal
from gepa_client.page.shown_text import NotThere, text_part
from gepa_client.page.transcript_answers import transcript
from gepa_service.api.access import Parts, Reader, TenantCaller
from gepa_service.api.app_state import Service
from gepa_service.api.pages import known_work
from gepa_service.api.problems import Problem
from gepa_service.api.routes.repositories import Id

router = APIRouter(include_in_schema=False)

LONGEST_NAME = 1_000
Place = Annotated[int, Query(ge=0, le=10**15)]
Start = Annotated[int, Query(ge=0, le=10**15, alias="from")]


@router.get("/job/{job_id}/cell")
def cell(
    job_id: Id,
    caller: Reader,
    service: Parts,
    candidate: Place,
    row: Place,
    part: Annotated[str | None, Query(max_length=LONGEST_NAME)] = None,
    start: Start = 0,
) -> Response:
    """Return the result of a candidate on a validation row; with `part`, one member of it from a character on."""

    def read(store: Store) -> BaseModel:
        cells = CellReader(store, job_id)
        return cells.cell(candidate, row) if part is None else cells.part(candidate, row, part, start)

    return _read(service, caller, job_id, read)


@router.get("/job/{job_id}/text")
def text(
    job_id: Id,
    caller: Reader,
    service: Parts,
    candidate: Place,
    component: Annotated[str, Query(max_length=LONGEST_NAME)],
    start: Start = 0,
) -> Response:
    """Return a component of a candidate from a character on."""
    return _read(service, caller, job_id, lambda store: text_part(store, job_id, candidate, component, start))


@router.get("/job/{job_id}/proposal")
def made_proposal(
    job_id: Id, caller: Reader, service: Parts, at: Place, rows: Literal["first", "all"] = "first"
) -> Response:
    """Return what a proposal was made from, and what it changed; with `rows=all` all rows of its minibatch."""
    return _read(service, caller, job_id, lambda store: proposal(store, job_id, at, all_rows=rows == "all"))


@router.get("/job/{job_id}/provenance")
def origins(job_id: Id, caller: Reader, service: Parts, candidate: Place) -> Response:
    """Return where each part of a candidate's texts is from."""
    return _read(service, caller, job_id, lambda store: provenance(store, job_id, candidate))


@router.get("/job/{job_id}/explanation")
def explained(job_id: Id, caller: Reader, service: Parts) -> Response:
    """Return why the best candidate is better than the seed."""
    return _read(service, caller, job_id, lambda store: explanation(store, job_id))


@router.get("/job/{job_id}/transcript")
def code_change(job_id: Id, caller: Reader, service: Parts, at: Place) -> Response:
    """Return a change of code: its request, its outcome, its diff."""
    return _read(service, caller, job_id, lambda store: transcript(store, job_id, at))


def _read(service: Service, caller: TenantCaller, job_id: str, read: Callable[[Store], BaseModel]) -> Response:
    """Return what is read of a job from the store of runs. Raises a 404 problem if it is not there."""
    known_work(caller.records, job_id, "optimize")
    try:
        with contextlib.closing(open_store(service.journals)) as store:
            return Response(to_json(read(store).model_dump()), media_type="application/json")
    except NoSuchRun:
        raise Problem(404, "not-found", "Not found", "the job has no run yet") from None
    except NotThere as error:
        raise Problem(404, "not-found", "Not found", str(error)) from None
