"""Details of a job's run, as the page loads them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gepa_service.api.app_state import Service
from gepa_service.model.job import Job
from gepa_service.records.store import TenantRecords
from tests.gepa_service.ended_runs import optimized
from tests.gepa_service.routes.conftest import Caller


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("run")
    yield folder, optimized(folder)


@pytest.fixture
def job(made: tuple[Path, str], acme: TenantRecords, service: Service) -> str:
    folder, run_id = made
    for each in folder.glob("journals.db*"):
        shutil.copy(each, Path(service.journals).parent)
    acme.insert(Job(tenant="acme", id=run_id, repo_url="r", created_by="k", status="completed", attempts=1))
    return run_id


async def test_each_detail_of_a_run_is_there_for_its_tenant_alone(viewer: Caller, stranger: Caller, job: str) -> None:
    stream = await viewer("GET", f"/job/{job}/stream")  # to its end
    events = [json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: {")]
    proposal = next(each for each in events if each.get("type") == "proposal" and each["candidate"] is not None)
    component = next(each for each in events if each.get("type") == "run")["components"][0]
    best = proposal["candidate"]
    for path, member in (
        (f"cell?candidate={best}&row=0", "result"),
        (f"cell?candidate={best}&row=0&part=input", "text"),
        (f"text?candidate={best}&component={component}", "text"),
        (f"proposal?at={proposal['at']}", "rows"),
        (f"provenance?candidate={best}", "components"),
        ("explanation", "best"),
    ):
        answer = await viewer("GET", f"/job/{job}/{path}")
        assert answer.status_code == 200, (path, answer.text)
        assert answer.json()[member] is not None
        assert (await stranger("GET", f"/job/{job}/{path}")).status_code == 404


async def test_what_a_run_lacks_is_named(viewer: Caller, job: str) -> None:
    for path, text in (
        ("cell?candidate=9999&row=0", "no candidate 9999"),
        ("cell?candidate=0&row=9999", "no validation row at place 9999"),
        ("text?candidate=0&component=absent", "no component 'absent'"),
        ("transcript?at=0", "no change of code"),
    ):
        answer = await viewer("GET", f"/job/{job}/{path}")
        assert answer.status_code == 404
        assert text in answer.json()["detail"]


async def test_a_stream_continues_after_the_id_in_its_address(viewer: Caller, job: str) -> None:
    last = (await viewer("GET", f"/job/{job}/events")).json()["next"]
    whole = await viewer("GET", f"/job/{job}/stream")
    rest = await viewer("GET", f"/job/{job}/stream?after={last}")
    assert whole.text.count("\nid: ") > rest.text.count("\nid: ")
    assert "event: end" in rest.text and "event: reset" not in rest.text
