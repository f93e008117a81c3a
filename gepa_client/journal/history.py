"""Queries over a recorded run: the server, the rows and which are equal, each candidate's result on each row."""

import bisect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from gepa_client.journal.entries import EVALUATE, EVENTS, SEARCH, START, STOP, CandidateRecord, Entry, Row, StoredRun
from gepa_client.journal.requests import digest_of, evaluate_key
from gepa_client.journal.run_events import Event, from_fields
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import PAGE

DISCOVERY, TRAIN, VAL, TEST = 0, 1, 2, 3
LAST = 4
"""Entries that are looked at from the end: a stop may be the very last, more of them are not."""

T = TypeVar("T")
Results = dict[tuple[int, int], T]
"""What is kept of the recorded `ExampleResult` by candidate index and GEPA's row id."""


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


Place = tuple[CandidateRecord, RecordedRow]
"""A candidate on a row."""


def discovery(store: Store, run_id: str) -> dict[str, Any] | None:
    """Return what the server declared when the run started (`DiscoverResult` as JSON); None before the first start."""
    declared = _start(store, run_id).get(DISCOVERY)
    return declared if isinstance(declared, dict) else None


def seed_score(store: Store, run: StoredRun) -> float | None:
    """Return the seed's score over the rows that give `run.best` its score; None before it is known.

    These are the rows of the search, and those on which both were compared after it if they were.
    """
    known = run.counters.get("seed_score")
    if isinstance(known, int | float):  # the counters of a damaged record may hold anything
        return known
    candidates = store.candidates(run.id)
    return candidates[0].score if candidates else None


def row_counts(store: Store, run_id: str) -> dict[str, int]:
    """Return how many rows the run has of `train`, `val` and `test`; splits without rows are absent.

    If the training rows are the validation rows too, `val` has their number.
    """
    start = _start(store, run_id)
    val = start.get(TRAIN) if VAL in start and start[VAL] is None else start.get(VAL)
    found = {"train": start.get(TRAIN), "val": val, "test": start.get(TEST)}
    return {name: len(rows) for name, rows in found.items() if isinstance(rows, list)}


def validation_rows(store: Store, run_id: str) -> list[RecordedRow]:
    """Return the rows that candidates are selected by, in order; empty before the run has fetched them."""
    splits = selection_rows(store, run_id)
    return splits.get("val", splits["train"]) if splits else []


def selection_name(*, training_only: bool) -> str:
    """Return how rows are called that select the candidates: `validation`, or `training` in a run without these."""
    return "training" if training_only else "validation"


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


def sealed_rows(store: Store, run_id: str) -> list[RecordedRow]:
    """Return the rows of `test`, in order; empty if the run has none."""
    return [_row(position, row) for position, row in enumerate(_start(store, run_id).get(TEST) or [])]


def row_names(store: Store, run_id: str) -> dict[str, str]:
    """Return the split and the id of each row, as in `val 7`, by the digest of the row; of equal rows the first."""
    found: dict[str, str] = {}
    for split, rows in {**selection_rows(store, run_id), "test": sealed_rows(store, run_id)}.items():
        for row in rows:
            found.setdefault(digest_of(row.example), f"{split} {row.id}")
    return found


def score_of(result: Mapping[str, Any], failure_score: float) -> float:
    """Return the score that GEPA gets for an `ExampleResult`; `failure_score`: that of examples that failed."""
    return float(result["score"]) if result.get("status") == "ok" else failure_score


def results(
    store: Store,
    run_id: str,
    places: Iterable[Place],
    keep: Callable[[int, dict[str, Any]], T],
    numbers: Mapping[str, Sequence[int]] | None = None,
) -> Results[T]:
    """Return what `keep` makes of the number and content of each candidate's result on a row; pairs without are absent.

    A row may have been run with a candidate more than once. The result meant is the one that gave the score GEPA kept;
    without such a score, the last before the candidate entered the pool. Traced results count only without others.

    `numbers`: as of `evaluation_numbers`, if they are known.
    """
    requests, known = _requests(places), numbers if numbers is not None else evaluation_numbers(store, run_id)
    wanted = (number for digest in requests for number in known.get(digest, ()))
    return _meant(requests, entries_at(store, run_id, SEARCH, wanted), keep)


def entries(
    store: Store, run_id: str, part: str, start: int = 0, until: int | None = None, *, largest: int | None = None
) -> Iterator[Entry]:
    """Every entry of a part from `start` on, and before `until`, page by page; `largest`: as of `Store.entries`."""
    limit = PAGE
    while True:
        if until is not None:
            limit = min(PAGE, until - start)  # numbers grow by at least one
        page = store.entries(run_id, part, start, limit, largest=largest) if limit > 0 else []
        if not page:
            return
        for entry in page:
            if until is not None and entry.number >= until:
                return
            yield entry
        start = page[-1].number + 1


def entries_at(store: Store, run_id: str, part: str, numbers: Iterable[int]) -> Iterator[Entry]:
    """Yield the entries of a part that have one of these numbers, in order, fetched page by page."""
    left = sorted(set(numbers))
    while left:
        page = store.entries_at(run_id, part, left[:PAGE])
        yield from page
        left = left[bisect.bisect_right(left, page[-1].number) if page else PAGE :]


def event_of(entry: Entry) -> Event:
    """Return the event that an entry of the events, or of the processes, holds."""
    return from_fields(entry.kind, orjson.loads(entry.answer))


def recorded_events(store: Store, run_id: str, until: int | None = None) -> Iterator[Event]:
    """Yield what GEPA decided in a run, in order; `until`: by this place in the journal."""
    for entry in entries(store, run_id, EVENTS):
        event = event_of(entry)
        if until is None or (event.at or 0) <= until:
            yield event


def evaluation_numbers(store: Store, run_id: str, until: int | None = None) -> dict[str, list[int]]:
    """Return the numbers of the entries of evaluations, by the digest of their request; `until`: before this one."""
    found: dict[str, list[int]] = {}
    for entry in entries(store, run_id, SEARCH, 0, until, largest=0):
        if entry.kind == EVALUATE:
            found.setdefault(entry.digest, []).append(entry.number)
    return found


def all_rows(store: Store, run_id: str) -> Iterator[Row]:
    """Yield all rows of a run, as `Store.create` accepts them: attempts, entries by part."""
    yield from store.all_attempts(run_id)
    for part in store.parts(run_id):
        yield from entries(store, run_id, part)


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


_Requests = dict[str, list[tuple[CandidateRecord, int, bool]]]
"""Candidate, GEPA's row id and whether it was traced, by the digest of the request; candidates may have equal texts."""


def _requests(places: Iterable[Place]) -> _Requests:
    texts: dict[int, str] = {}
    examples: dict[int, str] = {}
    wanted: _Requests = {}
    for kept, row in places:
        candidate = texts.get(kept.index) or texts.setdefault(kept.index, digest_of(kept.texts))
        example = examples.get(row.row_id) or examples.setdefault(row.row_id, digest_of(row.example))
        for trace in (True, False):
            digest = evaluate_key(candidate, example, row.id, trace).digest
            wanted.setdefault(digest, []).append((kept, row.row_id, trace))
    return wanted


def _meant(wanted: _Requests, recorded: Iterable[Entry], keep: Callable[[int, dict[str, Any]], T]) -> Results[T]:
    """Return, of the results of each request, the one that `results` describes."""
    found: dict[tuple[int, int], tuple[tuple[bool, bool, bool, int], T]] = {}
    for entry in recorded:
        if entry.kind != EVALUATE or entry.digest not in wanted:
            continue
        answer = orjson.loads(entry.answer)
        for kept, row_id, trace in wanted[entry.digest]:
            early = entry.number < kept.number
            gave = _gave(answer, kept.scores.get(str(row_id)))
            rank = (gave, early, not trace, entry.number if early else -entry.number)
            before = found.get((kept.index, row_id))
            if before is None or rank > before[0]:
                found[kept.index, row_id] = (rank, keep(entry.number, answer))
    return {place: kept for place, (_, kept) in found.items()}


def _gave(answer: dict[str, Any], score: float | None) -> bool:
    """Whether this answer may be the one behind a recorded score: a failure has none of its own."""
    given = answer.get("score")
    return score is not None and (given is None or given == score)


def _start(store: Store, run_id: str) -> dict[int, Any]:
    return {entry.number: orjson.loads(entry.answer) for entry in entries(store, run_id, START)}


def _row(row_id: int, row: dict[str, Any]) -> RecordedRow:
    if "split" in row:
        return RecordedRow(row_id, {"id": row["id"], "split": row["split"]}, row.get("data"))
    return RecordedRow(row_id, row, row["data"])


def content_key(wire: Mapping[str, Any], data: Any) -> str:
    """Return a text that two rows share if they are equal.

    `wire`: the row as it goes over the wire. `data`: None if it is not known: such a row of the server is equal to
    itself alone.
    """
    if data is None and "split" in wire:
        return f"{wire['split']}/{wire['id']}"
    return json.dumps(_without_white_space(data), sort_keys=True)


def _without_white_space(value: Any) -> Any:
    """Return the value with one space for each white space within its texts, and none at their ends."""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, dict):
        return {name: _without_white_space(part) for name, part in value.items()}
    return [_without_white_space(part) for part in value] if isinstance(value, list | tuple) else value


def by_unit(rows: Sequence[RecordedRow], scores: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the scores by unit; `scores`: by row, then by repeat.

    The order is that of digests of the rows' contents: neither their scores nor their file decide about it.
    """
    units: dict[str, list[float]] = {}
    for row, of_row in zip(rows, scores, strict=True):
        units.setdefault(content_key(row.example, row.data), []).extend(of_row)
    return [units[key] for key in sorted(units, key=digest_of)]


def shared_rows(splits: Mapping[str, Sequence[RecordedRow]]) -> dict[str, int]:
    """Return how many test rows are equal to rows of each other split."""
    known = {split: {content_key(row.example, row.data) for row in rows} for split, rows in splits.items()}
    test = [content_key(row.example, row.data) for row in splits["test"]]
    return {split: sum(key in keys for key in test) for split, keys in known.items() if split != "test"}
