"""Stores hold answers far beyond a document's limit, and long runs without getting slow."""

import base64
import os
import time
from collections.abc import Callable

import pytest

from gepa_client.journal.entries import SEARCH, Entry, Row
from gepa_client.journal.history import all_rows, entries_at
from gepa_client.journal.store import Store
from tests.gepa_client.journal.sample_runs import OWNER, RUN, driven, ended, entry, sent

GROUP = 256
MANY = 24 * GROUP
ROUNDS = 7
SHORT = "20260101-120000-efgh-short"


@pytest.mark.parametrize(
    "store_url", ["mongo", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("sqlite", "http"))], indirect=True
)
def test_an_answer_beyond_the_limit_of_a_document_comes_back(store: Store, another: Callable[[], Store]) -> None:
    driven(store)
    huge = base64.b64encode(os.urandom(18_000_000))  # compressed, still longer than a document
    rows: list[Row] = [
        sent(0),
        ended(0),
        entry(0, b"1"),
        entry(1, huge, kind="stop"),
        entry(2, huge[:2_000_000]),
        entry(3, b"3"),
    ]
    store.write(RUN.id, OWNER, rows)
    store.write(RUN.id, OWNER, rows)
    answers = [row.answer for row in all_rows(another(), RUN.id) if isinstance(row, Entry)]
    assert answers == [b"1", huge, huge[:2_000_000], b"3"]
    left_out = [(found.answer, found.omitted > 1_000_000) for found in store.entries(RUN.id, SEARCH, largest=1000)]
    assert left_out == [(b"1", False), (b"", True), (b"", True), (b"3", False)]
    assert [found.number for found in store.entries_at(RUN.id, SEARCH, range(5))] == [0, 1]  # a page ends there
    assert [found.number for found in entries_at(store, RUN.id, SEARCH, range(5))] == [0, 1, 2, 3]
    store.drop(RUN.id, SEARCH, "stop")
    assert [found.number for found in store.entries(RUN.id, SEARCH)] == [0, 2, 3]


@pytest.mark.long
def test_the_time_to_write_and_to_read_entries_does_not_grow_with_the_run(store: Store) -> None:
    driven(store)
    driven(store, SHORT)
    for start in range(0, MANY, GROUP):
        store.write(RUN.id, OWNER, rows(start))
    ratios: dict[str, list[float]] = {"write": [], "read": []}
    for start in range(0, ROUNDS * GROUP, GROUP):  # in turn, so that a busy machine slows both down
        long = seconds(lambda at=MANY + start: store.write(RUN.id, OWNER, rows(at)))
        short = seconds(lambda at=start: store.write(SHORT, OWNER, rows(at)))
        ratios["write"].append(long / short)
        long = seconds(lambda: store.entries(RUN.id, SEARCH, MANY))
        short = seconds(lambda: store.entries(SHORT, SEARCH, 0))
        ratios["read"].append(long / short)
    assert min(ratios["write"]) < 3, ratios
    assert min(ratios["read"]) < 3, ratios


def rows(start: int) -> list[Row]:
    """A group of finished evaluations, from this number."""
    numbers = range(start, start + GROUP)
    made: list[Row] = [sent(number) for number in numbers]
    made += [ended(number) for number in numbers]
    made += [entry(number, b'{"outputs":"%s"}' % os.urandom(150).hex().encode()) for number in numbers]
    return made


def seconds(work: Callable[[], object]) -> float:
    """How long this took."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
