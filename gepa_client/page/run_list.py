"""The list of the runs of a store, with their figures in words and a curve of each."""

from typing import Any

from pydantic import JsonValue

from evolverpc_common.display_text import money
from gepa_client.errors import JournalError
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.history import seed_score
from gepa_client.journal.store import Store
from gepa_client.page.page_events import Part

RUNS_LISTED = 200


class RunListed(Part):
    """A run. `figures`: in words, by column. `curve`: metric calls, and the best score from there to the last one."""

    run_id: str
    name: str | None
    program: str | None
    created: str
    figures: dict[str, str]
    curve: list[list[float]]
    settings: dict[str, JsonValue]


class RunList(Part):
    """All runs of the store, the newest first."""

    runs: list[RunListed]


def runs(store: Store) -> RunList:
    """Return the last runs of the store."""
    return RunList(runs=[_listed(store, run) for run in store.runs()[:RUNS_LISTED]])


def _listed(store: Store, run: StoredRun) -> RunListed:
    try:
        candidates, seed = store.candidates(run.id), seed_score(store, run)
    except JournalError:  # deleted meanwhile, or damaged; the other runs are listed
        candidates, seed = [], None
    counters = run.counters
    best: list[list[float]] = []
    for kept in candidates:
        if not best or kept.score > best[-1][1]:
            best.append([kept.metric_calls, kept.score])
    calls = counters.get("metric_calls")
    if best and isinstance(calls, int) and calls > best[-1][0]:
        best.append([calls, best[-1][1]])
    return RunListed(
        run_id=run.id,
        name=run.name,
        program=run.program,
        created=run.created,
        figures={
            "status": run.status,
            "program": run.program or "",
            "seed": _figure(seed),
            "best": _figure((run.best or {}).get("score")),
            "candidates": _figure(len(candidates)),
            "metric calls": _figure(calls),
            "cost": money(
                counters.get("spent_usd") or 0.0,
                *(sum((counters.get(name) or {}).values()) for name in ("unpriced", "unreported")),
            ),
        },
        curve=best,
        settings=run.config,
    )


def _figure(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else "none"
