"""Secrets at rest: nothing readable, nothing movable, and no key changed at the cost of a secret."""

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gepa_service.jobs.tenant_secrets import revealed
from gepa_service.model.tenant import TENANTS, Secret, Tenant
from gepa_service.records import RecordStore, stored
from gepa_service.secrets.envelope import DataKey, SecretDamaged, key_of, master_of, new_data_key, wrap
from gepa_service.secrets.master_key import MasterKey, MasterKeyError
from gepa_service.secrets.vault import Vault

MASTER = MasterKey(b"m" * 32)
OTHER = MasterKey(b"o" * 32)
VALUE = "sk-\u00e9-very-secret"


@pytest.fixture
def vault(records: RecordStore) -> Vault:
    """The secrets of two tenants, acme and beta."""
    for name in ("acme", "beta"):
        records.insert(Tenant(tenant=TENANTS, id=name, name=name))
    return Vault(records, [MASTER])


def values(vault: Vault, tenant: str = "acme") -> dict[str, str]:
    return dict(revealed(vault, tenant).variables)


def test_a_secret_is_revealed_as_it_was_put_with_its_headers(vault: Vault) -> None:
    headers = ({"host": "api.example.org", "header": "authorization", "prefix": "Bearer "},)
    vault.put("acme", "MODEL_KEY", "first")
    vault.put("acme", "MODEL_KEY", VALUE, headers)
    vault.put("acme", "EMPTY", "")
    assert values(vault) == {"EMPTY": "", "MODEL_KEY": VALUE}
    assert revealed(vault, "acme").headers == ("api.example.org authorization=Bearer MODEL_KEY",)
    assert values(vault, "beta") == {}
    assert values(vault, "absent") == {}


def test_neither_a_value_nor_a_key_is_in_the_database_file_or_in_a_representation(vault: Vault, tmp_path: Path) -> None:
    vault.put("acme", "MODEL_KEY", VALUE)
    key = vault.keys(vault.records.get(Tenant, TENANTS, "acme"))
    shown = repr((vault, key, revealed(vault, "acme"))).encode()
    data = b"".join(path.read_bytes() for path in tmp_path.iterdir()) + shown
    for hidden in (VALUE.encode(), b"very-secret", MASTER.value, next(iter(key.values())).value):
        assert hidden not in data


def test_a_secret_that_is_moved_to_another_name_or_tenant_cannot_be_read(vault: Vault) -> None:
    vault.put("acme", "MODEL_KEY", VALUE)
    found = vault.records.get(Secret, "acme", "MODEL_KEY")
    vault.records.insert(found.model_copy(update={"id": "MOVED", "version": 0}))
    with pytest.raises(SecretDamaged):
        revealed(vault, "acme")
    vault.delete("acme", "MOVED")
    acme, beta = (vault.records.get(Tenant, TENANTS, name) for name in ("acme", "beta"))
    vault.records.replace(beta.model_copy(update={"wrapped_key": acme.wrapped_key}))
    vault.records.insert(found.model_copy(update={"tenant": "beta", "version": 0}))
    with pytest.raises(SecretDamaged):
        revealed(vault, "beta")


@pytest.mark.parametrize("position", [0, 21, 49])
def test_a_changed_ciphertext_is_noticed(vault: Vault, position: int) -> None:
    vault.put("acme", "MODEL_KEY", VALUE)
    found = vault.records.get(Secret, "acme", "MODEL_KEY")
    at = found.sealed.index(".") + 1 + position
    changed = found.sealed[:at] + ("A" if found.sealed[at] != "A" else "B") + found.sealed[at + 1 :]
    vault.records.replace(found.model_copy(update={"sealed": changed}))
    with pytest.raises(SecretDamaged):
        revealed(vault, "acme")


def test_a_wrong_master_key_is_a_clear_error_and_damages_nothing(vault: Vault) -> None:
    vault.put("acme", "MODEL_KEY", VALUE)
    before = vault.records.get(Tenant, TENANTS, "acme"), vault.records.get(Secret, "acme", "MODEL_KEY")
    wrong = Vault(vault.records, [OTHER])
    attempts = (
        wrong.verify,
        lambda: wrong.put("acme", "MODEL_KEY", "x"),
        lambda: wrong.put("beta", "FIRST", "x"),
        lambda: revealed(wrong, "acme"),
        lambda: wrong.rotate_tenant_key("acme"),
        wrong.rotate_master_key,
    )
    for attempt in attempts:
        with pytest.raises(MasterKeyError, match=f"master key {MASTER.name}"):
            attempt()
    assert (vault.records.get(Tenant, TENANTS, "acme"), vault.records.get(Secret, "acme", "MODEL_KEY")) == before
    assert vault.records.get(Tenant, TENANTS, "beta").wrapped_key is None


def test_a_new_tenant_key_encrypts_all_secrets_again(vault: Vault) -> None:
    for name in "ABC":
        vault.put("acme", name, VALUE + name)
    before = {name: vault.records.get(Secret, "acme", name).sealed for name in "ABC"}
    assert vault.rotate_tenant_key("acme") == 3
    after = {name: vault.records.get(Secret, "acme", name).sealed for name in "ABC"}
    assert {key_of(each) for each in after.values()}.isdisjoint({key_of(each) for each in before.values()})
    assert values(vault) == {name: VALUE + name for name in "ABC"}
    for _ in range(3):
        vault.rotate_tenant_key("acme")
    assert len(vault.records.get(Tenant, TENANTS, "acme").wrapped_key.split()) == 2
    assert values(vault) == {name: VALUE + name for name in "ABC"}


class Crash(Exception):
    """The process ends here."""


def crashing(vault: Vault, writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the writes after the first so many fail."""
    left = itertools.count()
    replace = vault.records.replace

    def counted(record: Secret) -> Secret:
        if next(left) >= writes:
            raise Crash
        return replace(record)

    monkeypatch.setattr(vault.records, "replace", counted)


@pytest.mark.parametrize("writes", [0, 1, 3])
def test_a_change_of_keys_that_is_cut_off_anywhere_loses_nothing_and_can_be_repeated(
    vault: Vault, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ABC":
        vault.put("acme", name, name)
    vault.put("beta", "D", "d")
    both = Vault(vault.records, [OTHER, MASTER])
    for change in (lambda: both.rotate_tenant_key("acme"), both.rotate_master_key):
        with monkeypatch.context() as patched:
            crashing(vault, writes, patched)
            with contextlib.suppress(Crash):
                change()
        assert (values(both), values(both, "beta")) == ({name: name for name in "ABC"}, {"D": "d"})
        both.put("acme", "A", "A")
        change()
        assert (values(both), values(both, "beta")) == ({name: name for name in "ABC"}, {"D": "d"})
    assert values(Vault(vault.records, [OTHER])) == {name: name for name in "ABC"}, "the old one is not needed"
    masters = [master_of(each) for each in vault.records.get(Tenant, TENANTS, "acme").wrapped_key.split()]
    assert set(masters) == {OTHER.name}


def test_a_key_that_no_listed_master_key_encrypted_is_reported_after_all_others_are_done(vault: Vault) -> None:
    vault.put("beta", "B", "b")
    acme, absent = vault.records.get(Tenant, TENANTS, "acme"), MasterKey(b"a" * 32)
    vault.records.replace(acme.model_copy(update={"wrapped_key": wrap(new_data_key(), "acme", absent)}))
    with pytest.raises(MasterKeyError, match=f"master key {absent.name}"):
        Vault(vault.records, [OTHER, MASTER]).rotate_master_key()
    assert values(Vault(vault.records, [OTHER]), "beta") == {"B": "b"}
    vault.verify()
    assert Vault(vault.records, [OTHER, MASTER, absent]).rotate_master_key() == 1


def test_a_secret_that_is_put_while_the_tenants_key_changes_twice_can_be_read(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(records: RecordStore, made: Any, over: Callable[[Any], Any]) -> Any:
        if not isinstance(made, Secret):
            return stored(records, made, over)
        monkeypatch.setattr("gepa_service.secrets.vault.stored", stored)
        vault.rotate_tenant_key("acme")
        stored(records, made, over)
        assert values(vault) == {made.id: "b"}, "the key before is kept for a secret that is written at the same time"
        vault.delete("acme", made.id)
        vault.put("acme", "A", "a")
        vault.rotate_tenant_key("acme")
        return stored(records, made, over)

    monkeypatch.setattr("gepa_service.secrets.vault.stored", late)
    vault.put("acme", "B", "b")
    assert values(vault) == {"A": "a", "B": "b"}


def test_secrets_are_revealed_while_the_tenants_key_changes(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    vault.put("acme", "A", "a")
    vault.put("acme", "B", "b")
    keys = Vault.keys

    def then_changed(self: Vault, tenant: Tenant) -> dict[str, DataKey]:
        monkeypatch.setattr(Vault, "keys", keys)
        found = keys(self, tenant)
        vault.rotate_tenant_key("acme")
        vault.rotate_tenant_key("acme")
        return found

    page = vault.records.page

    def one_a_page(*given: Any, **options: Any) -> list[Any]:
        return page(*given, **{**options, "limit": 1})

    monkeypatch.setattr(vault.records, "page", one_a_page)
    monkeypatch.setattr(Vault, "keys", then_changed)
    assert values(vault) == {"A": "a", "B": "b"}
