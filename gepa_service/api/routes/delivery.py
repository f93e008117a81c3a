"""The delivery of a version: as a pull request of the GitHub App, whose text is written here, or as a patch."""

import contextlib
import json
import re
from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from evolverpc_common.display_text import plain
from gepa_client.errors import JournalError
from gepa_client.evolution.candidate_names import component_texts
from gepa_service.api.access import Parts, Writer
from gepa_service.api.pagination import Id, RequestBody
from gepa_service.api.problems import Problem, documented
from gepa_service.api.routes.jobs import LONGEST_NAME
from gepa_service.api.routes.programs import known_program
from gepa_service.api.routes.repositories import allowed_or_problem, own_installation
from gepa_service.jobs.report import NoReport, story_of
from gepa_service.model.program_version import Delivery, Program, Repository, branch_of
from gepa_service.records import RecordChanged, RecordExists, TenantRecords, now
from gepa_service.repositories.delivered_commit import TEXTS, DeliveredChange, push
from gepa_service.repositories.github_app import DELIVER, GitHub, GitHubFailed, owner_and_name
from gepa_service.service import Service
from gepa_service.webhooks import emit
from sandbox_runtime.api.sandbox import SandboxError

router = APIRouter(tags=["programs"])

LONGEST_TITLE = 200
LONGEST_BODY = 60_000
"""Characters of a pull request's text; GitHub takes 65,536."""

BRANCH_PATTERN = r"^[^\s\x00-\x1f\x7f~^:?*\[\\-][^\s\x00-\x1f\x7f~^:?*\[\\]*$"

ABANDONED_AFTER = timedelta(minutes=20)
"""A delivery that took longer than this was cut off, and may be begun again."""


class DeliverRequest(RequestBody):
    """How a version is delivered. `base`: the branch that the pull request is for; by default the default branch."""

    mode: Literal["pull_request", "patch"] = "pull_request"
    base: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=BRANCH_PATTERN)] | None = None
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
