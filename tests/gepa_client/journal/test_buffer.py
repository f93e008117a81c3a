"""Rows share commits, and a store that fails stops the run before GEPA sees what is not recorded."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from gepa_client.errors import Interrupted, StoreUnavailable
from gepa_client.journal import stored_fields
from gepa_client.journal.buffer import JournalBuffer
from gepa_client.journal.entries import SEARCH
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import PAGE_BYTES
from gepa_client.transport.event_loop import CancelToken
from tests.gepa_client.journal.sample_runs import DRIVER, OWNER, RUN, entry
from tests.gepa_client.journal.stored_journals import watched

LONG_S = 5.0


def taped(store: Store, cancel_token: CancelToken, owner: str = OWNER) -> JournalBuffer:
    assert store.claim(RUN.id, store.run(RUN.id).claim, owner, DRIVER)
    return JournalBuffer(store, RUN.id, owner, cancel_token.cancel)


def test_a_store_that_fails_pauses_the_run_and_nothing_more_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel_token = CancelToken()
    awaited: list[Future[None]] = []

    def full(*_: object) -> None:
        awaited.append(buffer.written())
        raise StoreUnavailable("the disk is full")

    with watched(tmp_path) as store:
        buffer = taped(store, cancel_token)
        monkeypatch.setattr(store, "write", full)
        buffer.write(entry(0))
        awaited.append(buffer.written())
        for future in awaited:  # `full` adds one
            with pytest.raises(Interrupted, match="the disk is full") as caught:
                future.result(LONG_S)
            assert caught.value.status == "paused"
        assert cancel_token.reason is not None
        assert cancel_token.reason.status == "paused"
        with pytest.raises(Interrupted):
            buffer.write(entry(1))
        buffer.close()
        assert store.entries(RUN.id, SEARCH) == []


def test_the_second_drivers_write_fences_out_the_first(tmp_path: Path) -> None:
    with watched(tmp_path) as store:
        cancel_token = CancelToken()
        first = taped(store, cancel_token)
        first.write(entry(0))
        first.written().result(LONG_S)
        second = taped(store, CancelToken(), owner="owner-2")
        second.write(entry(1))
        second.written().result(LONG_S)
        first.write(entry(1))
        with pytest.raises(Interrupted, match="another process drives this run now") as caught:
            first.written().result(LONG_S)
        first.close()
        second.close()
        assert caught.value.status == "paused"
        assert cancel_token.reason is not None
        assert len(store.entries(RUN.id, SEARCH)) == 2


@pytest.mark.parametrize("page_bytes", [PAGE_BYTES, 1])
def test_a_gap_in_the_record_is_a_request_without_an_answer_also_if_pages_end_by_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_bytes: int
) -> None:
    monkeypatch.setattr(stored_fields, "PAGE_BYTES", page_bytes)
    with watched(tmp_path) as store:
        buffer = taped(store, CancelToken())
        buffer.write(entry(0), entry(2))
        buffer.close()
        store.release(RUN.id, OWNER)
        again = taped(store, CancelToken())
        assert [again.read(SEARCH, number) is not None for number in range(4)] == [True, False, True, False]
        assert [again.has_more(SEARCH, number) for number in (2, 3)] == [True, False]
        again.close()
