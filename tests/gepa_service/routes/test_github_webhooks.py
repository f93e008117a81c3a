"""Webhooks of GitHub: what they change, and forged and replayed ones."""

from datetime import timedelta
from typing import Any

import httpx
import pytest

from gepa_service.api.routes.github import SEEN, remove_old
from gepa_service.model.program_version import Installation, Repository, SeenDelivery, day_of
from gepa_service.model.tenant import TENANTS
from gepa_service.records import TenantRecords, now
from tests.gepa_service.github_server import LoopbackGitHub
from tests.gepa_service.routes.conftest import Caller

REMOVED = {"action": "removed", "installation": {"id": 42}, "repositories_removed": [{"full_name": "Owner/Name"}]}


@pytest.fixture
def repository(github: LoopbackGitHub, acme: TenantRecords) -> Repository:
    record = Repository(
        tenant="acme",
        id="client_1",
        repo_url=github.url("owner/name"),
        installation_id="42",
        default_branch="main",
        head="a" * 40,
    )
    acme.insert(record)
    acme.insert(Installation(tenant="acme", id="42", installation_id="42", account="owner"))
    return record


async def sent(
    client: httpx.AsyncClient, github: LoopbackGitHub, kind: str, event: Any, delivery: str = "d1", **changed: str
) -> httpx.Response:
    body, signature = github.webhook(event)
    headers = {"X-GitHub-Event": kind, "X-GitHub-Delivery": delivery, "X-Hub-Signature-256": signature, **changed}
    return await client.post("/github/webhook", content=body, headers=headers)


def stored(acme: TenantRecords) -> Repository:
    found = acme.get(Repository, "client_1")
    assert found is not None
    return found


async def test_a_push_to_the_default_branch_changes_the_head(
    github: LoopbackGitHub, github_client: httpx.AsyncClient, repository: Repository, acme: TenantRecords
) -> None:
    event = {
        "ref": "refs/heads/main",
        "after": "b" * 40,
        "installation": {"id": 42},
        "repository": {"full_name": "Owner/Name"},
    }
    assert (await sent(github_client, github, "push", event)).json() == {"taken": True}
    assert stored(acme).head == "b" * 40
    other = event | {"ref": "refs/heads/side", "after": "c" * 40}
    assert (await sent(github_client, github, "push", other, "d2")).json() == {"taken": False}
    assert stored(acme).head == "b" * 40


async def test_a_suspended_installation_suspends_its_repositories_until_it_is_resumed_and_no_replay_does_again(
    github: LoopbackGitHub, github_client: httpx.AsyncClient, repository: Repository, acme: TenantRecords
) -> None:
    event = {"installation": {"id": 42}}
    await sent(github_client, github, "installation", event | {"action": "suspend"}, "d1")
    assert stored(acme).status == "suspended"
    editor, connect = Caller(github_client, "acme-editor"), {"repo_url": github.url("o/r"), "installation_id": 42}
    refused = await editor("POST", "/optimize", {"client_id": "client_1", "max_metric_calls": 5})
    assert refused.status_code == 409
    assert (await editor("POST", "/connect-git", connect)).json()["field"] == "installation_id"
    await sent(github_client, github, "installation", event | {"action": "unsuspend"}, "d2")
    again = await sent(github_client, github, "installation", event | {"action": "suspend"}, "d1")
    assert (again.status_code, stored(acme).status) == (409, "connected")
    await sent(github_client, github, "installation", event | {"action": "deleted"}, "d3")
    assert stored(acme).status == "unreachable"
    assert acme.get(Installation, "42") is None


async def test_a_forged_or_odd_webhook_changes_nothing_and_a_removed_repository_is_unreachable(
    github: LoopbackGitHub, github_client: httpx.AsyncClient, repository: Repository, acme: TenantRecords
) -> None:
    kind = "installation_repositories"
    for signature in ("sha256=" + "0" * 64, "", "sha1=abc"):
        refused = await sent(github_client, github, kind, REMOVED, **{"X-Hub-Signature-256": signature})
        assert refused.status_code == 401
    for at, event in enumerate(([], 5, {}, {"installation": []}, {"installation": {"id": {}}, "action": {}})):
        answered = await sent(github_client, github, kind, event, f"odd{at}")
        assert answered.status_code == 400 or answered.json() == {"taken": False}
    assert stored(acme).status == "connected"
    await sent(github_client, github, kind, REMOVED)
    assert stored(acme).status == "unreachable"


async def test_a_delivery_is_forgotten_after_a_month(
    github: LoopbackGitHub, github_client: httpx.AsyncClient, repository: Repository, acme: TenantRecords
) -> None:
    await sent(github_client, github, "installation_repositories", REMOVED, "d1")
    await sent(github_client, github, "installation_repositories", REMOVED, "d2")
    assert remove_old(acme.store) == 0
    first, second = acme.store.page(SeenDelivery, TENANTS)
    acme.store.replace(first.model_copy(update={"day": day_of(now() - SEEN - timedelta(days=1))}))
    assert remove_old(acme.store) == 1
    assert acme.store.page(SeenDelivery, TENANTS) == [second]
