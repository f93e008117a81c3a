"""Stores hold answers far beyond a document's limit, and long runs without getting slow."""

import os
import time
from collections.abc import Callable
from statistics import median

from gepa_client.journal import Store
from gepa_client.journal.entries import SEARCH, Entry, Row
from gepa_client.journal.history import all_rows
from tests.gepa_client.journal.sample_runs import OWNER, RUN, driven, ended, entry, sent

GROUP = 256
MANY = 24 * GROUP


def test_an_answer_of_forty_megabytes_comes_back(store: Store, another: Callable[[], Store]) -> None:
    driven(store)
    huge = os.urandom(40_000_000)
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
    left_out = [(found.answer, found.omitted) for found in store.entries(RUN.id, SEARCH, largest=1000)]
    assert left_out == [(b"1", 0), (b"", 40_000_000), (b"", 2_000_000), (b"3", 0)]
    store.drop(RUN.id, SEARCH, "stop")
    assert [found.number for found in store.entries(RUN.id, SEARCH)] == [0, 2, 3]


def test_the_time_to_write_and_to_read_entries_does_not_grow_with_the_run(store: Store) -> None:
    driven(store)
    answers = [b'{"outputs":"%s"}' % os.urandom(150).hex().encode() for _ in range(GROUP)]
    writing, reading = [], []
    for start in range(0, MANY, GROUP):
        numbers = range(start, start + GROUP)
        rows: list[Row] = [sent(number) for number in numbers]
        rows += [ended(number) for number in numbers]
        rows += [entry(number, answers[number - start]) for number in numbers]
        begun = time.perf_counter()
        store.write(RUN.id, OWNER, rows)
        writing.append(time.perf_counter() - begun)
    read = 0
    while read < MANY:
        begun = time.perf_counter()
        page = store.entries(RUN.id, SEARCH, read)
        reading.append((time.perf_counter() - begun) / len(page))
        read = page[-1].number + 1
    for times in (writing, reading):
        third = len(times) // 3
        assert median(times[-third:]) < 3 * median(times[:third])
