"""The whole way at Modal: the app of `deploy/` is deployed to a loopback Modal; its API runs in this process.

Modal's own command deploys it, and Modal's SDK calls the function of the attempts and makes all sandboxes.
"""

import asyncio
import base64
import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import httpx
import pytest

from evolverpc_common.network_addresses import free_port
from gepa_service.auth.keys import make_key
from gepa_service.cli.service_configuration import ConfigurationError
from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.records import open_records
from tests.gepa_client.journal.conftest import mongo_server, mongo_url
from tests.gepa_service.jobs.test_secrets_of_jobs import model
from tests.gepa_service.platform import MASTER
from tests.gepa_service.routes.conftest import Caller
from tests.gepa_service.serving import served_app
from tests.gepa_service.test_story import (
    PROGRAM,
    TESTS,
    TEXTS,
    check_goal,
    delivered,
    ended,
    private_repository,
    submitted,
)
from tests.support.modal_cloud import Cloud, found_by_this_process, loopback_modal_beside

pytestmark = [
    pytest.mark.timeout(700),
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt install bubblewrap"),
]
__all__ = ["mongo_server", "mongo_url"]
APP = Path(__file__).parents[2] / "deploy" / "service_app.py"
SECRET = "evolverpc-service"
WAIT_S = 300.0


@pytest.fixture
def variables(mongo_url: str) -> dict[str, str]:
    """The least that the secret holds."""
    return {
        "GEPA_SERVICE_DATABASE": mongo_url,
        "GEPA_SERVICE_JOURNALS": mongo_url,
        "GEPA_SERVICE_MASTER_KEY": base64.b64encode(MASTER).decode(),
        "GEPA_SERVICE_ALLOW_NETWORKS": "127.0.0.0/8",
    }


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with loopback_modal_beside() as cloud, found_by_this_process(cloud):
        yield cloud


@pytest.fixture
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the app, as it is imported in a container; its API is at a free port of loopback."""
    spec = importlib.util.spec_from_file_location("service_app_under_test", APP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setattr(module, "serve", module.api.local, raising=False)
    monkeypatch.setattr(module, "api", SimpleNamespace(get_web_url=lambda: url))
    monkeypatch.setattr(module, "WORK", tmp_path / "work")
    return module


def owner_key(url: str, tenant: str) -> str:
    """Create a tenant; return a key of its owner."""
    with contextlib.closing(open_records(url)) as records:
        records.insert(Tenant(tenant=TENANTS, id=tenant, name=tenant))
        key, record = make_key(tenant, "story", "owner")
        records.insert(record)
    return key


def fill(monkeypatch: pytest.MonkeyPatch, secret: dict[str, str]) -> None:
    for name, value in secret.items():
        monkeypatch.setenv(name, value)


def deploy(cloud: Cloud) -> "subprocess.CompletedProcess[str]":
    """Deploy the app by Modal's own command."""
    env = {**{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}, **cloud.env}
    command = [sys.executable, "-m", "modal", "deploy", str(APP)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


async def test_a_private_repository_is_improved_and_delivered_by_the_functions_of_the_app_in_sandboxes_at_modal(
    tmp_path: Path, cloud: Cloud, variables: dict[str, str], deployed: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.control.secrets[SECRET] = variables
    cloud.control.app_file = APP
    done = await asyncio.to_thread(deploy, cloud)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {*cloud.control.functions} == {"api", "attempt", "check"}
    url = deployed.api.get_web_url()
    cloud.reach(int(url.rpartition(":")[2]))
    database = variables["GEPA_SERVICE_DATABASE"]
    keys = [owner_key(database, tenant) for tenant in ("acme", "rival")]
    files = {"program.py": PROGRAM, "test_program.py": TESTS, "gepa.toml": 'program = "program.py"\n'}
    async with private_repository(tmp_path, files, "") as github:
        fill(monkeypatch, variables | github.variables())
        with model(lambda _: None) as base_url, served_app(deployed.serve(), int(url.rpartition(":")[2])):
            request = {
                "max_metric_calls": 40,
                "reflection_lm": "openai/m",
                "options": {"model_providers": {"openai": {"base_url": base_url, "key_env": "OPENAI_API_KEY"}}},
            }
            async with httpx.AsyncClient(base_url=url, timeout=90) as client:
                owner, rival = (Caller(client, key) for key in keys)
                job_id = await submitted(github, owner, "", {"OPENAI_API_KEY": "sk-story"}, request)
                job = await ended(owner, job_id, WAIT_S)
                found = await delivered(tmp_path, github, owner, rival, job)
    assert json.loads((found.clone / TEXTS).read_text()) == {"prompt": "better"}
    await check_goal(tmp_path, found.clone)
    calls = cloud.control.calls.values()
    assert {call.process.wait(WAIT_S) for call in calls} == {0}
    assert cloud.running == [], "a job's sandboxes end with it"
    [driver] = [box for box in cloud.boxes if box.tags.get("purpose") == "driver"]
    hidden = ("sk-story", "mongodb:", variables["GEPA_SERVICE_MASTER_KEY"])
    sent = f"{driver.asked} {driver.execs} {[call.arguments for call in calls]}"
    assert [each for each in hidden if each in sent] == [], "attempt and optimizer get no secret and no database"
    assert list(cloud.control.functions["attempt"].secret_ids) == []
    assert list(driver.definition.network_access.allowed_cidrs) == ["127.0.0.1/32"]
    programs = [box for box in cloud.boxes if box.tags.get("purpose") is None]
    assert programs and all(each not in f"{box.asked} {box.execs}" for box in programs for each in hidden)


def test_the_check_opens_what_the_secret_names_or_states_what_to_change(
    variables: dict[str, str], deployed: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(monkeypatch, variables)
    deployed.check.local()
    assert "can be used" in capsys.readouterr().out
    monkeypatch.setenv("GEPA_SERVICE_DATABASE", "records.db")
    with pytest.raises(ConfigurationError, match=f"GEPA_SERVICE_DATABASE.*modal secret create {SECRET}"):
        deployed.check.local()


@pytest.mark.parametrize("lacks", ["the secret", "GEPA_SERVICE_MASTER_KEY"])
def test_the_app_is_not_deployed_if_its_secret_lacks_what_it_needs(
    cloud: Cloud, variables: dict[str, str], lacks: str
) -> None:
    if lacks != "the secret":
        cloud.control.secrets[SECRET] = {name: text for name, text in variables.items() if name != lacks}
    done = deploy(cloud)
    assert done.returncode != 0
    assert SECRET in done.stdout + done.stderr
    assert lacks == "the secret" or lacks in done.stdout + done.stderr
