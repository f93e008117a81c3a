"""API keys: only the right one is accepted, and no longer than it may be."""

from datetime import timedelta

from gepa_service.auth import keys
from gepa_service.model.tenant import TENANTS, ApiKey
from gepa_service.records import RecordStore, now


def stored(records: RecordStore, **options: object) -> tuple[str, ApiKey]:
    key, record = keys.make_key("acme", "ci", "editor", **options)
    records.insert(record)
    return key, record


def test_neither_a_key_nor_its_secret_part_is_stored(records: RecordStore) -> None:
    key, record = stored(records)
    assert key.rpartition("_")[2] not in records.get(ApiKey, TENANTS, record.id).model_dump_json()


def test_a_revocation_holds_at_the_next_request_even_if_the_revoking_clock_is_ahead(records: RecordStore) -> None:
    key, record = stored(records)
    revoked = keys.revoke_key(records, record)
    assert keys.check_key(records, key) is None
    records.replace(revoked.model_copy(update={"revoked": now() + timedelta(hours=1)}))
    assert keys.check_key(records, key) is None


def test_keys_with_one_wrong_character_or_of_another_id_are_refused(records: RecordStore) -> None:
    key, _ = stored(records)
    other, _ = stored(records)
    swapped = other.rpartition("_")[0] + "_" + key.rpartition("_")[2]
    wrong = key[:-1] + ("0" if key[-1] != "0" else "1")
    assert [keys.check_key(records, each) for each in (swapped, wrong)] == [None, None]
