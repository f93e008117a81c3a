"""An application over real databases, with keys `TENANT-ROLE`, called without a socket."""

import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from evolverpc_common.network_addresses import parse_networks
from gepa_service.api.app import create_app
from gepa_service.auth.permissions import Principal
from gepa_service.model.work import Work
from gepa_service.records import RecordStore, TenantRecords, now
from gepa_service.repositories.repository_access import RepositoryPolicy
from gepa_service.service import Service
from tests.gepa_client.conftest import Host, environment
from tests.gepa_client.word_program import Script, rows
from tests.gepa_service.github_server import LoopbackGitHub, loopback_github
from tests.gepa_service.serving import called, service_of
from tests.sandbox_runtime.source.repositories import commit
from tests.support.forked_client import ForkServer

LOOPBACK = parse_networks(["127.0.0.0/8"])
URL = "http://service"
ROLES = ("owner", "editor", "viewer")


@dataclass
class Keys:
    """Recognizes `TENANT-ROLE` as a key, unless it was revoked."""

    revoked: set[str] = field(default_factory=set)

    def recognize(self, token: str, _tenant: str | None = None) -> Principal | None:
        tenant, _, role = token.partition("-")
        if token in self.revoked or role not in ROLES:
            return None
        return Principal(tenant, role, f"key:{token}")  # type: ignore[arg-type]  one of the roles


@dataclass
class Caller:
    """Calls the application with a key."""

    client: httpx.AsyncClient
    key: str

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}", **options.pop("headers", {})}
        return await self.client.request(method, path, json=body, headers=headers, **options)


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> tuple[Path, str]:
    """A folder with a run that `evolverpc optimize` made against a scripted server, and the run's id."""
    folder, host = tmp_path_factory.mktemp("stored"), Host()
    try:
        url = host.serve(Script(datasets={"train": rows(12), "val": rows(6, 50), "test": rows(12, 80)}).server().handle)
        words = ["optimize", url, "--max-metric-calls", "60", "--store", str(folder / "journals.db"), "--check", "off"]
        status, stdout, stderr = fork_server.run(words, folder=folder, environment=environment())
        assert status == 0, stdout + stderr
    finally:
        host.close()
    return folder, next(each.name for each in (folder / "runs").iterdir() if each.is_dir())


@pytest.fixture
def ended(stored: tuple[Path, str], service: Service, acme: TenantRecords) -> Work:
    """A completed job, whose run is in the store."""
    folder, run_id = stored
    for each in folder.glob("journals.db*"):
        shutil.copy(each, Path(service.journals).parent)
    job = Work(
        tenant="acme", id=run_id, repo_url="/p", created_by="key:k", status="completed", attempts=1, completed=now()
    )
    acme.insert(job)
    return job


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def service(records: RecordStore, tmp_path: Path, keys: Keys) -> Service:
    policy = RepositoryPolicy(allow_local=True, allow_networks=LOOPBACK)
    made = service_of(records, str(tmp_path / "journals.db"), keys.recognize)
    return replace(made, public_url=URL, repositories=policy, webhook_key=b"a key of the service of 32 bytes")


@pytest.fixture
async def github(tmp_path: Path) -> AsyncIterator[LoopbackGitHub]:
    async with loopback_github(tmp_path / "github") as served:
        yield served


@pytest.fixture
def with_github(service: Service, github: LoopbackGitHub) -> Service:
    return replace(service, github=github.app())


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with called(create_app(service), URL) as opened:
        yield opened


@pytest.fixture
async def github_client(with_github: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with called(create_app(with_github), URL) as opened:
        yield opened


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The address of a repository of one commit."""
    commit(tmp_path / "program", {"program.py": "print('one')\n"})
    return str(tmp_path / "program")


@pytest.fixture
def editor(client: httpx.AsyncClient) -> Caller:
    return Caller(client, "acme-editor")


@pytest.fixture
def viewer(client: httpx.AsyncClient) -> Caller:
    return Caller(client, "acme-viewer")


@pytest.fixture
def stranger(client: httpx.AsyncClient) -> Caller:
    return Caller(client, "other-owner")


@pytest.fixture
def acme(service: Service) -> TenantRecords:
    return TenantRecords(service.records, "acme")
