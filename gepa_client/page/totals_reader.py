"""Read what a run spent and which examples failed: totals over the whole run, read anew from time to time."""

import time

from gepa_client.analysis.failed_examples import failed_examples
from gepa_client.journal.entries import SEARCH, Entry
from gepa_client.journal.requests import SHOWN
from gepa_client.journal.run_events import FailureGroup
from gepa_client.journal.store import Store
from gepa_client.page.event_log import EventLog
from gepa_client.page.initial_rows import InitialRows
from gepa_client.page.moment_events import FailureCounts, SpendingSoFar, SummaryTable
from gepa_client.report import summary_fields as fields
from gepa_client.report.event_words import failure_messages, failure_places

SHARE = 0.05
"""The part of the time that reading totals anew may take: they grow with the run."""

LEAST_PAUSE_S = 1.0


class TotalsReader:
    """The totals of one run."""

    def __init__(self, store: Store, run_id: str, log: EventLog, rows: InitialRows) -> None:
        self._store, self._id, self._log, self._rows = store, run_id, log, rows
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
        heading, columns, rows = fields.spending_table(spending)
        heading = f"{heading}: {fields.tokens_text(spending)}"
        table = SummaryTable(heading=heading, columns=[*columns], rows=[[*row] for row in rows])
        self._log.add(SpendingSoFar(cost=fields.whole_cost(spending), table=table))
        outcomes = [(spent.kind, spent.outcome, spent.attempts) for spent in spending if spent.outcome != "ok"]
        if outcomes and (at_once or outcomes != self._outcomes):
            self._outcomes = outcomes
            self._add_failures()
        ended = time.monotonic()
        self._next = ended + max(LEAST_PAUSE_S, (ended - began) / SHARE)
        self._log.published()

    def _add_failures(self) -> None:
        cells: dict[str, list[int]] = {}

        def add(entry: Entry) -> None:
            if entry.part == SEARCH and (place := self._rows.places.get(entry.row)) is not None:
                cells.setdefault(entry.candidate[:SHOWN], []).append(place)

        failed = failed_examples(self._store, self._id, add)
        if failed is not None:
            self.failures = FailureCounts(
                failed=failed.failed,
                evaluated=failed.evaluated,
                groups=failed.groups,
                words=list(map(_words, failed.groups)),
                cells=cells,
            )
            self._log.add(self.failures)


def _words(group: FailureGroup) -> str:
    return "; ".join(filter(None, (failure_places(group), failure_messages(group))))
