"""The GitHub App: its installation for a tenant, and the webhooks that GitHub sends."""

import hashlib
import hmac
import json
import secrets
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from gepa_client.journal.database import Compared
from gepa_service.api.access import Parts, Writer
from gepa_service.api.pagination import RequestBody
from gepa_service.api.problems import Problem, documented
from gepa_service.model.program_version import Installation, Repository, SeenDelivery, day_of
from gepa_service.model.tenant import TENANTS
from gepa_service.records import RecordExists, RecordStore, changed, now, stored
from gepa_service.repositories.github_app import CONFIRMATION, STATE, GitHub, GitHubFailed, owner_and_name

router = APIRouter(tags=["github"])

NONCE_BYTES = 16
LONGEST_TOKEN = 4000
SEEN = timedelta(days=30)
"""For how long a delivery is known; GitHub itself delivers one again within three days."""

MOST_BOUND = 200
"""Records of one installation that one webhook changes at once."""


class InstallUrl(BaseModel):
    """Where a user installs the App."""

    url: str


class ToConfirm(BaseModel):
    """What the tenant sends to `POST /github/installations` within ten minutes."""

    installation_id: int
    account: str
    confirmation: str


class ConfirmRequest(RequestBody):
    """The `confirmation` that the callback answered."""

    confirmation: Annotated[str, Field(min_length=1, max_length=LONGEST_TOKEN)]


class InstallationView(BaseModel):
    """An installation that the tenant can use."""

    installation_id: int
    account: str
    suspended: bool


class WebhookTaken(BaseModel):
    """`taken`: whether the event concerns a repository or an installation that is known here."""

    taken: bool


@router.post("/github/install")
def install(caller: Writer, service: Parts) -> InstallUrl:
    """Return the page on which a user of GitHub installs the App for repositories of theirs."""
    github = _github(service.github)
    return InstallUrl(url=github.install_url(caller.tenant, secrets.token_hex(NONCE_BYTES)))


@router.get("/github/callback", responses=documented(409, 502))
async def callback(
    service: Parts,
    state: Annotated[str, Query(min_length=1, max_length=LONGEST_TOKEN)],
    code: Annotated[str, Query(min_length=1, max_length=200)],
    installation_id: Annotated[str, Query(pattern=r"^[0-9]{1,18}$")],
) -> ToConfirm:
    """Take GitHub's redirect after an installation.

    It binds nothing by itself: another tenant may have sent the link to the user who opens it. The answer reaches that
    user alone, who confirms it with a key of the tenant that began.
    """
    github = _github(service.github)
    begun = github.claims(STATE, state)
    if begun is None:
        detail = "this installation was not begun here, or more than ten minutes ago: begin with POST /github/install"
        raise Problem(422, "wrong-state", "Unknown installation", detail, field="state")
    try:
        account = await github.account_of_installation(code, installation_id)
    except GitHubFailed as error:
        raise Problem(502, "github-failed", "GitHub failed", str(error)) from None
    if account is None:
        detail = "the user who was redirected may not manage this installation"
        raise Problem(422, "no-installation", "Unknown installation", detail, field="installation_id")
    claims = {"tenant": begun["tenant"], "installation_id": installation_id, "account": account}
    return ToConfirm(
        installation_id=int(installation_id),
        account=account,
        confirmation=github.signed(CONFIRMATION, claims),
    )


@router.post("/github/installations")
def confirm(asked: ConfirmRequest, caller: Writer, service: Parts) -> InstallationView:
    """Bind an installation to the caller's tenant."""
    claims = _github(service.github).claims(CONFIRMATION, asked.confirmation)
    if claims is None or claims["tenant"] != caller.tenant:
        detail = "this confirmation is not for this tenant, or older than ten minutes: begin with POST /github/install"
        raise Problem(422, "wrong-confirmation", "Unknown installation", detail, field="confirmation")
    record = Installation(
        tenant=caller.tenant,
        id=claims["installation_id"],
        installation_id=claims["installation_id"],
        account=claims["account"],
    )
    found = stored(service.records, record, lambda each: each.model_copy(update={"account": record.account}))
    return InstallationView(installation_id=int(found.id), account=found.account, suspended=found.suspended)


@router.post("/github/webhook", responses=documented(401, 409))
async def webhook(
    request: Request,
    service: Parts,
    x_github_event: Annotated[str, Header(max_length=100)],
    x_github_delivery: Annotated[str, Header(min_length=1, max_length=100)],
    x_hub_signature_256: Annotated[str, Header(max_length=200)] = "",
) -> WebhookTaken:
    """Take an event of GitHub: installations, their repositories, pushes. A second delivery of one id is refused."""
    github = _github(service.github)
    body = await request.body()
    expected = "sha256=" + hmac.new(github.settings.webhook_secret.encode(), body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), x_hub_signature_256.encode("utf-8", "surrogateescape")):
        raise Problem(401, "wrong-signature", "Wrong signature", "the signature of this webhook is not GitHub's")
    event = _event(body)
    delivery = hashlib.sha256(x_github_delivery.encode()).hexdigest()
    taken = await run_in_threadpool(_taken, service.records, github, x_github_event, event, delivery)
    return WebhookTaken(taken=taken)


def _github(github: GitHub | None) -> GitHub:
    if github is None:
        raise Problem(409, "no-github-app", "No GitHub App", "the operator of this service has set up no GitHub App")
    return github


def _event(body: bytes) -> dict[str, Any]:
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        detail = "the body is no JSON object: choose the content type application/json in the App's settings"
        raise Problem(400, "not-json", "Body not readable", detail)
    return read


def _taken(records: RecordStore, github: GitHub, kind: str, event: dict[str, Any], delivery: str) -> bool:
    """Process an event once; the record of its delivery is written first, and taken back if it cannot be processed."""
    try:
        records.insert(SeenDelivery(tenant=TENANTS, id=delivery))
    except RecordExists:
        detail = "this delivery was received before"
        raise Problem(409, "replayed", "Delivery received before", detail) from None
    try:
        return _processed(records, github, kind, event)
    except BaseException:
        records.remove(SeenDelivery, TENANTS, id_=delivery)
        raise


def remove_old(records: RecordStore) -> int:
    """Remove the records of deliveries that are older than `SEEN`; return how many. Raises `RecordsUnavailable`."""
    return records.remove(SeenDelivery, None, {"day": Compared("<", day_of(now() - SEEN))})


def _processed(records: RecordStore, github: GitHub, kind: str, event: dict[str, Any]) -> bool:
    installation_id = str(_inside(event, "installation", "id"))
    action = event.get("action")
    if kind == "installation" and action in {"deleted", "suspend", "unsuspend"}:
        return _installation_changed(records, installation_id, str(action))
    if kind == "installation_repositories" and action == "removed":
        removed = event.get("repositories_removed")
        names = {str(_inside(each, "full_name")).lower() for each in removed} if isinstance(removed, list) else set()
        return _repositories_removed(records, github, installation_id, names)
    if kind == "push":
        return _pushed(records, github, installation_id, event)
    return False


def _inside(event: Any, *names: str) -> Any:
    for name in names:
        event = event.get(name) if isinstance(event, dict) else None
    return event


def _installation_changed(records: RecordStore, installation_id: str, action: str) -> bool:
    bound = records.page(Installation, None, {"installation_id": installation_id}, limit=MOST_BOUND)
    for record in bound:
        if action == "deleted":
            records.remove(Installation, record.tenant, id_=record.id)
        else:
            changed(records, record, lambda each: each.model_copy(update={"suspended": action == "suspend"}))
    status = {"deleted": "unreachable", "suspend": "suspended", "unsuspend": "connected"}[action]
    detail = {"deleted": "the GitHub App was uninstalled", "suspend": "the installation is suspended"}.get(action)
    for repository in _connected(records, installation_id):
        changed(records, repository, lambda each: each.model_copy(update={"status": status, "detail": detail}))
    return bool(bound)


def _repositories_removed(records: RecordStore, github: GitHub, installation_id: str, names: set[str]) -> bool:
    changes = {"status": "unreachable", "detail": "the repository was removed from the installation of the GitHub App"}
    found = [each for each in _connected(records, installation_id) if _full_name(each, github) in names]
    for repository in found:
        changed(records, repository, lambda each: each.model_copy(update=changes))
    return bool(found)


def _pushed(records: RecordStore, github: GitHub, installation_id: str, event: dict[str, Any]) -> bool:
    name, after, ref = str(_inside(event, "repository", "full_name")).lower(), event.get("after"), event.get("ref")
    named = [each for each in _connected(records, installation_id) if _full_name(each, github) == name]
    found = [each for each in named if ref == f"refs/heads/{each.default_branch}" and isinstance(after, str)]
    for repository in found:
        changed(records, repository, lambda each: each.model_copy(update={"head": str(after)[:64]}))
    return bool(found)


def _connected(records: RecordStore, installation_id: str) -> list[Repository]:
    return records.page(Repository, None, {"installation_id": installation_id}, limit=MOST_BOUND)


def _full_name(repository: Repository, github: GitHub) -> str | None:
    named = owner_and_name(repository.repo_url.partition("#")[0], github.settings.host)
    return "/".join(named).lower() if named is not None else None
