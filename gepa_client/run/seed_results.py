"""The comparison of a run's servers, with the results that the run has of the seed."""

import asyncio
import itertools

import orjson

from gepa_client.fleet.seed_comparison import NO_VERDICT, Results, SeedComparison
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.rows import rows_to_compare
from gepa_client.journal.entries import COMPARE, EVALUATE, SEARCH
from gepa_client.journal.history import entries
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import RecordedRequest, RequestKey, digest_of
from gepa_client.journal.store import Store
from gepa_client.run.initial_state import InitialState
from gepa_client.run.resolved_settings import is_deterministic
from gepa_client.run.strategies import sampled_rows
from gepa_client.settings.run_config import RunConfig
from gepa_client.transport.calls import AttemptLog, Call


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
