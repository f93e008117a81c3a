"""The whole way at Modal: the app of `deploy/` is deployed to a loopback Modal, which runs its functions as processes.

Modal's own command deploys it, Modal's own entry point runs its containers, and Modal's SDK makes all sandboxes.
"""

import asyncio
import base64
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization

from gepa_service.auth.keys import make_key
from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.records.open_records import open_records
from tests.gepa_client.journal.conftest import mongo_server, mongo_url
from tests.gepa_service.github_server import APP_ID, CLIENT_ID, CLIENT_SECRET, SLUG, WEBHOOK_SECRET, LoopbackGitHub
from tests.gepa_service.platform import MASTER
from tests.gepa_service.routes.conftest import Caller
from tests.gepa_service.story_of_a_prompt import (
    PROGRAM,
    check_delivery,
    github_and_model,
    promoted_and_delivered,
    submitted,
)
from tests.gepa_service.test_story import ended
from tests.support.modal_cloud import Cloud, loopback_modal_beside

pytestmark = [
    pytest.mark.timeout(700),
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt install bubblewrap"),
]
__all__ = ["mongo_server", "mongo_url"]
APP = Path(__file__).parents[2] / "deploy" / "service_app.py"
SECRET = "evolverpc-service"
WAIT_S = 300.0
SLOW = PROGRAM.replace(
    "def run(example, candidate):\n", "def run(example, candidate):\n    __import__('time').sleep(0.5)\n"
)


@dataclass(frozen=True)
class Database:
    """A MongoDB database with the records and the journals of a service."""

    url: str

    @property
    def variables(self) -> dict[str, str]:
        return {
            "GEPA_SERVICE_DATABASE": self.url,
            "GEPA_SERVICE_JOURNALS": self.url,
            "GEPA_SERVICE_MASTER_KEY": base64.b64encode(MASTER).decode(),
            "GEPA_SERVICE_ALLOW_NETWORKS": "127.0.0.0/8",
        }

    def key(self, tenant: str) -> str:
        """Create a tenant; return a key of its owner."""
        records = open_records(self.url)
        try:
            records.insert(Tenant(tenant=TENANTS, id=tenant, name=tenant))
            key, record = make_key(tenant, "story", "owner")
            records.insert(record)
        finally:
            records.close()
        return key


@pytest.fixture
def database(mongo_url: str) -> Database:
    return Database(mongo_url)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with loopback_modal_beside() as cloud:
        cloud.control.source = APP.parent
        cloud.control.variables = {"SSL_CERT_FILE": str(cloud.control.authority)}
        yield cloud


def modal(cloud: Cloud, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one of the guide's commands."""
    env = {**{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}, **cloud.env}
    command = [sys.executable, "-m", "modal", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


def app_of(github: LoopbackGitHub) -> dict[str, str]:
    """The variables that describe the GitHub App."""
    described = {
        "app_id": APP_ID,
        "slug": SLUG,
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "webhook_secret": f"{WEBHOOK_SECRET} of 16",
        "host": github.host,
        "api": f"http://{github.host}/api/v3",
        "web": f"http://{github.host}",
    }
    form, none = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    return {
        "GEPA_SERVICE_GITHUB_APP_TOML": "\n".join(f'{name} = "{value}"' for name, value in described.items()),
        "GEPA_SERVICE_GITHUB_APP_KEY": github.key.private_bytes(serialization.Encoding.PEM, form, none).decode(),
    }


@asynccontextmanager
async def callers(url: str, *keys: str) -> AsyncIterator[list[Caller]]:
    async with httpx.AsyncClient(base_url=url, timeout=90) as client:
        yield [Caller(client, key) for key in keys]


def boxes_of(cloud: Cloud, purpose: str | None) -> list[Any]:
    return [box for box in cloud.boxes if box.tags.get("purpose") == purpose]


async def test_the_story_of_a_private_repository_is_the_same_with_the_deployed_app_and_sandboxes_at_modal(
    tmp_path: Path, cloud: Cloud, database: Database
) -> None:
    async with github_and_model(tmp_path) as (github, base_url):
        cloud.control.secrets[SECRET] = database.variables | app_of(github)
        done = await asyncio.to_thread(modal, cloud, "deploy", str(APP))
        assert done.returncode == 0, done.stdout + done.stderr
        async with callers(cloud.control.web_urls["api"], database.key("acme"), database.key("rival")) as (
            owner,
            rival,
        ):
            job_id = await submitted(github, base_url, owner)
            assert await asyncio.to_thread(cloud.run, "scale") == 1
            assert await asyncio.to_thread(cloud.run, "scale") == 0, "a worker is enough for one job"
            job = await ended(owner, job_id, WAIT_S)
            assert job["status"] == "completed", f"{job}\n{cloud.control.logs('worker')}"
            delivered, shown = await promoted_and_delivered(owner, rival, job)
    await check_delivery(tmp_path, github, delivered, shown)
    assert cloud.running == [], "a job's sandboxes end with it"
    [driver] = boxes_of(cloud, "driver")
    sent = f"{driver.asked} {driver.execs}"
    hidden = ("sk-story", "mongodb:", cloud.control.secrets[SECRET]["GEPA_SERVICE_MASTER_KEY"])
    assert [each for each in hidden if each in sent] == [], "the optimizer has no secret and no database"
    assert list(driver.definition.network_access.allowed_cidrs) == ["127.0.0.1/32"]
    programs = boxes_of(cloud, None)
    assert programs and all(each not in f"{box.asked} {box.execs}" for box in programs for each in hidden)


async def follow_to_seed(owner: Caller, job_id: str) -> None:
    """Follow the stream of a job until the seed is evaluated."""
    headers = {"Authorization": f"Bearer {owner.key}"}
    async with (
        asyncio.timeout(WAIT_S),
        owner.client.stream("GET", f"/job/{job_id}/stream", headers=headers, timeout=WAIT_S) as stream,
    ):
        async for line in stream.aiter_lines():
            if '"candidate"' in line:
                return
    raise AssertionError("the job ended before its seed was evaluated")


@pytest.mark.long
async def test_a_job_whose_worker_is_lost_continues_in_another_one_and_the_first_sandboxes_are_ended(
    tmp_path: Path, cloud: Cloud, database: Database
) -> None:
    async with github_and_model(tmp_path, SLOW) as (github, base_url):
        cloud.control.secrets[SECRET] = database.variables | app_of(github)
        done = await asyncio.to_thread(modal, cloud, "deploy", str(APP))
        assert done.returncode == 0, done.stdout + done.stderr
        async with callers(cloud.control.web_urls["api"], database.key("acme")) as (owner,):
            job_id = await submitted(github, base_url, owner)
            assert await asyncio.to_thread(cloud.run, "scale") == 1
            await follow_to_seed(owner, job_id)
            first = cloud.running
            assert len(first) >= 2, "a program and the optimizer"
            await asyncio.to_thread(cloud.lose, "worker")
            assert await asyncio.to_thread(cloud.run, "scale") == 1
            job = await ended(owner, job_id, WAIT_S)
    assert job["status"] == "completed", f"{job}\n{cloud.control.logs('worker')}"
    assert job["best_candidate"] == {"prompt": "better"}
    assert len(boxes_of(cloud, "driver")) == 2
    assert cloud.running == []


def test_a_secret_that_can_be_used_passes_the_check(cloud: Cloud, database: Database) -> None:
    cloud.control.secrets[SECRET] = database.variables
    done = modal(cloud, "run", f"{APP}::check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "can be used" in cloud.control.logs("check")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            {"GEPA_SERVICE_DATABASE": "records.db"},
            ("GEPA_SERVICE_DATABASE", "mongodb://", f"modal secret create {SECRET}"),
        ),
        pytest.param(
            {"GEPA_SERVICE_JOURNALS": ""},
            ("GEPA_SERVICE_JOURNALS must be set", f"modal secret create {SECRET}"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"GEPA_SERVICE_MASTER_KEY": "short"},
            ("GEPA_SERVICE_MASTER_KEY", "openssl rand -base64 32"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_secret_that_cannot_be_used_is_named_by_the_check(
    cloud: Cloud, database: Database, change: dict[str, str], named: tuple[str, ...]
) -> None:
    cloud.control.secrets[SECRET] = database.variables | change
    done = modal(cloud, "run", f"{APP}::check")
    assert done.returncode != 0
    printed = done.stdout + done.stderr + cloud.control.logs("check")
    assert [each for each in named if each not in " ".join(printed.split())] == [], printed


@pytest.mark.parametrize("lacks", ["the secret", "GEPA_SERVICE_MASTER_KEY"])
def test_an_app_without_its_secret_is_not_deployed(cloud: Cloud, database: Database, lacks: str) -> None:
    if lacks != "the secret":
        cloud.control.secrets[SECRET] = {name: text for name, text in database.variables.items() if name != lacks}
    done = modal(cloud, "deploy", str(APP))
    assert done.returncode != 0
    assert SECRET in done.stdout + done.stderr
    assert lacks == "the secret" or lacks in done.stdout + done.stderr
