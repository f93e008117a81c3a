"""What every store of records promises; what SQLite alone does is tested with the store of runs."""

from pathlib import Path

import pytest

from gepa_service.records import (
    RecordChanged,
    RecordError,
    RecordExists,
    RecordStore,
    RecordsUnavailable,
    TenantRecords,
    changed,
    new_id,
    open_records,
)
from tests.gepa_service.records.conftest import Open
from tests.gepa_service.records.sample import Other, Sample, sample

ODD = "\u00e9 \U0001f600 ' \" % _ $ . / \\ \u2028"


def ids(found: list[Sample]) -> list[str]:
    return [each.id for each in found]


def test_a_record_is_read_as_it_was_written_by_any_process(records: RecordStore, another: Open) -> None:
    made = sample("s1", status=ODD, owner=ODD, number=2**70, detail={"$a.b": [None, 1.5, {"": f"{ODD}\0"}]})
    records.insert(made)
    assert records.get(Sample, "acme", "s1") == made
    assert another().get(Sample, "acme", "s1") == made
    assert records.page(Sample, "acme", {"status": ODD}) == [made]


def test_odd_ids_and_tenants_are_found_and_not_mixed_up(records: RecordStore) -> None:
    for tenant in (ODD, "a", "a/b"):
        for id_ in ("42", "b/c", "c", ODD):
            records.insert(sample(id_, tenant, number=len(tenant)))
    assert records.get(Sample, "a", "b/c").number == 1
    assert records.get(Sample, "a/b", "c").number == 3
    assert records.get(Sample, "a", "42").id == "42"
    assert records.get(Sample, ODD, ODD).tenant == ODD


def test_an_id_is_inserted_once_for_a_tenant_and_kind(records: RecordStore, another: Open) -> None:
    records.insert(sample("s1", number=1))
    with pytest.raises(RecordExists):
        another().insert(sample("s1", number=2))
    records.insert(sample("s1", "beta"))
    records.insert(Other(tenant="acme", id="s1"))
    assert records.get(Sample, "acme", "s1").number == 1


def test_a_write_of_an_older_version_is_refused_and_changes_nothing(records: RecordStore, another: Open) -> None:
    first = sample("s1")
    records.insert(first)
    second = another().replace(first.model_copy(update={"status": "second"}))
    assert (second.version, second.status) == (1, "second")
    assert second.updated > first.updated
    with pytest.raises(RecordChanged):
        records.replace(first.model_copy(update={"status": "lost"}))
    assert records.get(Sample, "acme", "s1") == second
    assert records.count(Sample, "acme", {"status": "lost"}) == 0


def test_a_deleted_record_is_gone_from_every_page_and_cannot_be_written(records: RecordStore) -> None:
    made = sample("s1")
    records.insert(made)
    assert records.remove(Sample, "acme", id_="s1") == 1
    assert records.get(Sample, "acme", "s1") is None
    assert records.page(Sample, "acme", {"status": "new"}) == []
    assert records.tenants_with(Sample) == {}
    with pytest.raises(RecordChanged):
        records.replace(made)
    records.insert(made)
    assert records.page(Sample, "acme", {"status": "new"}) == [made]


def test_pages_follow_each_other_in_the_order_of_ids_both_ways(records: RecordStore) -> None:
    for number in (3, 1, 4, 0, 2):
        records.insert(sample(f"s{number}"))
        records.insert(sample(f"t{number}", "beta"))
    assert ids(records.page(Sample, "acme", limit=2)) == ["s0", "s1"]
    assert ids(records.page(Sample, "acme", after="s1", limit=2)) == ["s2", "s3"]
    assert ids(records.page(Sample, "acme", after="s3", limit=2)) == ["s4"]
    assert ids(records.page(Sample, "acme", newest_first=True, limit=2)) == ["s4", "s3"]
    assert ids(records.page(Sample, "acme", after="s3", newest_first=True)) == ["s2", "s1", "s0"]
    assert ids(records.page(Sample, "acme", after="s1x", limit=1)) == ["s2"]  # an id that is not there
    assert ids(records.page(Sample, None, after="s3", limit=3)) == ["s4", "t0", "t1"]
    assert records.page(Sample, "acme", limit=0) == []
    assert ids(list(records.every(Sample, "acme"))) == [f"s{number}" for number in range(5)]


def test_records_are_selected_by_one_or_more_fields_and_by_lists_of_values(records: RecordStore) -> None:
    records.insert(sample("s1", status="new", owner="ann"))
    records.insert(sample("s2", status="old", owner="ann"))
    records.insert(sample("s3", status="old"))
    records.insert(sample("s4", "beta", status="old", owner="ann"))
    cases = [
        ({"status": "old"}, ["s2", "s3"]),
        ({"status": ["new", "old"]}, ["s1", "s2", "s3"]),
        ({"status": []}, []),
        ({"owner": None}, ["s3"]),
        ({"owner": "ann", "status": "old"}, ["s2"]),
        ({"status": ["old", "new"], "owner": ["ann", "bob"]}, ["s1", "s2"]),
        ({"status": "absent"}, []),
    ]
    for where, expected in cases:
        assert ids(records.page(Sample, "acme", where)) == expected, where
        assert records.count(Sample, "acme", where) == len(expected), where
    assert ids(records.page(Sample, None, {"status": "old"}, newest_first=True, limit=2)) == ["s4", "s3"]
    assert records.tenants_with(Sample, {"status": "old"}) == {"acme": 2, "beta": 1}
    assert records.tenants_with(Sample) == {"acme": 3, "beta": 1}
    assert records.tenants_with(Sample, {"status": "old", "owner": "ann"}) == {"acme": 1, "beta": 1}
    assert records.count(Sample, None) == 4


def test_a_field_that_is_not_indexed_is_refused(records: RecordStore) -> None:
    for ask in (
        lambda: records.page(Sample, "acme", {"number": "1"}),
        lambda: records.count(Sample, "acme", {"detail": None}),
        lambda: records.tenants_with(Other, {"status": "new"}),
    ):
        with pytest.raises(ValueError, match="not indexed"):
            ask()


def test_a_tenants_view_reads_and_writes_no_other_tenants_records(records: RecordStore) -> None:
    acme = TenantRecords(records, "acme")
    foreign = sample("s1", "beta")
    records.insert(foreign)
    assert (acme.get(Sample, "s1"), acme.page(Sample), acme.count(Sample)) == (None, [], 0)
    assert acme.remove(Sample, "s1") == 0
    for write in (acme.insert, acme.replace):
        with pytest.raises(ValueError, match="another tenant"):
            write(foreign)
    with pytest.raises(ValueError, match="another tenant"):
        acme.change(foreign, lambda found: found)
    assert records.get(Sample, "beta", "s1") == foreign


def test_a_change_is_made_on_top_of_what_others_wrote(records: RecordStore, another: Open) -> None:
    made = sample("s1")
    records.insert(made)
    another().replace(made.model_copy(update={"number": 5}))
    after = changed(records, made, lambda found: found.model_copy(update={"number": found.number + 1}))
    assert after.number == 6
    assert changed(records, after, lambda found: found) is after
    records.remove(Sample, "acme", id_="s1")
    with pytest.raises(RecordChanged):
        changed(records, after, lambda found: found.model_copy(update={"number": 0}))


def test_a_closed_store_is_unavailable_and_may_be_closed_again(records: RecordStore) -> None:
    records.insert(sample("s1"))
    records.close()
    records.close()
    with pytest.raises(RecordsUnavailable, match="closed"):
        records.get(Sample, "acme", "s1")


def test_ids_of_one_thread_sort_by_time_also_within_a_millisecond_and_differ() -> None:
    made = [new_id("job") for _ in range(1000)]
    assert len(set(made)) == 1000
    assert made == sorted(made)
    assert {len(each) for each in made} == {len("job_") + 32}


def test_what_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    content = b"no database at all" * 100
    path.write_bytes(content)
    for place in (path, path / "below.db", tmp_path):
        with pytest.raises(RecordError):
            open_records(str(place))
    assert path.read_bytes() == content
