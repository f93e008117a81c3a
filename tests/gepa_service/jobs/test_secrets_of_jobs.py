"""A tenant's secrets and the token of its repository are used for its job, and are in none of its programs."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from gepa_service.jobs.attempt_records import AttemptRecords
from gepa_service.jobs.messages import Begun
from gepa_service.jobs.tenant_secrets import revealed
from gepa_service.repositories.repository_access import RepositoryPolicy
from gepa_service.secrets.master_key import MasterKey
from gepa_service.secrets.vault import Vault
from gepa_service.service import Revealed
from tests.gepa_client.scripted_server import chat_completion
from tests.gepa_service.platform import MASTER, Platform, working
from tests.sandbox_runtime.gateway.test_secret_headers import server_context
from tests.sandbox_runtime.source.repositories import commit
from tests.support.loops import in_a_thread
from tests.support.web_hosts import web_host

pytestmark = pytest.mark.timeout(300)
SECRET = "sk-of-the-tenant-that-is-in-no-process"
PROGRAM = """
seed_candidate = {"prompt": "plain"}


def run(example, candidate):
    return candidate["prompt"] + example["text"]


def score(example, output):
    return 1.0 if "better" in output else 0.1, "use better"
"""

FETCHING = """
import os
import urllib.request

seed_candidate = {"prompt": "plain"}


def run(example, candidate):
    [base] = [url for name, url in os.environ.items() if name.startswith("GATEWAY_URL_")]
    with urllib.request.urlopen(base + "/things", timeout=20) as answer:
        return answer.read().decode() + repr(sorted(os.environ.items()))


def score(example, output):
    return 0.5 * ("you sent Bearer [redacted]" in output and "SECRET" not in output), "fetch"


def propose_new_texts(candidate, reflective_dataset, components_to_update):
    return {name: candidate[name] + "!" for name in components_to_update}
""".replace("SECRET", SECRET[:-1])


@contextmanager
def model(
    asked: Callable[[str | None], None],
    answer: Callable[[str], str] = lambda _: "better",
    looked_up: Callable[[str | None], None] = lambda _: None,
) -> Iterator[str]:
    """Yield the base URL of a model; `asked` is called with the header of each request, `answer` with its prompt.

    `looked_up`: called with the header of each request about the model itself.
    """

    async def complete(request: web.Request) -> web.Response:
        header = request.headers.get("Authorization")
        if request.method == "GET":
            looked_up(header)
            return web.Response(status=501)
        asked_for = await request.json()
        await asyncio.to_thread(asked, header)
        prompt = "".join(str(each["content"]) for each in asked_for["messages"])
        return chat_completion("m", f"```\n{await asyncio.to_thread(answer, prompt)}\n```")

    with in_a_thread(web_host(complete)) as host:
        yield f"http://{host}/v1"


@contextmanager
def api(folder: Path) -> Iterator[tuple[str, list[str | None]]]:
    """A host behind TLS that repeats the `Authorization` of each request: its address, and what it got."""
    seen: list[str | None] = []

    async def repeat(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.Response(text=f"you sent {seen[-1]}")

    with in_a_thread(web_host(repeat, server_context(folder))) as host:
        yield host, seen


def test_the_gateway_of_a_tenants_job_puts_its_secret_on_requests_to_the_host_and_shows_it_to_no_program(
    service: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(tmp_path / "program", {"program.py": FETCHING, "gepa.toml": 'program = "program.py"\n'})
    (tmp_path / "tls").mkdir()
    vault, rows = Vault(service.records, [MasterKey(MASTER)]), [{"text": str(at)} for at in range(4)]
    for tenant in ("acme", "rival"):
        service.tenant(tenant)
    with api(tmp_path / "tls") as (host, seen):
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls" / "certificate.pem"))
        header = {"host": host, "header": "Authorization", "prefix": "Bearer "}
        vault.put("acme", "API_TOKEN", SECRET, [header])
        vault.put("acme", "LD_PRELOAD", "/of/an/earlier/version.so", [header])
        parts = service.parts(revealed=partial(revealed, vault))
        settings = {"trainset": rows, "valset": rows, "max_metric_calls": 12}
        with working(parts, replace(service.place(), sandbox="bubblewrap")):
            ended = service.ended(service.submit(tmp_path / "program", settings))
    rivals = AttemptRecords(parts, "rival", service.begun("rival").id, 1).begin()
    assert ended.status == "completed", f"{ended!r}\n{service.log(ended)}"
    assert ended.progress.seed_score == 0.5
    assert len(seen) >= 12
    assert set(seen) == {f"Bearer {SECRET}"}
    assert isinstance(rivals, Begun)
    assert not (rivals.secrets or rivals.headers or rivals.redacted), "another tenant's job gets the secret"
    written = [path for path in (tmp_path / "jobs").rglob("*") if path.is_file()]
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []


def test_the_key_of_a_job_is_not_sent_to_a_model_at_an_address_that_the_operator_does_not_allow(
    service: Platform, tmp_path: Path
) -> None:
    commit(tmp_path / "program", {"program.py": PROGRAM, "gepa.toml": 'program = "program.py"\n'})
    service.secrets["acme"] = Revealed({"OPENAI_API_KEY": SECRET})
    asked, rows = list[str | None](), [{"text": str(at)} for at in range(4)]
    with model(asked.append, looked_up=asked.append) as base_url:
        settings = {
            "trainset": rows,
            "valset": rows,
            "max_metric_calls": 16,
            "reflection_lm": "openai/m",
            "model_providers": {"openai": {"base_url": base_url, "key_env": "OPENAI_API_KEY"}},
        }
        with working(service.parts(repositories=RepositoryPolicy(allow_local=True)), service.place()):
            ended = service.ended(service.submit(tmp_path / "program", settings))
    assert (ended.status, (ended.failure or {}).get("kind")) == ("failed", "preflight")
    assert "this is not a public host" in (ended.reason or "")
    assert asked == []
