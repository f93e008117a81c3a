"""Records in MongoDB: responses that are lost, and a record that is too large.

A server that is killed and started again is tested with the store of runs.
"""

import pytest
from pymongo.collection import Collection
from pymongo.errors import AutoReconnect

from gepa_service.records import RecordChanged, RecordError, RecordExists, RecordStore
from tests.gepa_service.records.conftest import Open
from tests.gepa_service.records.sample import Sample, sample

pytestmark = pytest.mark.parametrize("url", ["mongo"], indirect=True)


class LostResponses:
    """Lets one call of a method of collections arrive, and loses its response."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.left = 1
        original = getattr(Collection, method)

        def losing(*given: object, **options: object) -> object:
            result = original(*given, **options)
            if self.left:
                self.left -= 1
                raise AutoReconnect("connection lost")
            return result

        monkeypatch.setattr(Collection, method, losing)


def test_writes_whose_response_is_lost_are_repeated_and_recognized(
    records: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sample("s1")
    with monkeypatch.context() as patched:
        LostResponses(patched, "insert_one")
        records.insert(made)
    with monkeypatch.context() as patched:
        LostResponses(patched, "update_one")
        written = records.replace(made.model_copy(update={"number": 1}))
    assert records.get(Sample, "acme", "s1") == written
    assert written.version == 1
    with monkeypatch.context() as patched:
        LostResponses(patched, "delete_many")
        records.remove(Sample, "acme", id_="s1")
    assert records.get(Sample, "acme", "s1") is None


def test_another_writers_record_is_not_mistaken_for_a_repeated_write(
    records: RecordStore, another: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = sample("s1"), another()
    other.insert(made)
    with monkeypatch.context() as patched:
        LostResponses(patched, "find")
        with pytest.raises(RecordExists):
            records.insert(made)
    other.replace(made.model_copy(update={"number": 9}))
    with monkeypatch.context() as patched:
        LostResponses(patched, "update_one")
        with pytest.raises(RecordChanged):
            records.replace(made.model_copy(update={"number": 1}))


def test_a_record_that_is_larger_than_a_document_is_refused_clearly(records: RecordStore) -> None:
    with pytest.raises(RecordError, match="cannot be stored"):
        records.insert(sample("s1", detail={"long": "x" * (17 << 20)}))
