"""Read what a run spent and which examples failed: totals over the whole run, read anew from time to time."""

import time
from collections.abc import Sequence

from evolverpc_common.display_text import money
from gepa_client.analysis.failed_examples import failed_examples
from gepa_client.journal.entries import SEARCH, Entry, Spending
from gepa_client.journal.requests import evaluate_key, evaluated_of
from gepa_client.journal.run_events import FailureGroup
from gepa_client.journal.store import Store
from gepa_client.page.decision_reader import DecisionReader
from gepa_client.page.event_log import EventLog
from gepa_client.page.initial_rows import InitialRows
from gepa_client.page.moment_events import FailureCounts, SpendingSoFar, SummaryTable
from gepa_client.report.event_words import failure_messages, failure_places
from gepa_client.run.gateway_record import recorded_gateway_events

SHARE = 0.05
"""The part of the time that reading totals anew may take: they grow with the run."""

LEAST_PAUSE_S = 1.0

COLUMNS = ("kind", "calls", "examples", "input tokens", "output tokens", "cost", "seconds")
"""Of a table of what was spent."""


class TotalsReader:
    """The totals of one run."""

    def __init__(self, store: Store, run_id: str, log: EventLog, rows: InitialRows, decisions: DecisionReader) -> None:
        self._store, self._id, self._log = store, run_id, log
        self._rows, self._decisions = rows, decisions
        self._next = 0.0
        self._outcomes: object = None
        self.failures: FailureCounts | None = None
        """The last that were read."""

    def read(self, *, at_once: bool = False) -> None:
        """Read the totals if they are due, after a pause that grows with the time that reading them took.

        `at_once`: in any case; what is shown of a run that has ended is whole.
        """
        began = time.monotonic()
        if not at_once and began < self._next:
            return
        spending = self._store.spending(self._id)
        self._add_spending(spending)
        outcomes = [(spent.kind, spent.outcome, spent.attempts) for spent in spending if spent.outcome != "ok"]
        if outcomes and (at_once or outcomes != self._outcomes):
            self._outcomes = outcomes
            self._add_failures()
        ended = time.monotonic()
        self._next = ended + max(LEAST_PAUSE_S, (ended - began) / SHARE)
        self._log.published()

    def _add_spending(self, spending: Sequence[Spending]) -> None:
        kinds: dict[str, list[Spending]] = {}
        for spent in spending:
            kinds.setdefault(spent.kind, []).append(spent)
        rows = [[kind, *_figures(each)] for kind, each in kinds.items()]
        for model, tally in recorded_gateway_events(self._store, self._id)[0].by_model.items():
            failed = f"{tally.failed:,} failed" if tally.failed else ""
            figures = f"{tally.input_tokens:,}", f"{tally.output_tokens:,}", money(tally.cost_usd, tally.unpriced), ""
            rows.append([f"through the gateway: {model}", f"{tally.calls:,}", failed, *figures])
        self._log.add(
            SpendingSoFar(
                cost=_cost(spending),
                table=SummaryTable(heading="What was spent on what, test rows included", columns=[*COLUMNS], rows=rows),
            )
        )

    def _add_failures(self) -> None:
        cells: dict[str, list[int]] = {}
        numbers: list[int] = []

        def add(entry: Entry) -> None:
            if entry.part == SEARCH:
                numbers.append(entry.number)
                self._add_failed_cell(cells, entry)

        failed = failed_examples(self._store, self._id, add)
        if failed is not None:
            self.failures = FailureCounts(
                failed=failed.failed,
                evaluated=failed.evaluated,
                groups=failed.groups,
                words=list(map(_words, failed.groups)),
                cells=cells,
                first=min(numbers, default=None),
            )
            self._log.add(self.failures)

    def _add_failed_cell(self, cells: dict[str, list[int]], entry: Entry) -> None:
        """Add the validation row of a failed example of the search, if it is one."""
        about = evaluated_of(entry.about)
        if about is None:
            return
        digest = self._decisions.digests.get(about.candidate)
        for place in self._rows.places.get(about.quoted_id, ()):
            key = evaluate_key(digest or "", self._rows.digest(place), self._rows.val[place].id, about.traced)
            if digest is None or key.digest == entry.digest:
                cells.setdefault(about.candidate, []).append(place)
                break


def _words(group: FailureGroup) -> str:
    return "; ".join(filter(None, (failure_places(group), failure_messages(group))))


def _cost(spent: Sequence[Spending]) -> str:
    usd, unpriced, unreported = (
        sum(getattr(each, n) for each in spent) for n in ("cost_usd", "unpriced", "unreported")
    )
    return money(usd, unpriced, unreported)


def _figures(spent: Sequence[Spending]) -> list[str]:
    """Return the figures of the attempts of a kind, by their outcomes."""
    names = ("attempts", "examples", "input_tokens", "output_tokens")
    counts = [sum(getattr(each, name) for each in spent) for name in names]
    return [*(f"{n:,}" for n in counts), _cost(spent), f"{sum(each.seconds for each in spent):,.0f}"]
