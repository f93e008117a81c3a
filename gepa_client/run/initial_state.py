"""The initial state of a run, recorded so that it resumes without its files and servers; and its servers compared."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from gepa_client.certificate.sealed_test import Commitment, commitment_of, record_commitment, recorded_commitment
from gepa_client.fleet.seed_comparison import NO_VERDICT, Results, SeedComparison
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.rows import EXACT_VALUES, AnyRow, Row, ServerRow, load_rows, numbered, rows_to_compare
from gepa_client.journal.entries import COMPARE, EVALUATE, SEARCH, START
from gepa_client.journal.history import entries
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import RecordedRequest, RequestKey, digest_of, request_key
from gepa_client.journal.store import Store
from gepa_client.run import splits as rows_of
from gepa_client.run.resolved_settings import is_deterministic
from gepa_client.run.splits import Splits
from gepa_client.run.strategies import sampled_rows
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.run_settings import RECORDED_ROWS, Rows, is_file
from gepa_client.transport.calls import AttemptLog, Call
from protocol import Candidate, DatasetInfo, DiscoverResult


@dataclass(frozen=True)
class InitialState:
    """What GEPA starts from.

    `seed_candidate`: as recorded. `data`: per split what identifies its rows, for the fingerprint. `missing`: files
    that are gone. `commitment`: to the test rows, None without any.
    """

    discovery: DiscoverResult
    seed_candidate: Candidate
    splits: Splits
    data: dict[str, Any]
    missing: list[str]
    commitment: Commitment | None


def recorded_initial_state(journal: Journal) -> InitialState | None:
    """Return the recorded state; None if nothing is recorded yet."""
    slots = _slots(journal.stream(START))
    if not all(slot.recorded for slot in slots):
        return None
    return _from_record([slot.answer for slot in slots], {}, recorded_commitment(journal))


def record_initial_state(journal: Journal, config: RunConfig, adapter: RemoteAdapter) -> InitialState:
    """Fetch the rows that the settings name, and record them with the server's description."""
    discovery = adapter.discovery
    exact = EXACT_VALUES in discovery.capabilities
    exact = exact and (adapter.scorers is None or adapter.scorers.offers(EXACT_VALUES))
    held = _sizes(discovery.datasets)
    splits = adapter.wait_for(rows_of.read(config, held, adapter.list_server_rows, exact=exact)).splits
    val = None if splits.val is splits.train else splits.val
    wire = [
        None if loader is None else [_written(row) for row in loader.rows]
        for loader in (splits.train, val, splits.test)
    ]
    commitment = None
    if splits.test is not None:
        sealed = orjson.loads(journal.secrets.written(wire[-1]))  # as a replay sees them, secrets replaced
        commitment = commitment_of(sealed, _declared(rows_of.sources(config, held)["test"], discovery.datasets))
        record_commitment(journal, commitment)  # before the rows: a start with rows has one
    line = journal.stream(START)
    slots = _slots(line)
    answers = [discovery.model_dump(mode="json", exclude_none=True), *wire]
    fresh = [(slot, answer) for slot, answer in zip(slots, answers, strict=True) if not slot.recorded]
    written = iter(line.record(*fresh))
    line.settle()
    seen = [slot.answer if slot.recorded else next(written) for slot in slots]  # as a replay sees it, secrets replaced
    data = _data(config, discovery.datasets, splits.kept, lambda name, _source: _digest_of_split(splits, name))
    recorded = _from_record(seen, data, commitment)
    return replace(recorded, discovery=discovery, splits=replace(recorded.splits, kept=splits.kept))


def resume_initial_state(
    config: RunConfig, adapter: RemoteAdapter, before: InitialState, recorded_data: Mapping[str, Any]
) -> InitialState:
    """Return the recorded rows with the server's present description and the identity of the rows named now."""
    missing: list[str] = []
    was, named = before.splits, rows_of.sources(config, _sizes(adapter.discovery.datasets))
    kept = rows_of.kept_fraction(config, named, 0 if was.val is was.train else len(was.train) + len(was.val))

    taken = {*(["val"] if kept else []), *(["test"] if config.test_fraction else [])}

    def digest(name: str, source: Rows) -> str:
        if isinstance(source, str) and (source == RECORDED_ROWS or not Path(source).exists()):
            missing.extend([] if source == RECORDED_ROWS else [source])
            recorded = recorded_data.get(name)
            return recorded if isinstance(recorded, str) else _digest_of_split(was, name)
        rows = load_rows(source) if isinstance(source, str) else numbered(source)
        if name == "train" or name in taken:
            rows = getattr(rows_of.divide(config, named, rows), name)
        return _digest(rows)

    data = _data(config, adapter.discovery.datasets, kept, digest)
    return replace(before, discovery=adapter.discovery, data=data, missing=missing)


def _from_record(answers: Sequence[Any], data: dict[str, Any], commitment: Commitment | None) -> InitialState:
    discovery = DiscoverResult.model_validate(answers[0])
    train, val, test = (_rows(answer) for answer in answers[1:])
    if train is None:
        raise ValueError("a run has training rows")
    loaders = rows_of.loaders(train, val, test)
    return InitialState(discovery, dict(discovery.program.seed_candidate), loaders, data, [], commitment)


def _declared(source: Rows | None, held: Mapping[str, DatasetInfo]) -> str | None:
    """Return the digest that the server declares of rows, if it holds them."""
    return held[source].digest if isinstance(source, str) and not is_file(source) and source in held else None


def _slots(line: Journal) -> list[RecordedRequest]:
    # The texts are part of the requests' digests: other ones would not match the journals of earlier runs.
    about = ["what the server says of itself", *(f"{name} rows" for name in ("train", "val", "test"))]
    return line.ask([request_key("begin", words) for words in about])


def _data(
    config: RunConfig, held: Mapping[str, DatasetInfo], kept: float, file_digest: Callable[[str, Rows], str]
) -> dict[str, Any]:
    """Return what identifies the rows of each split; `kept`: the share of the training rows that validates."""
    sources = rows_of.sources(config, _sizes(held))
    if kept:
        sources["val"] = sources["train"]
    if config.test_fraction:
        sources["test"] = sources["train"]
    data = {
        name: _declared(source, held) or file_digest(name, source)
        for name, source in sources.items()
        if source is not None
    }
    shares = {"val_fraction": kept, "test_fraction": config.test_fraction}
    return data | {name: share for name, share in shares.items() if share}


def _sizes(held: Mapping[str, DatasetInfo]) -> dict[str, int]:
    return {name: info.size for name, info in held.items()}


def _digest_of_split(splits: Splits, name: str) -> str:
    loader = {"train": splits.train, "val": splits.val, "test": splits.test}[name]
    return _digest(loader.rows if loader is not None else [])


def _digest(rows: Sequence[AnyRow]) -> str:
    return digest_of([row.digest for row in rows])


def _written(row: AnyRow) -> dict[str, Any]:
    return row.wire if isinstance(row, Row) else {**row.wire, "data": row.data}


def _rows(written: Any) -> list[AnyRow] | None:
    if written is None:
        return None
    return [
        ServerRow(row["id"], row["split"], row.get("data"))
        if "split" in row
        else Row(row["id"], row["data"], row.get("untyped", False))
        for row in written
    ]


def seed_comparison(
    store: Store, journal: Journal, config: RunConfig, adapter: RemoteAdapter, initial: InitialState
) -> SeedComparison:
    """Return the comparison of the run's servers by rows that the search scores the seed on.

    Its attempts are part of what the run cost; nothing else is recorded of it, and no replay asks for it.
    """
    val, ids = initial.splits.val, sampled_rows(config, initial.splits).all_ids()
    rows = rows_to_compare([val.rows[row_id - val.first_id] for row_id in ids])
    together = initial.discovery.limits.whole_batches
    limit = initial.discovery.limits.max_batch_size
    parts = [rows[:limit]] if together else [[row] for row in rows]
    seed = initial.seed_candidate
    made = store.attempts(journal.run_id, COMPARE)
    numbers = itertools.count(max((attempt.number + 1 for attempt in made), default=0))
    stream = journal.stream(COMPARE)

    def log(call: Call[Results]) -> AttemptLog:
        key = RequestKey(COMPARE, "", f"compare servers by {call.about}")
        return stream.attempts(RecordedRequest(next(numbers), key), COMPARE)

    def known() -> dict[int, Results]:
        """Return the results that the search has of single rows; those of a batch may depend on all of its rows."""
        if together:
            return {}
        candidate, wanted = digest_of(seed), {row.digest: at for at, row in enumerate(rows)}
        found: dict[int, Results] = {}
        for entry in itertools.islice(entries(store, journal.run_id, SEARCH), 2 * len(ids)):
            at = wanted.get(entry.row)
            if entry.kind == EVALUATE and entry.candidate == candidate and at is not None:
                result = orjson.loads(entry.answer)
                if result["status"] not in NO_VERDICT:
                    found.setdefault(at, [result])
        return found

    return SeedComparison(
        [adapter.evaluator.evaluation(seed, part) for part in parts],
        log,
        is_exact=lambda joining: all(is_deterministic(config, each) for each in (initial.discovery, joining)),
        known=lambda: asyncio.to_thread(known),
        recorded=lambda results: orjson.loads(journal.secrets.written(results)),
        width=config.concurrency,
    )
