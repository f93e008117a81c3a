"""Deletion of work, repositories and tenants, by routes and commands, and of what is older than it is kept."""

import contextlib
import os
import pkgutil
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gepa_client.errors import NoSuchRun
from gepa_client.journal.entries import SEARCH
from gepa_client.journal.store import Store, open_store
from gepa_service import model
from gepa_service.jobs import deletion
from gepa_service.jobs.deletion import DeletedFiles
from gepa_service.jobs.job_environment import Place, cache_of
from gepa_service.model.program_version import Delivery, Program, Promotion, Repository
from gepa_service.model.tenant import TENANTS, ApiKey, AuditEntry, Tenant
from gepa_service.model.work import LogChunk, Status, TaskResult, Work
from gepa_service.records import Record, RecordStore, id_at, new_id, now
from gepa_service.service import Service
from gepa_service.webhooks import Webhook, WebhookDelivery
from tests.gepa_client.journal.sample_runs import ended as ended_attempt
from tests.gepa_client.journal.sample_runs import run
from tests.gepa_service.api.conftest import Client
from tests.gepa_service.api.examples_of_routes import RESOURCES
from tests.gepa_service.cli.in_process import ran


def job(records: RecordStore, status: Status = "completed", created: datetime | None = None, **fields: object) -> Work:
    id_ = id_at("job", created or now()) + new_id("job")[-20:]
    made = Work(tenant="acme", id=id_, created=created or now(), repo_url="r", created_by="c", status=status, **fields)
    records.insert(made)
    records.insert(LogChunk(tenant="acme", id=new_id("log"), job_id=made.id, lines=()))
    return made


@pytest.fixture
def journals(service: Service) -> Iterator[Store]:
    with contextlib.closing(open_store(service.journals)) as store:
        yield store


async def test_ended_work_is_deleted_with_its_run_log_and_results(
    call: Client, records: RecordStore, journals: Store
) -> None:
    made = job(records)
    journals.create(run(made.id), [ended_attempt(0, usage={"cost_usd": 0.25})])
    assert (await call("editor", "DELETE", f"/job/{made.id}")).status_code == 204
    assert (await call("editor", "GET", f"/job/{made.id}")).status_code == 404
    assert (await call("editor", "DELETE", f"/job/{made.id}")).status_code == 404
    assert records.count(LogChunk, "acme") == 0
    with pytest.raises(NoSuchRun):
        journals.run(made.id)


async def test_work_that_has_not_ended_is_not_deleted(call: Client, records: RecordStore, service: Service) -> None:
    batch = RESOURCES["batch"](service, "acme")
    for status in ("pending", "running", "paused"):
        refused = await call("editor", "DELETE", f"/job/{job(records, status).id}")
        assert (refused.status_code, refused.json()["detail"]) == (409, f"the job is {status}: cancel it first")
    assert (await call("editor", "DELETE", f"/job/{batch}")).status_code == 404
    path = f"/api/internal/rollouts/batch/{batch}"
    assert (await call("editor", "DELETE", path)).status_code == 409
    await call("editor", "POST", f"{path}/cancel")
    assert (await call("editor", "DELETE", path)).status_code == 204
    assert records.count(TaskResult, "acme") == 0


async def test_a_repository_whose_version_is_active_is_deleted_by_force_alone_with_its_work_and_versions(
    call: Client, records: RecordStore
) -> None:
    repository = Repository(tenant="acme", id=new_id("client"), repo_url="https://example.org/r")
    version = Program(
        tenant="acme", id=new_id("program"), line="l", job_id="j", client_id=repository.id, repo_url="r", texts={}
    )
    earlier = version.model_copy(update={"id": new_id("program"), "client_id": None})
    delivery = Delivery(tenant="acme", id=version.id, branch="b", commit="c", actor="a")
    for record in (repository, version, earlier, delivery):
        records.insert(record)
    running = job(records, "running", client_id=repository.id)
    path = f"/repositories/{repository.id}"
    assert "1 jobs, batches or steps" in (await call("editor", "DELETE", path)).json()["detail"]
    await call("editor", "POST", f"/job/{running.id}/cancel")
    for each in (earlier, version):
        await call("editor", "POST", f"/program/{each.id}/promote", {"force": True, "reason": "a test"})
    refused = await call("editor", "DELETE", path)
    assert (refused.status_code, f"version {version.id}" in refused.json()["detail"]) == (409, True)
    assert records.count(Work, "acme", {"client_id": repository.id}) == 1
    assert (await call("editor", "DELETE", f"{path}?force=true")).status_code == 204
    assert [each.id for each in records.every(Program, "acme")] == [earlier.id]
    assert records.count(Repository, "acme") == records.count(Promotion, "acme", {"program_id": version.id}) == 0
    assert records.count(Delivery, "acme") == 0, "another version may get its id"
    assert (await call("editor", "GET", "/programs/active")).json()["items"] == [], "the earlier one was replaced"
    assert records.count(Work, "acme", {"client_id": repository.id}) == 0


def deleted(folder: Path, *arguments: str) -> tuple[int, str]:
    databases = ("--database", str(folder / "records.db"), "--journals", str(folder / "journals.db"))
    status, stdout, stderr = ran("tenants", "delete", *databases, *arguments, environment={**os.environ})
    return status, " ".join((stdout + stderr).split())


async def test_a_tenant_is_deleted_whole_once_its_work_has_ended_and_no_other_tenant_with_it(
    call: Client, service: Service, records: RecordStore, tmp_path: Path
) -> None:
    for name, make in RESOURCES.items():
        if not name.startswith("job of"):
            make(service, "beta")
    await call("other tenant's owner", "POST", "/keys", {"name": "more", "role": "viewer"})
    kinds = Record.__subclasses__()
    others = {type_: records.count(type_, "acme") for type_ in kinds}
    assert deleted(tmp_path, "beta")[0] == 2
    status, text = deleted(tmp_path, "beta", "--yes")
    assert (status, "have not ended: cancel them first" in text) == (2, True)
    for work in records.page(Work, "beta"):
        records.replace(work.model_copy(update={"status": "cancelled"}))
    assert deleted(tmp_path, "beta", "--yes")[0] == 0
    assert not [type_ for type_ in kinds if records.count(type_, "beta")]
    assert records.get(Tenant, TENANTS, "beta") is None
    assert records.count(ApiKey, TENANTS, {"owner": "beta"}) == 0
    assert {type_: records.count(type_, "acme") for type_ in kinds} == others
    assert "no tenant" in deleted(tmp_path, "beta", "--yes")[1]


def test_the_kinds_of_all_models_are_known_where_a_tenant_is_deleted() -> None:
    models = {f"{model.__name__}.{each.name}" for each in pkgutil.iter_modules(model.__path__)}
    assert models | {Webhook.__module__} <= {getattr(each, "__module__", "") for each in vars(deletion).values()}


def test_what_ended_longer_ago_than_it_is_kept_is_deleted_and_files_of_what_is_gone(
    records: RecordStore, service: Service, journals: Store, tmp_path: Path
) -> None:
    place = Place("http://127.0.0.1", tmp_path / "jobs", tmp_path / "cache")
    old = now() - timedelta(days=40)
    kept, running = job(records), job(records, "running", created=old)
    late = job(records, created=old, completed=now())
    gone = job(records, "partial", created=old, completed=old, what="rollouts")
    records.insert(AuditEntry(tenant="acme", id=id_at("audit", old), actor="a", action="a", resource="r", status=200))
    sent = {"webhook_id": "w", "event": "ping", "payload": {}, "status": "failed"}
    records.insert(WebhookDelivery(tenant="acme", id=id_at("delivery", old), **sent))
    records.insert(AuditEntry(tenant="acme", id=id_at("audit", now()), actor="a", action="a", resource="", status=200))
    journals.create(run(gone.id))
    reader = open_store(service.journals)
    assert reader.parts(gone.id) == {}
    records.insert(Tenant(tenant=TENANTS, id="acme", name="acme"))
    folders = {each.id: place.folder / f"{each.id}-1" for each in (kept, running, late, gone)}
    others = [place.folder / "dispatcher", cache_of("acme", place.cache)]
    for folder in (*folders.values(), *others):
        folder.mkdir(parents=True, exist_ok=True)
    of_tenant = cache_of("deleted", place.cache)
    files, stop = DeletedFiles(records, journals, place, keep_days=30.0), threading.Event()
    files.look(stop)
    assert {each.id for each in records.page(Work, "acme")} == {kept.id, running.id, late.id}
    assert (records.count(AuditEntry, "acme"), records.count(WebhookDelivery, "acme")) == (1, 0)
    assert reader.parts(gone.id) == {}, "a process that reads it finds nothing more"
    assert folders[gone.id].exists(), "its processes may still end"
    files.look(stop)
    assert not folders[gone.id].exists()
    assert not of_tenant.exists()
    assert all(each.exists() for each in (folders[kept.id], folders[running.id], folders[late.id], *others))
    assert not any(gone.id.encode() in each.read_bytes() for each in tmp_path.glob("*.db*"))
    reader.close()


def test_a_run_never_gets_the_rows_of_one_that_was_deleted(tmp_path: Path) -> None:
    first, second = (open_store(str(tmp_path / "store.db")) for _ in range(2))
    first.create(run("a"), [ended_attempt(0)])
    assert len(second.attempts("a", SEARCH)) == 1
    first.delete("a")
    first.create(run("b"), [ended_attempt(0), ended_attempt(1)])
    assert second.attempts("a", SEARCH) == []
    for store in (first, second):
        store.close()
