"""The runs of a store with their curves, as the page compares them."""

from evolverpc_common.display_text import money
from gepa_client.errors import JournalError
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.history import seed_score
from gepa_client.journal.store import Store
from gepa_client.page.page_answers import RunList, RunListed

RUNS_LISTED = 200


def runs(store: Store) -> RunList:
    """Return the last runs of the store."""
    return RunList(runs=[_listed(store, run) for run in store.runs()[:RUNS_LISTED]])


def _listed(store: Store, run: StoredRun) -> RunListed:
    try:
        candidates, seed = store.candidates(run.id), seed_score(store, run)
    except JournalError:  # deleted meanwhile, or damaged; the other runs are listed
        candidates, seed = [], None
    best: list[tuple[int, float]] = []
    for kept in candidates:
        if not best or kept.score > best[-1][1]:
            best.append((kept.metric_calls, kept.score))
    calls = run.counters.get("metric_calls")
    if best and calls is not None and calls > best[-1][0]:
        best.append((calls, best[-1][1]))
    return RunListed(
        run_id=run.id,
        name=run.name,
        status=run.status,
        program=run.program,
        created=run.created,
        seed_score=seed,
        best_score=(run.best or {}).get("score"),
        candidates=len(candidates),
        metric_calls=calls,
        cost=money(
            run.counters.get("spent_usd") or 0.0,
            *(sum((run.counters.get(name) or {}).values()) for name in ("unpriced", "unreported")),
        ),
        curve=best,
        settings=run.config,
    )
