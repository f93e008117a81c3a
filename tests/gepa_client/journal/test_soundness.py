"""Entries that were altered or lost in a store are found, and what is sound below them is reported."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from pymongo import MongoClient

from gepa_client.errors import StoreDamaged
from gepa_client.journal.entries import SEARCH
from gepa_client.journal.soundness import check_sound, damage
from gepa_client.journal.store import Store
from tests.gepa_client.journal.conftest import DATABASES
from tests.gepa_client.journal.sample_runs import DRIVER, OWNER, RUN, driven, entry


@pytest.fixture
def written(store: Store) -> Store:
    """A run of two drivers, its entries out of order, with a stop that was deleted and one that is there."""
    driven(store)
    store.write(RUN.id, OWNER, [entry(number, part="start") for number in range(4)])
    store.write(RUN.id, OWNER, [entry(number) for number in (3, 1, 0, 2)])
    store.write(RUN.id, OWNER, [entry(4, kind="stop")])
    store.drop(RUN.id, SEARCH, "stop")
    store.release(RUN.id, OWNER)
    assert store.claim(RUN.id, store.run(RUN.id).claim, "second", DRIVER)
    store.write(RUN.id, "second", [entry(number, b'"%d"' % number) for number in range(4, 300)])
    store.write(RUN.id, "second", [entry(300, b'"' + b"long " * 9000 + b'"'), entry(310, kind="stop")])
    return store


def change(url: str, sql: str, documents: Callable[[Any], object]) -> None:
    if "://" in url:
        with MongoClient[dict[str, object]](url) as client:
            documents(client.get_default_database()["entries"])
    else:
        with closing(sqlite3.connect(url)) as connection:
            connection.execute(sql)
            connection.commit()


def test_a_journal_as_it_was_written_is_sound(written: Store) -> None:
    assert damage(written, RUN.id) is None
    check_sound(written, RUN.id)


@pytest.mark.parametrize("store_url", DATABASES, indirect=True)
def test_an_altered_answer_is_found_with_all_that_is_sound_below_it(written: Store, store_url: str) -> None:
    change(
        store_url,
        "UPDATE entries SET answer = CAST('\"40.\"' AS BLOB) WHERE part = 'search' AND number IN (40, 77)",
        lambda entries: entries.update_many(
            {"part": "search", "number": {"$in": [40, 77]}}, {"$set": {"answer": b'"4."'}}
        ),
    )
    found = damage(written, RUN.id)
    assert found is not None
    assert (found.altered, found.lost, found.usable, found.entries) == ([("search", 40), ("search", 77)], 0, 40, 306)
    with pytest.raises(StoreDamaged, match=f"304 of its 306 entries are sound.*evolverpc fork {RUN.id} --at 40"):
        check_sound(written, RUN.id)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("changed", ["owner = 'else'", "seq = 0", "seq = NULL", "kind = 'score'"])
def test_an_entry_of_another_writer_place_or_kind_is_found(written: Store, store_url: str, changed: str) -> None:
    change(store_url, f"UPDATE entries SET {changed} WHERE part = 'search' AND number = 50", lambda _: None)  # noqa: S608
    found = damage(written, RUN.id)
    assert found is not None
    assert (found.altered, found.lost, found.usable) == ([("search", 50)], 0, 50)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("changed", ["answer = X'22'", "size = 'x'"])
def test_numbers_that_no_entry_has_are_no_loss_beside_an_altered_entry(
    written: Store, store_url: str, changed: str
) -> None:
    written.write(RUN.id, "second", [entry(number) for number in range(320, 330)])  # after entries that were in flight
    change(store_url, f"UPDATE entries SET {changed} WHERE part = 'search' AND number = 325", lambda _: None)  # noqa: S608
    found = damage(written, RUN.id)
    if changed.startswith("answer"):
        assert found is not None
        assert (found.altered, found.lost, found.usable) == ([("search", 325)], 0, 325)
    else:
        assert found is None


@pytest.mark.parametrize("store_url", DATABASES, indirect=True)
@pytest.mark.parametrize(("last", "lost"), [(260, 11), (310, 51)])
def test_lost_entries_are_found_even_at_the_end(written: Store, store_url: str, last: int, lost: int) -> None:
    change(
        store_url,
        f"DELETE FROM entries WHERE part = 'search' AND number BETWEEN 250 AND {last}",  # noqa: S608
        lambda entries: entries.delete_many({"part": "search", "number": {"$gte": 250, "$lte": last}}),
    )
    found = damage(written, RUN.id)
    assert found is not None
    assert (found.altered, found.lost, found.usable) == ([], lost, 250)
