"""Versions of programs: what jobs found, and which of them is active."""

import itertools
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, JsonValue, model_validator

from gepa_client.certificate.verdict import Verdict
from gepa_client.evolution.candidate_names import component_texts
from gepa_service.api.access import Reader, Writer
from gepa_service.api.pagination import Id, Page, Paging, RequestBody, View, known, next_of
from gepa_service.api.problems import Problem, documented
from gepa_service.auth.keys import actor_name
from gepa_service.jobs import promotions
from gepa_service.model.program_version import Program, Promotion
from gepa_service.records import TenantRecords
from gepa_service.webhooks import emit

router = APIRouter(tags=["programs"])

LONGEST_LINE = 3000
LONGEST_REASON = 2000


class PromotionView(View):
    """One promotion. `actor_name`: of the key of `actor`, or its subject.

    `program_id`: null if no version is active after it. `forced`: the reason, of a version that no certificate
    calls improved.
    """

    promotion_id: str
    line: str
    program_id: str | None
    before: str | None
    actor: str
    actor_name: str
    forced: str | None
    rolled_back: bool
    created_at: datetime


class VersionSummary(View):
    """A version. `line`: the program that it is a version of. `job_id`: the job or step that made it."""

    program_id: str
    line: str
    job_id: str
    client_id: str | None
    repo_url: str
    parents: list[str]
    branch: str | None
    commit: str | None
    base_commit: str | None
    score: float | None
    seed_score: float | None
    verdict: Verdict | None
    leaks: bool
    created_at: datetime


class VersionView(VersionSummary):
    """A version with its texts, diff, certificate and promotions. `active`: whether it is the active one."""

    texts: dict[str, str]
    program_json: dict[str, JsonValue] | None
    diff: str | None
    patch: str | None
    certificate: dict[str, JsonValue] | None
    active: bool
    promotions: list[PromotionView]


class VersionPage(Page[VersionSummary]):
    """Versions, the newest first."""


class ActiveView(BaseModel):
    """The active version of a line."""

    line: str
    program_id: str
    promotion_id: str
    since: datetime


class ActivePage(Page[ActiveView]):
    """Active versions."""


class PromoteRequest(RequestBody):
    """`force`: promote a version whose certificate does not state `improved`, for a `reason` that is recorded."""

    force: bool = False
    reason: Annotated[str, Field(min_length=1, max_length=LONGEST_REASON)] | None = None

    @model_validator(mode="after")
    def _force_has_a_reason(self) -> Self:
        if self.force and (self.reason is None or not self.reason.strip()):
            raise ValueError("`reason`: state why the version is promoted by force")
        return self


@router.get("/programs")
def programs(
    caller: Reader,
    query: Paging,
    line: Annotated[str | None, Query(max_length=LONGEST_LINE)] = None,
    job_id: Annotated[Id | None, Query()] = None,
    client_id: Annotated[Id | None, Query()] = None,
    verdict: Annotated[Verdict | None, Query()] = None,
) -> VersionPage:
    """List versions, the newest first."""
    given = {"line": line, "job_id": job_id, "client_id": client_id, "verdict": verdict}
    where = {name: value for name, value in given.items() if value is not None}
    return VersionPage.read(VersionSummary.of, caller.records, Program, query, where, newest_first=True)


@router.get("/programs/active")
def active(
    caller: Reader,
    query: Paging,
    line: Annotated[str | None, Query(max_length=LONGEST_LINE)] = None,
) -> ActivePage:
    """List the active version of each program, or of the one that `line` names."""
    if line is not None:
        one = promotions.active_of(caller.records, line)
        return ActivePage(items=[] if one is None or one.program_id is None else [_active(one)], next=None)
    found = list(itertools.islice(promotions.active_versions(caller.records, query.after), query.limit))
    return ActivePage(items=[_active(each) for each in found], next=next_of(found, query))


@router.get("/program/{program_id}", responses=documented(404))
def program(program_id: Id, caller: Reader) -> VersionView:
    """Return a version."""
    found = known_program(caller.records, program_id)
    made = promotions.promotions_of(caller.records, program_id=program_id)
    shown = {"texts": component_texts(found.texts), "promotions": [_shown(caller.records, each) for each in made]}
    return VersionView.of(found, active=promotions.is_active(caller.records, found), **shown)


@router.post("/program/{program_id}/promote", responses=documented(404))
def promote(program_id: Id, caller: Writer, asked: PromoteRequest | None = None) -> PromotionView:
    """Make a version the active one of its program; refused unless its certificate states `improved`, or by force."""
    found = known_program(caller.records, program_id)
    reason = asked.reason if asked and asked.force else None
    return _announced(caller.records, lambda: promotions.promote(caller.records, found, caller.actor, reason))


@router.post("/program/{program_id}/rollback", responses=documented(404))
def rollback(program_id: Id, caller: Writer) -> PromotionView:
    """Make the version active that was active before this one, the active one; none, if none was active before."""
    found = known_program(caller.records, program_id)
    return _announced(caller.records, lambda: promotions.roll_back(caller.records, found, caller.actor))


def _announced(records: TenantRecords, change: Callable[[], Promotion]) -> PromotionView:
    """Change the active version, and queue the event of that. Raises a problem if it is refused."""
    try:
        view = _shown(records, change())
    except promotions.PromotionRefused as error:
        raise Problem(409, "promotion-refused", "Promotion refused", str(error)) from None
    emit(records, "program.promoted", view.model_dump(mode="json"))
    return view


def _shown(records: TenantRecords, promotion: Promotion) -> PromotionView:
    return PromotionView.of(promotion, actor_name=actor_name(records.store, promotion.actor))


def known_program(records: TenantRecords, program_id: str, field: str | None = None) -> Program:
    """Return a version of the tenant. Blocks. Raises `not_found`."""
    return known(records, Program, program_id, "program", field)


def _active(last: Promotion) -> ActiveView:
    assert last.program_id is not None  # noqa: S101  of a line with an active version
    return ActiveView(line=last.line, program_id=last.program_id, promotion_id=last.id, since=last.created)
