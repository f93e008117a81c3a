"""Connect repositories, and list them."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from gepa_service.api.access import Parts, Reader, Writer
from gepa_service.api.pagination import Id, Page, Paging, RequestBody, View, known
from gepa_service.api.problems import Problem, documented
from gepa_service.jobs import deletion
from gepa_service.model.program_version import Installation, Repository
from gepa_service.records import RecordChanged, TenantRecords, new_id
from gepa_service.repositories.destinations import LONGEST_URL, DestinationRefused, HostUnknown
from gepa_service.repositories.github_app import GitHubFailed, owner_and_name
from gepa_service.repositories.repository_access import (
    LARGEST_MB,
    AllowedRepository,
    Head,
    RepositoryUnreachable,
    allowed_repository,
    look_up,
)
from gepa_service.service import Service
from sandbox_runtime.source.remote_git import Credentials, CredentialsFailed

router = APIRouter(tags=["repositories"])

InstallationId = Annotated[int, Field(ge=1, lt=10**18)]


class ConnectRequest(RequestBody):
    """A repository. `installation_id`: of the GitHub App, for a private one."""

    repo_url: Annotated[str, Field(min_length=1, max_length=LONGEST_URL)]
    installation_id: InstallationId | None = None


class Connected(BaseModel):
    """The `client_id` names the repository in other requests."""

    client_id: str
    status: Literal["connected", "unreachable", "suspended"]


class RepositoryView(View):
    """A connected repository. `head`: the commit of its default branch when it was last looked at."""

    client_id: str
    repo_url: str
    installation_id: int | None
    status: Literal["connected", "unreachable", "suspended"]
    detail: str | None
    default_branch: str | None
    head: str | None
    created_at: datetime
    updated_at: datetime


class RepositoryPage(Page[RepositoryView]):
    """Connected repositories."""


@router.post("/connect-git", responses=documented(502))
async def connect_git(asked: ConnectRequest, caller: Writer, service: Parts) -> Connected:
    """Connect a repository, whose access is tested at once. A repository that is connected already keeps its id."""
    allowed = await run_in_threadpool(allowed_or_problem, service, asked.repo_url)
    installation_id = None if asked.installation_id is None else str(asked.installation_id)
    if installation_id is not None:
        await own_installation(service, caller.records, installation_id)
    head = await tested(service, allowed, installation_id)
    record = await run_in_threadpool(_connected, caller.records, allowed.text, installation_id, head)
    return Connected(client_id=record.id, status=record.status)


@router.get("/repositories")
def repositories(caller: Reader, query: Paging) -> RepositoryPage:
    """List the connected repositories, the newest first."""
    return RepositoryPage.read(RepositoryView.of, caller.records, Repository, query, newest_first=True)


@router.delete("/repositories/{client_id}", status_code=204, responses=documented(404))
def delete_repository(
    client_id: Id,
    caller: Writer,
    service: Parts,
    force: Annotated[bool, Query(description="Also if a version of it is active.")] = False,
) -> None:
    """Delete a repository with its jobs, batches, steps and versions, which must have ended."""
    found = known(caller.records, Repository, client_id, "connected repository")
    deletion.delete_repository(caller.records, service.store, found, caller.actor, force=force)


def allowed_or_problem(service: Service, repo_url: str) -> AllowedRepository:
    """Return the repository if tenants may connect it. Blocks. Raises a 422 problem."""
    try:
        return allowed_repository(repo_url, service.repositories)
    except HostUnknown as error:
        raise Problem(422, "repository-unreachable", "Host not found", str(error), field="repo_url") from None
    except DestinationRefused as error:
        raise Problem(422, "repository-refused", "Repository not allowed", str(error), field="repo_url") from None


async def own_installation(service: Service, records: TenantRecords, installation_id: str) -> Installation:
    """Return the installation that this tenant has. Raises a problem if it has not proved to have it."""
    found: Installation | None = await run_in_threadpool(records.get, Installation, installation_id)
    if service.github is None or found is None:
        remedy = "begin with POST /github/install" if service.github is not None else "this service has no GitHub App"
        detail = f"there is no such installation of the GitHub App; {remedy}"
        raise Problem(422, "no-installation", "Unknown installation", detail, field="installation_id")
    if found.suspended:
        detail = "the installation is suspended at GitHub: resume it there"
        raise Problem(422, "no-installation", "Unknown installation", detail, field="installation_id")
    return found


async def tested(service: Service, allowed: AllowedRepository, installation_id: str | None) -> Head:
    """Return the default branch of a repository that can be read and is not too large. Raises a problem."""
    try:
        credentials: Credentials | None = None
        if installation_id is not None and service.github is not None:
            if owner_and_name(allowed.url, service.github.settings.host) is None:
                detail = f"an installation of the GitHub App is for repositories on {service.github.settings.host}"
                raise Problem(422, "repository-refused", "Repository not allowed", detail, field="installation_id")
            credentials = await service.github.credentials(installation_id, allowed.url)
            size = await service.github.size_mb(credentials)
            if size > LARGEST_MB:
                detail = (
                    f"the repository has {size:,.0f} MiB; the largest that this service reads has {LARGEST_MB:,} MiB"
                )
                raise Problem(422, "repository-too-large", "Repository too large", detail, field="repo_url")
        return await look_up(allowed, credentials)
    except (RepositoryUnreachable, CredentialsFailed) as error:
        raise Problem(422, "repository-unreachable", "Repository not readable", str(error), field="repo_url") from None
    except GitHubFailed as error:
        raise Problem(502, "github-failed", "GitHub failed", str(error)) from None


def _connected(records: TenantRecords, repo_url: str, installation_id: str | None, head: Head) -> Repository:
    found = records.page(Repository, {"repo_url": repo_url, "installation_id": installation_id}, limit=1)
    changes = {"status": "connected", "detail": None, "default_branch": head.branch, "head": head.commit}
    if found:
        try:
            return records.change(found[0], lambda record: record.model_copy(update=changes))
        except RecordChanged:
            return found[0]
    record = Repository(
        tenant=records.tenant,
        id=new_id("client"),
        repo_url=repo_url,
        installation_id=installation_id,
        default_branch=head.branch,
        head=head.commit,
    )
    records.insert(record)
    return record
