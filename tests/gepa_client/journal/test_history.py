"""Which of several recorded results of one candidate on one row is meant."""

import itertools
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from gepa_client.journal.entries import SEARCH, START, CandidateRecord, Entry
from gepa_client.journal.history import entries, results, validation_rows
from gepa_client.journal.requests import digest_of, evaluate_key
from gepa_client.journal.store import open_store
from tests.gepa_client.stored_run import RUN_ID, Made

TEXTS = {"rules": "a"}
ROW = {"id": "0", "data": {"need": "a"}}


def evaluated(number: int, score: float | None, *, trace: bool = False, kind: str = "evaluate") -> Entry:
    answer: dict[str, Any] = {"status": "ok", "score": score, "output": f"output {number}", "seconds": 0.1}
    if score is None:
        answer["status"] = "timeout"
    return Entry(
        SEARCH,
        number,
        kind,
        evaluate_key(digest_of(TEXTS), digest_of(ROW), str(ROW["id"]), trace).digest,
        "",
        orjson.dumps(answer),
    )


@pytest.mark.parametrize(
    ("entries", "meant"),
    [
        ([evaluated(0, 0.5), evaluated(1, 1.0), evaluated(2, 0.5)], "output 1"),  # the one that gave the score
        ([evaluated(0, 1.0), evaluated(1, 1.0), evaluated(9, 1.0)], "output 1"),  # the last before it was kept
        ([evaluated(9, 1.0), evaluated(10, 1.0)], "output 9"),
        ([evaluated(0, 1.0), evaluated(1, 1.0, trace=True)], "output 0"),  # what GEPA scored was not traced
        ([evaluated(0, 1.0, trace=True)], "output 0"),
        ([evaluated(0, 1.0), evaluated(1, 1.0, kind="failure")], "output 0"),
        ([], None),
    ],
)  # fmt: skip
def test_the_result_meant_is_the_one_behind_the_score(tmp_path: Path, entries: list[Entry], meant: str | None) -> None:
    kept = CandidateRecord(0, TEXTS, [], 0, 5, 1.0, {"0": 1.0}, 0)
    rows = [Entry(START, 1, "rows", "t", "", orjson.dumps([ROW])), Entry(START, 2, "rows", "v", "", b"null")]
    twin = CandidateRecord(1, TEXTS, [0], 1, 5, 1.0, {"0": 1.0}, 0)
    with closing(open_store(str(tmp_path / "runs.db"))) as store:
        store.create(Made().run(), [*rows, *entries])
        places = itertools.product([kept, twin], validation_rows(store, RUN_ID))
        found = results(store, RUN_ID, places, lambda _, result: result)
    assert [result["output"] for result in found.values()] == ([meant] * 2 if meant else [])


def test_entries_before_a_number_have_a_lower_one_though_some_are_missing(tmp_path: Path) -> None:
    with closing(open_store(str(tmp_path / "runs.db"))) as store:
        store.create(Made().run(), [evaluated(number, 1.0) for number in (0, 1, 3, 4)])
        assert [entry.number for entry in entries(store, RUN_ID, SEARCH, until=3)] == [0, 1]
