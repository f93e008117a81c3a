"""Versions of programs: what jobs found, which of them is active, and their delivery as a pull request or a patch."""

import contextlib
import itertools
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, JsonValue, model_validator
from starlette.concurrency import run_in_threadpool

from evolverpc_common.display_text import plain
from gepa_client.errors import JournalError
from gepa_client.evolution.names import component_texts
from gepa_service.api.access import Parts, Reader, Writer
from gepa_service.api.pages import Id, Page, Paging, RequestBody, View, known, next_of
from gepa_service.api.problems import Problem, documented
from gepa_service.api.routes.jobs import Ref
from gepa_service.api.routes.repositories import allowed_or_problem, own_installation
from gepa_service.auth.keys import actor_name
from gepa_service.jobs import promotions
from gepa_service.jobs.report import NoReport, story_of
from gepa_service.model.program_version import Delivery, Program, Promotion, Repository, branch_of
from gepa_service.records import RecordChanged, RecordExists, TenantRecords, now
from gepa_service.repositories.github_installations import DELIVER, GitHub, GitHubFailed, owner_and_name
from gepa_service.repositories.repository_access import TEXTS, DeliveredChange, push
from gepa_service.service import Service
from gepa_service.webhooks import emit
from sandbox_runtime.api.sandbox import SandboxError

router = APIRouter(tags=["programs"])

LONGEST_LINE = 3000
LONGEST_REASON = 2000
Verdict = Literal["improved", "no difference", "worse"]

LONGEST_TITLE = 200
LONGEST_BODY = 60_000
"""Characters of a pull request's text; GitHub takes 65,536."""

ABANDONED_AFTER = timedelta(minutes=20)
"""A delivery that took longer than this was cut off, and may be begun again."""


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


class DeliverRequest(RequestBody):
    """How a version is delivered. `base`: the branch that the pull request is for; by default the default branch."""

    mode: Literal["pull_request", "patch"] = "pull_request"
    base: Ref | None = None
    title: Annotated[str, Field(min_length=1, max_length=LONGEST_TITLE, pattern=r"^[^\x00-\x1f\x7f]+$")] | None = None


class Delivered(BaseModel):
    """A delivered version. Of a pull request: its branch, commit and address; of a patch, the text for `git am`."""

    program_id: str
    mode: Literal["pull_request", "patch"]
    base_commit: str | None
    branch: str | None = None
    commit: str | None = None
    pull_request: str | None = None
    patch: str | None = None


@router.post("/program/{program_id}/deliver", responses=documented(404, 502))
async def deliver(program_id: Id, caller: Writer, service: Parts, asked: DeliverRequest | None = None) -> Delivered:
    """Push the version as a branch and open a pull request, or return a patch. A second request returns the first."""
    asked = asked or DeliverRequest()
    program = await run_in_threadpool(known_program, caller.records, program_id)
    if program.patch is None and program.commit is not None:
        detail = "the change of the version's code is too large, or could not be read when its job ended"
        raise Problem(409, "no-patch", "No patch", detail)
    if asked.mode == "patch":
        if program.patch is None:
            detail = "the version changes no code: its texts are those of GET /program/{id}"
            raise Problem(409, "no-patch", "No patch", detail)
        return Delivered(program_id=program.id, mode="patch", base_commit=program.base_commit, patch=program.patch)
    repository: Repository | None = await run_in_threadpool(caller.records.get, Repository, program.client_id or "")
    if repository is None:
        detail = "the version's repository is not connected: ask for the mode `patch`"
        raise Problem(409, "not-connected", "Repository not connected", detail)
    github = service.github
    if github is None or repository.installation_id is None:
        detail = "the repository was not connected by the GitHub App: ask for the mode `patch`"
        raise Problem(409, "no-github-app", "No GitHub App", detail)
    begun = await run_in_threadpool(_begun, caller.records, program, caller.actor)
    if begun.url is not None:
        return _delivered(program, begun)
    try:
        delivery = await _deliver(service, caller.records, github, program, repository, begun, asked)
    except BaseException:
        await run_in_threadpool(_abandoned, caller.records, begun)
        raise
    view = _delivered(program, delivery)
    await run_in_threadpool(emit, caller.records, "program.delivered", view.model_dump(mode="json", exclude={"patch"}))
    return view


async def _deliver(
    service: Service,
    records: TenantRecords,
    github: GitHub,
    program: Program,
    repository: Repository,
    begun: Delivery,
    asked: DeliverRequest,
) -> Delivery:
    installation = (await own_installation(service, records, repository.installation_id or "")).id
    allowed = await run_in_threadpool(allowed_or_problem, service, repository.repo_url)
    base = program.base_commit or repository.head
    if owner_and_name(allowed.url, github.settings.host) is None or base is None:
        raise Problem(
            409, "no-base", "Nothing to build on", "the repository has no commit that the version was made from"
        )
    title = asked.title or f"Improve {_name(program)} by GEPA"
    body = await run_in_threadpool(_body, service, program)
    change = DeliveredChange(
        base,
        program.patch,
        component_texts(program.texts),
        f"{title}\n\nVersion {program.id}.\n",
        saved=program.program_json,
        saved_path=program.program_json_path,
    )
    try:
        credentials = await github.credentials(installation, allowed.url, DELIVER)
        commit = await push(allowed, begun.branch, change, credentials)
        branch = asked.base or repository.default_branch or "main"
        url = await github.open_pull_request(credentials, head=begun.branch, base=branch, title=title, body=body)
    except (GitHubFailed, SandboxError) as error:
        raise Problem(502, "delivery-failed", "Delivery failed", str(error)[:1000]) from None
    changes = {"commit": commit, "url": url}
    delivered: Delivery = await run_in_threadpool(records.replace, begun.model_copy(update=changes))
    return delivered


def _begun(records: TenantRecords, program: Program, actor: str) -> Delivery:
    """Return the delivery of a version, begun now if there is none or the last one was cut off."""
    record = Delivery(tenant=records.tenant, id=program.id, branch=branch_of(program.id), commit="", actor=actor)
    try:
        records.insert(record)
    except RecordExists:
        found = records.get(Delivery, program.id)
        if found is not None and found.url is not None:
            return found
        if found is not None and now() - found.updated >= ABANDONED_AFTER:
            with contextlib.suppress(RecordChanged):
                return records.replace(found.model_copy(update={"actor": actor}))
        detail = "the version is being delivered by another request"
        raise Problem(409, "being-delivered", "Being delivered", detail) from None
    return record


def _abandoned(records: TenantRecords, begun: Delivery) -> None:
    """Take a delivery back that failed, so that it can be begun again."""
    found = records.get(Delivery, begun.id)
    if found is not None and found.url is None:
        records.remove(Delivery, begun.id)


def _delivered(program: Program, delivery: Delivery) -> Delivered:
    return Delivered(
        program_id=program.id,
        mode="pull_request",
        base_commit=program.base_commit,
        branch=delivery.branch,
        commit=delivery.commit,
        pull_request=delivery.url,
    )


def _name(program: Program) -> str:
    return program.line.rstrip("/").rpartition("/")[2].removesuffix(".git")[:80] or "the program"


def _body(service: Service, program: Program) -> str:
    """Return the text of the pull request: what the certificate states, and what happened in the run. Blocks."""
    certificate = program.certificate
    stated = str(certificate.get("statement", "")) if certificate is not None else "There is no certificate."
    parts = [
        f"**{program.verdict or 'not certified'}{', weakened by leaks' if program.leaks else ''}**: {stated}",
        f"Version `{program.id}` of `{program.job_id}`.",
    ]
    if component_texts(program.texts):
        parts.append(f"The texts are in `{TEXTS}`.")
    if certificate is not None:
        written = json.dumps(certificate, indent=2)
        parts.append(f"<details><summary>certificate</summary>\n\n```json\n{written}\n```\n\n</details>")
    if program.is_of_step:
        return "\n\n".join(parts)
    try:
        story = plain("\n".join(story_of(service.store, program.job_id)))
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", story)), default=0))
        parts.append(f"{fence}text\n{story}\n{fence}")  # text of a model mentions no user, and closes no issue
    except NoReport as error:
        parts.append(f"The record of the run is not available: {error}")
    except JournalError:
        parts.append("The record of the run is not available.")
    whole = "\n\n".join(parts)
    return whole if len(whole) <= LONGEST_BODY else whole[:LONGEST_BODY] + "\n\n... the rest is left out"
