"""An application over real databases, with real keys of two tenants."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from gepa_service.api.app import create_app
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.auth.keys import make_key, revoke_key
from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.model.work import Work
from gepa_service.records import RecordStore, now
from gepa_service.repositories.repository_access import RepositoryPolicy
from gepa_service.secrets.master_key import MasterKey
from gepa_service.secrets.vault import Vault
from gepa_service.service import Service
from tests.gepa_service.serving import called, service_of

MASTER = MasterKey(b"m" * 32)
URL = "http://service"


Tokens = dict[str, str]
"""A token of each kind. The job token is for a running job of acme; `RESOURCES` makes that of the attempt token."""


def running(id_: str) -> Work:
    """The first attempt at a job of acme."""
    url = "https://example.org/a/b"
    return Work(tenant="acme", id=id_, repo_url=url, created_by="key:1", status="running", attempts=1)


@pytest.fixture
def tokens(records: RecordStore) -> Tokens:
    made = Tokens()
    for tenant in ("acme", "beta"):
        records.insert(Tenant(tenant=TENANTS, id=tenant, name=tenant))
    for kind, tenant, role in (
        ("owner", "acme", "owner"),
        ("editor", "acme", "editor"),
        ("viewer", "acme", "viewer"),
        ("other tenant's owner", "beta", "owner"),
        ("expired", "acme", "owner"),
        ("revoked", "acme", "owner"),
    ):
        key, record = make_key(tenant, kind, role, now() - timedelta(seconds=1) if kind == "expired" else None)
        records.insert(record)
        if kind == "revoked":  # by a process whose clock is ahead
            records.replace(revoke_key(records, record).model_copy(update={"revoked": now() + timedelta(hours=1)}))
        made[kind] = key
    job, issue = running("job_of_token"), JobTokens(records, [MASTER.value]).issue
    records.insert(job)
    made |= {"job token": issue(job), "attempt token": issue(running("job_of_attempt"), role="attempt")}
    return made


@pytest.fixture
def service(records: RecordStore, tmp_path: Path) -> Service:
    vault = Vault(records, [MASTER])
    vault.verify()
    own = {"public_url": URL, "repositories": RepositoryPolicy(allow_local=True), "vault": vault}
    made = service_of(records, str(tmp_path / "journals.db"))
    return replace(made, webhook_key=b"a key of the service of 32 bytes", **own)


@pytest.fixture
def app(service: Service) -> FastAPI:
    return create_app(service)


@dataclass
class Client:
    """Calls the application by a kind of token."""

    http: httpx.AsyncClient
    tokens: Tokens

    async def __call__(
        self, kind: str | None, method: str, path: str, body: Any = None, **headers: str
    ) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if kind is not None:
            named["Authorization"] = f"Bearer {self.tokens[kind]}"
        return await self.http.request(method, path, json=body, headers=named)


@pytest.fixture
async def call(app: FastAPI, tokens: Tokens) -> AsyncIterator[Client]:
    async with called(app, URL) as http:
        yield Client(http, tokens)
