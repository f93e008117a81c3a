"""Queries over a recorded run: the server, the rows, each candidate's result on each row."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from gepa_client.journal.entries import EVALUATE, SEARCH, START, STOP, CandidateRecord, Entry, Row
from gepa_client.journal.records import PAGE
from gepa_client.journal.requests import digest_of, evaluate_key
from gepa_client.journal.store import Store

DISCOVERY, TRAIN, VAL = 0, 1, 2
LAST = 4
"""Entries that are looked at from the end: a stop may be the very last, more of them are not."""

Results = dict[tuple[int, int], dict[str, Any]]
"""The recorded `ExampleResult` by candidate index and GEPA's row id."""


@dataclass(frozen=True)
class RecordedRow:
    """A validation row. `row_id`: GEPA's; `example`: as it went over the wire; `data`: None where it was not shown."""

    row_id: int
    example: dict[str, Any]
    data: Any

    @property
    def id(self) -> str:
        """The row's own id: its place in its file, or its name on the server."""
        return str(self.example["id"])


def discovery(store: Store, run_id: str) -> dict[str, Any] | None:
    """Return what the server declared when the run started (`DiscoverResult` as JSON); None before the first start."""
    declared = _start(store, run_id).get(DISCOVERY)
    return declared if isinstance(declared, dict) else None


def row_counts(store: Store, run_id: str) -> dict[str, int]:
    """Return how many rows the run has of `train`, `val` and `test`; splits without rows are absent."""
    start = _start(store, run_id)
    return {
        name: len(start[number])
        for number, name in enumerate(("train", "val", "test"), start=TRAIN)
        if isinstance(start.get(number), list)
    }


def validation_rows(store: Store, run_id: str) -> list[RecordedRow]:
    """Return the rows that candidates are selected by, in order; empty before the run has fetched them."""
    splits = selection_rows(store, run_id)
    return splits.get("val", splits["train"]) if splits else []


def selection_rows(store: Store, run_id: str) -> dict[str, list[RecordedRow]]:
    """Return the rows of `train` and, if the run has its own, of `val`; empty before the run has fetched them."""
    start = _start(store, run_id)
    train, val = start.get(TRAIN), start.get(VAL)
    if train is None or VAL not in start:
        return {}
    named = {"train": (train, 0)} | ({"val": (val, len(train))} if val is not None else {})
    return {  # ids as `gepa_client.run.splits` gives them
        name: [_row(first + position, row) for position, row in enumerate(rows)]
        for name, (rows, first) in named.items()
    }


def results(store: Store, run_id: str, candidates: Sequence[CandidateRecord], rows: Sequence[RecordedRow]) -> Results:
    """Return each candidate's recorded result on each row; pairs without one are absent.

    A row may have been run with a candidate more than once. The result meant is the one that gave the score GEPA kept;
    without such a score, the last before the candidate entered the pool. Traced results count only without others.
    """
    wanted = _requests(candidates, rows)
    by_index = {kept.index: kept for kept in candidates}
    found: dict[tuple[int, int], tuple[tuple[bool, bool, bool, int], dict[str, Any]]] = {}
    for entry in entries(store, run_id, SEARCH):
        asked = wanted.get(entry.digest)
        if asked is None or entry.kind != EVALUATE:
            continue
        index, row_id, trace = asked
        kept, answer = by_index[index], orjson.loads(entry.answer)
        early = entry.number < kept.number
        gave = _gave(answer, kept.scores.get(str(row_id)))
        rank = (gave, early, not trace, entry.number if early else -entry.number)
        before = found.get((index, row_id))
        if before is None or rank > before[0]:
            found[index, row_id] = (rank, answer)
    result = {place: answer for place, (_, answer) in found.items()}
    return result | _of_the_same_texts(candidates, rows, result)


def entries(store: Store, run_id: str, part: str, start: int = 0) -> Iterator[Entry]:
    """Every entry of a part from `start` on, fetched page by page."""
    while page := store.entries(run_id, part, start, PAGE):
        yield from page
        start = page[-1].number + 1


def all_rows(store: Store, run_id: str) -> Iterator[Row]:
    """Yield all rows of a run, as `Store.create` accepts them: attempts, entries by part, candidates."""
    yield from store.attempt_rows(run_id)
    for part in store.parts(run_id):
        yield from entries(store, run_id, part)
    yield from store.candidates(run_id)


def end_of(store: Store, run_id: str, part: str) -> int:
    """Return the number after the last entry of a part: where a run resumes, and the most a fork can start with.

    Numbers have holes, so this may be more than there are entries; what stopped the run is not counted.
    """
    start = store.parts(run_id).get(part, 0)  # the last entry has at least the number before it
    while start > 0:
        start = max(0, start - LAST)
        numbers = [entry.number for entry in entries(store, run_id, part, start) if entry.kind != STOP]
        if numbers:
            return numbers[-1] + 1
    return 0


def _requests(candidates: Sequence[CandidateRecord], rows: Sequence[RecordedRow]) -> dict[str, tuple[int, int, bool]]:
    """Candidate index, row and whether it was traced, by the digest of the request."""
    wanted: dict[str, tuple[int, int, bool]] = {}
    examples = [(row, digest_of(row.example)) for row in rows]
    for kept in candidates:
        texts = digest_of(kept.texts)
        for row, example in examples:
            for trace in (True, False):
                digest = evaluate_key(texts, example, row.id, trace).digest
                wanted.setdefault(digest, (kept.index, row.row_id, trace))
    return wanted


def _gave(answer: dict[str, Any], score: float | None) -> bool:
    """Whether this answer may be the one behind a recorded score: a failure has none of its own."""
    given = answer.get("score")
    return score is not None and (given is None or given == score)


def _of_the_same_texts(candidates: Iterable[CandidateRecord], rows: Sequence[RecordedRow], known: Results) -> Results:
    """Return the results of candidates with the same texts as another one: their requests are the same."""
    first: dict[tuple[tuple[str, str], ...], int] = {}
    more: Results = {}
    for kept in candidates:
        index = first.setdefault(tuple(sorted(kept.texts.items())), kept.index)
        if index != kept.index:
            more |= {(kept.index, row.row_id): known[index, row.row_id] for row in rows if (index, row.row_id) in known}
    return more


def _start(store: Store, run_id: str) -> dict[int, Any]:
    return {entry.number: orjson.loads(entry.answer) for entry in entries(store, run_id, START)}


def _row(row_id: int, row: dict[str, Any]) -> RecordedRow:
    if "split" in row:
        return RecordedRow(row_id, {"id": row["id"], "split": row["split"]}, row.get("data"))
    return RecordedRow(row_id, {"id": row["id"], "data": row["data"]}, row["data"])
