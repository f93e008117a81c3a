"""Backups of a service: made while it writes, checked, and restored into a new folder alone."""

import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gepa_client.journal.store import open_store
from gepa_service.cli.service_configuration import opened_folder
from gepa_service.jobs.tenant_secrets import revealed
from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.records import new_id, open_records
from gepa_service.secrets.master_key import parse_keys
from gepa_service.secrets.vault import Vault
from tests.gepa_client.journal.sample_runs import run
from tests.gepa_service.cli.in_process import ran

KEY = parse_keys(b"a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=", "test")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    with closing(open_records(str(folder / "records.db"))) as records, closing(store(folder)) as journals:
        folder.chmod(0o700)
        records.insert(Tenant(tenant=TENANTS, id="acme", name="acme"))
        Vault(records, KEY).verify()
        Vault(records, KEY).put("acme", "MODEL_KEY", "value")
        journals.create(run("job_1"))
    return folder


def store(folder: Path):  # type: ignore[no-untyped-def]  # as `open_store`
    return open_store(str(folder / "journals.db"))


def command(*arguments: str) -> tuple[int, str]:
    status, stdout, stderr = ran("backup", *arguments, environment={**os.environ})
    return status, " ".join((stdout + stderr).split())


def copied(data: Path, target: Path) -> tuple[int, str]:
    databases = ("--database", str(data / "records.db"), "--journals", str(data / "journals.db"))
    return command("create", str(target), *databases)


def test_a_copy_that_is_made_while_the_service_writes_is_restored_whole_without_the_master_key(
    data: Path, tmp_path: Path
) -> None:
    stop = threading.Event()

    def write() -> None:
        with closing(open_records(str(data / "records.db"))) as records:
            while not stop.is_set():
                records.insert(Tenant(tenant=TENANTS, id=new_id("tenant"), name="more"))

    writer = threading.Thread(target=write)
    writer.start()
    status, text = copied(data, tmp_path / "copy")
    stop.set()
    writer.join()
    assert (status, f"keep the master key {KEY[0].name} in another place" in text) == (0, True), text
    assert (tmp_path / "copy" / "records.db").stat().st_mode & 0o077 == 0
    status, text = command("restore", str(tmp_path / "copy"), "--data", str(tmp_path / "new"))
    assert (status, f"put the master key {KEY[0].name} in" in text) == (0, True), text
    with closing(open_records(str(tmp_path / "new" / "records.db"))) as records:
        assert revealed(Vault(records, KEY), "acme").variables["MODEL_KEY"] == "value"
    with closing(store(tmp_path / "new")) as journals:
        assert journals.run("job_1").id == "job_1"


def cut(copy: Path) -> None:
    file = copy / "journals.db"
    file.write_bytes(file.read_bytes()[:-4096])


def without_database(copy: Path) -> None:
    (copy / "records.db").unlink()


def without_manifest(copy: Path) -> None:
    (copy / "manifest.json").unlink()


def foreign(copy: Path) -> None:
    (copy / "manifest.json").write_text("{}")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, "journals.db was cut short or changed"),
        (without_database, "cannot be read"),
        (without_manifest, "cannot be read"),
        (foreign, "was not written by this command"),
    ],
)
def test_a_copy_that_is_not_whole_is_refused_and_nothing_is_written(
    data: Path, tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    copied(data, tmp_path / "copy")
    damage(tmp_path / "copy")
    status, text = command("restore", str(tmp_path / "copy"), "--data", str(tmp_path / "new"))
    assert (status, words in text) == (2, True), text
    assert not (tmp_path / "new").exists()


def test_a_store_that_is_in_use_or_there_is_never_restored_over(data: Path, tmp_path: Path) -> None:
    copied(data, tmp_path / "copy")
    before = (data / "records.db").read_bytes()
    with opened_folder(tmp_path / "used"):
        status, text = command("restore", str(tmp_path / "copy"), "--data", str(tmp_path / "used"))
        assert (status, "a service runs in" in text) == (2, True), text
    (data / "master.key").touch()
    status, text = command("restore", str(tmp_path / "copy"), "--data", str(data))
    assert (status, "holds databases: nothing was changed" in text) == (2, True), text
    assert (data / "records.db").read_bytes() == before


def test_no_copy_is_made_over_a_folder_that_is_there_or_of_a_database_of_mongodb(data: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    assert "name a new folder" in copied(data, tmp_path / "copy")[1]
    refused = command("create", "x", "--database", "mongodb://h/a", "--journals", "mongodb://h/b")[1]
    assert "mongodump" in refused
