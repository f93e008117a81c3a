"""Versions of programs: what jobs found, which of them is active, and their delivery."""

from datetime import datetime
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from gepa_service.api.access import Parts, Reader, Writer
from gepa_service.api.documented import documented
from gepa_service.api.pages import Paging, next_of
from gepa_service.api.problems import Problem, not_found
from gepa_service.api.routes.repositories import Id
from gepa_service.api.threads import in_thread
from gepa_service.jobs import promotions
from gepa_service.model.program_version import ActiveVersion, Program, Promotion
from gepa_service.records.store import TenantRecords
from gepa_service.webhooks.outbox import emit

router = APIRouter(tags=["programs"])

LONGEST_LINE = 3000
LONGEST_REASON = 2000
Verdict = Literal["improved", "no difference", "worse"]


class PromotionView(BaseModel):
    """One promotion. `forced`: the reason, of a version that no certificate calls improved."""

    promotion_id: str
    line: str
    program_id: str
    before: str | None
    actor: str
    forced: str | None
    rolled_back: bool
    created: datetime

    @classmethod
    def of(cls, record: Promotion) -> "PromotionView":
        """Return what is shown of a record."""
        shared = record.model_dump(include=set(cls.model_fields) & set(Promotion.model_fields))
        return cls(promotion_id=record.id, **shared)


class VersionSummary(BaseModel):
    """A version. `line`: the program that it is a version of."""

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
    created: datetime

    @classmethod
    def of(cls, record: Program) -> "VersionSummary":
        """Return what is listed of a record."""
        shared = record.model_dump(include=set(cls.model_fields) & set(Program.model_fields))
        return cls(program_id=record.id, **shared)


class VersionView(VersionSummary):
    """A version with its texts, diff, certificate and promotions. `active`: whether it is the active one."""

    texts: dict[str, str]
    program_json: dict[str, JsonValue] | None
    diff: str | None
    patch: str | None
    certificate: dict[str, JsonValue] | None
    active: bool
    promotions: list[PromotionView]


class VersionPage(BaseModel):
    """Versions, the newest first. `next`: what the next page follows; null after the last one."""

    items: list[VersionSummary]
    next: str | None


class ActiveView(BaseModel):
    """The active version of a line."""

    line: str
    program_id: str
    promotion_id: str
    since: datetime


class ActivePage(BaseModel):
    """Active versions. `next`: what the next page follows; null after the last one."""

    items: list[ActiveView]
    next: str | None


class PromoteRequest(BaseModel):
    """`force`: promote a version whose certificate does not state `improved`, for a `reason` that is recorded."""

    model_config = ConfigDict(extra="forbid")

    force: bool = False
    reason: Annotated[str, Field(min_length=1, max_length=LONGEST_REASON)] | None = None

    @model_validator(mode="after")
    def _force_has_a_reason(self) -> Self:
        if self.force and (self.reason is None or not self.reason.strip()):
            raise ValueError("`reason`: state why the version is promoted by force")
        return self


@router.get("/programs", responses=documented())
async def programs(
    caller: Reader,
    service: Parts,
    query: Paging,
    line: Annotated[str | None, Query(max_length=LONGEST_LINE)] = None,
    job_id: Annotated[Id | None, Query()] = None,
    client_id: Annotated[Id | None, Query()] = None,
    verdict: Annotated[Verdict | None, Query()] = None,
) -> VersionPage:
    """List versions, the newest first."""
    given = {"line": line, "job_id": job_id, "client_id": client_id, "verdict": verdict}
    where = {name: value for name, value in given.items() if value is not None}
    records = service.of(caller)
    found = await in_thread(
        lambda: records.page(Program, where, after=query.after, limit=query.limit, newest_first=True)
    )
    return VersionPage(items=[VersionSummary.of(each) for each in found], next=next_of(found, query))


@router.get("/programs/active", responses=documented())
async def active(
    caller: Reader,
    service: Parts,
    query: Paging,
    line: Annotated[str | None, Query(max_length=LONGEST_LINE)] = None,
) -> ActivePage:
    """List the active version of each program, or of the one that `line` names."""
    records = service.of(caller)
    if line is not None:
        one = await in_thread(promotions.active_of, records, line)
        return ActivePage(items=[] if one is None else [_active(one)], next=None)
    found = await in_thread(lambda: records.page(ActiveVersion, after=query.after, limit=query.limit))
    return ActivePage(items=[_active(each) for each in found], next=next_of(found, query))


@router.get("/program/{program_id}", responses=documented(404))
async def program(program_id: Id, caller: Reader, service: Parts) -> VersionView:
    """Return a version."""
    records = service.of(caller)
    found = await known_program(records, program_id)
    current = await in_thread(promotions.active_of, records, found.line)
    made = await in_thread(lambda: promotions.promotions_of(records, program_id=program_id))
    shared = found.model_dump(include=set(VersionView.model_fields) & set(Program.model_fields))
    return VersionView(
        program_id=found.id,
        active=current is not None and current.program_id == found.id,
        promotions=[PromotionView.of(each) for each in made],
        **shared,
    )


@router.post("/program/{program_id}/promote", responses=documented(404, 409))
async def promote(program_id: Id, asked: PromoteRequest, caller: Writer, service: Parts) -> PromotionView:
    """Make a version the active one of its program; refused unless its certificate states `improved`, or by force."""
    records = service.of(caller)
    found = await known_program(records, program_id)
    reason = asked.reason if asked.force else None
    try:
        made = await in_thread(promotions.promote, records, found, caller.actor, reason)
    except promotions.PromotionRefused as error:
        raise _refused(error) from None
    return await _announced(records, made)


@router.post("/program/{program_id}/rollback", responses=documented(404, 409))
async def rollback(program_id: Id, caller: Writer, service: Parts) -> PromotionView:
    """Make the version active again that was so before this one, which is the active one now."""
    records = service.of(caller)
    found = await known_program(records, program_id)
    try:
        made = await in_thread(promotions.roll_back, records, found, caller.actor)
    except promotions.PromotionRefused as error:
        raise _refused(error) from None
    return await _announced(records, made)


async def _announced(records: TenantRecords, made: Promotion) -> PromotionView:
    view = PromotionView.of(made)
    await in_thread(emit, records, "program.promoted", view.model_dump(mode="json"))
    return view


async def known_program(records: TenantRecords, program_id: str) -> Program:
    """Return a version of the tenant. Raises `not_found`."""
    found = await in_thread(records.get, Program, program_id)
    if found is None:
        raise not_found("program")
    return found


def _active(record: ActiveVersion) -> ActiveView:
    return ActiveView(**record.model_dump(include=set(ActiveView.model_fields)))


def _refused(error: promotions.PromotionRefused) -> Problem:
    return Problem(409, "promotion-refused", "Promotion refused", str(error))
