"""The commands of an operator."""

import base64
import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gepa_client.journal.store import open_store
from gepa_service.auth.keys import check_key
from gepa_service.jobs.tenant_secrets import revealed
from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.records import RecordStore, open_records
from gepa_service.secrets.master_key import parse_keys
from gepa_service.secrets.vault import Vault
from tests.gepa_service.cli.in_process import ran

KEY = base64.b64encode(b"k" * 32).decode()
NEW = base64.b64encode(b"n" * 32).decode()


class Commands:
    def __init__(self, folder: Path) -> None:
        self.database = folder / "records.db"
        self.environment = {**os.environ, "GEPA_SERVICE_DATABASE": str(self.database), "NO_COLOR": "1"}
        self.environment.pop("GEPA_SERVICE_MASTER_KEY_FILE", None)

    @functools.cached_property
    def records(self) -> RecordStore:
        return open_records(str(self.database))

    def __call__(self, *arguments: str, status: int = 0) -> str:
        ended, stdout, stderr = ran(*arguments, environment=self.environment)
        assert ended == status, stdout + stderr
        return stdout if status == 0 else " ".join(stderr.split())

    def created(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*arguments, "--json"))
        return found


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(tmp_path)
    yield made
    made.records.close()


def test_a_tenant_gets_a_key_that_works_until_it_is_revoked(commands: Commands) -> None:
    tenant = commands.created("tenants", "create", "Acme", "--requests-per-minute", "30")
    assert tenant["quotas"]["requests_per_minute"] == 30
    key = commands("keys", "create", "Acme", "--role", "owner", "--name", "first").strip()
    found = check_key(commands.records, key)
    assert (found.tenant, found.role) == (tenant["id"], "owner")
    (listed,) = [json.loads(line) for line in commands("keys", "list", "Acme", "--json").splitlines()]
    assert (listed["name"], listed["revoked"]) == ("first", None)
    assert "hashed" not in listed
    assert "revoked" in commands("keys", "revoke", str(tenant["id"]), listed["id"])
    assert check_key(commands.records, key) is None
    assert "revoked" in commands("keys", "list", "Acme")
    assert check_key(commands.records, commands("keys", "create", "Acme", "--expires-in-days", "0").strip()) is None


def test_quotas_are_changed_also_to_0_and_listed_and_others_stay(commands: Commands) -> None:
    commands("tenants", "create", "Acme", "--sandboxes", "3", "--jobs-queued", "0")
    commands("tenants", "change", "Acme", "--usd-per-month", "12.5")
    commands("tenants", "change", "Acme", "--jobs-at-once", "0")
    (listed,) = [json.loads(line) for line in commands("tenants", "list", "--json").splitlines()]
    expected = {"usd_per_month": 12.5, "sandboxes": 3, "jobs_queued": 0, "jobs_at_once": 0}
    assert listed["quotas"].items() >= expected.items()
    assert "12.5" in commands("tenants", "list")


def test_secrets_stay_readable_while_both_kinds_of_keys_are_replaced(commands: Commands, tmp_path: Path) -> None:
    tenant = str(commands.created("tenants", "create", "Acme")["id"])
    path = tmp_path / "master"
    path.write_text(f"{KEY}\n")
    path.chmod(0o600)
    commands.environment["GEPA_SERVICE_MASTER_KEY_FILE"] = str(path)
    old, new = (Vault(commands.records, parse_keys(each.encode(), "test")) for each in (KEY, NEW))
    old.verify()
    old.put(tenant, "MODEL_KEY", "value")
    assert "1 secrets" in commands("secrets", "rotate")
    assert "1 secrets" in commands("secrets", "rotate", "Acme")
    path.write_text(f"{NEW}\n")
    assert "nothing was changed" in commands("secrets", "rotate", "--master", status=2).lower()
    path.write_text(f"{NEW}\n{KEY}\n")
    assert "1 tenants" in commands("secrets", "rotate", "--master")
    assert revealed(new, tenant).variables["MODEL_KEY"] == "value"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("keys", "create", "absent"), "no tenant"),
        (("keys", "revoke", "Acme", "absent"), "no key"),
        (("tenants", "change", "Acme"), "at least one quota"),
        (("tenants", "create", ""), "characters"),
        (("secrets", "rotate"), "set one of"),
        (("secrets", "rotate", "Acme", "--master"), "leave TENANT out"),
        (("dispatcher", "--engine", "ray://"), "give local, modal, auto, or ray://HOST:PORT"),
        (("dispatcher", "--engine", "modal", "--sandbox", "process"), "leave --sandbox out"),
        (("dispatcher", "--engine", "modal", "--api", "http://127.0.0.1:8600"), "an API on loopback"),
        (("api", "--allow-network", "everything"), "--allow-network"),
        (("api", "--oidc", "http://issuer audience"), "--oidc"),
        (("tenants", "list", "--database", "absent.db"), "there is no database absent.db"),
        (("tenants", "list", "--database", "postgres://user:secret@host"), "postgres"),
    ],
)
def test_a_wrong_command_is_refused_with_what_to_do(
    commands: Commands, arguments: tuple[str, ...], message: str
) -> None:
    commands.records.insert(Tenant(tenant=TENANTS, id="tenant_1", name="Acme"))
    printed = commands(*arguments, status=2)
    assert message in printed
    assert "secret@" not in printed


def test_a_store_of_runs_that_is_missing_or_of_another_database_is_refused(commands: Commands, tmp_path: Path) -> None:
    own, other, mistyped = (str(tmp_path / name) for name in ("own.db", "other.db", "mistyped.db"))
    for store in (own, other):
        open_store(store).close()
    commands("tenants", "create", "Acme")
    assert "nothing was deleted" in commands("tenants", "delete", "Acme", "--journals", own, status=2)
    for command in (("tenants", "delete", "Acme", "--yes"), ("backup", "create", mistyped), ("dispatcher",), ("api",)):
        for store, words in ((other, "are not used together"), (mistyped, "there is no store of runs")):
            assert words in commands(*command, "--journals", store, status=2), command
        assert not Path(mistyped).exists()
    assert "are not used together" in commands("dispatcher", "--database", mistyped, "--journals", own, status=2)


def test_a_name_of_two_tenants_needs_the_id(commands: Commands) -> None:
    for number in "12":
        commands.records.insert(Tenant(tenant=TENANTS, id=f"tenant_{number}", name="Acme"))
    assert "give an id" in commands("keys", "create", "Acme", status=2)
    assert commands("keys", "create", "tenant_2").startswith("grk_")


def test_a_database_that_is_away_ends_the_command_with_3(commands: Commands) -> None:
    commands.environment["GEPA_SERVICE_DATABASE"] = "mongodb://user:secret@127.0.0.1:1/x"
    printed = commands("tenants", "list", status=3)
    assert "secret" not in printed
