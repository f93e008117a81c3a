"""What a page loads when it is asked for: cells, texts, proposals, the explanation of a run; the list of all runs.

The page's own server and the service answer the same requests, `RUN/NAME?QUERY`, with the forms of `page_answers`.
"""

import re
from collections.abc import Mapping

from evolverpc_common.display_text import money
from gepa_client.analysis.explanation import explain
from gepa_client.errors import JournalError
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.history import seed_score
from gepa_client.journal.store import Store
from gepa_client.page.cell_reader import CellReader
from gepa_client.page.page_answers import RunList, RunListed
from gepa_client.page.page_fact import NotThere, text_part
from gepa_client.page.proposal_answers import proposal

DETAILS = ("cell", "text", "proposal", "explanation")


class BadQuery(Exception):
    """A query has no whole number where one is needed."""


class RunDetails:
    """Reads the details of one run; what it has read to find results serves later requests."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._id = store, run_id
        self._cells: CellReader | None = None

    def read(self, name: str, query: Mapping[str, str]) -> object:
        """Return the detail of this name, one of the forms of `page_answers`.

        Raises:
            BadQuery: a number is missing, or is none. NotThere: the run has no such thing. JournalError: as the store.
        """
        store, run_id = self._store, self._id
        match name:
            case "cell":
                candidate, row, part = _number(query, "candidate"), _number(query, "row"), query.get("part")
                start = _number(query, "from", 0)
                cells = self._cells = self._cells or CellReader(store, run_id)
                return cells.cell(candidate, row) if part is None else cells.part(candidate, row, part, start)
            case "text":
                candidate, start = _number(query, "candidate"), _number(query, "from", 0)
                return text_part(store, run_id, candidate, query.get("component", ""), start)
            case "proposal":
                return proposal(store, run_id, _number(query, "at"), all_rows=query.get("rows") == "all")
            case _:
                until = _number(query, "until") if "until" in query else None
                if (found := explain(store, store.run(run_id), until)) is None:
                    raise NotThere("the seed has not been scored")
                return found


def _number(query: Mapping[str, str], name: str, default: int | None = None) -> int:
    given = query.get(name)
    if given is None and default is not None:
        return default
    if given is None or re.fullmatch(r"\d{1,15}", given) is None:
        raise BadQuery(f"{name} is a whole number")
    return int(given)


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
