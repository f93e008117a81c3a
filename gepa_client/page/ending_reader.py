"""Read what is known once a run has ended for now: its certificate and its summary."""

from collections.abc import Sequence

from evolverpc_common.display_text import one_line
from gepa_client.analysis.explanation import Explanation, explain
from gepa_client.certificate.certificate import certify
from gepa_client.errors import NoCertificate
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import OVER
from gepa_client.page.moment_events import StatedFact, Summary, SummaryTable
from gepa_client.report import summary_fields as fields
from gepa_client.report.no_improvement import no_improvement
from gepa_client.run.recorded_run import view_of
from gepa_client.run.run_view import RunView


def ending(store: Store, run: StoredRun) -> Summary | None:
    """Return what a run came to; None if it has not evaluated an example."""
    if run.status == "pending" or run.identity is None:
        return None
    view = view_of(store, run)
    if run.status in OVER and view.sealed is not None:
        try:
            view.certificate = certify(store, run)
        except NoCertificate as error:
            view.no_certificate = str(error)
    return summary_of(view, explain(store, run))


def summary_of(view: RunView, explained: Explanation | None) -> Summary:
    """Return the summary; `explained`: None if the run holds no candidate."""
    facts = fields.summary_facts(view)
    if view.finalized is not None:
        answer = view.finalized.error or view.finalized.message or "no message"
        facts.append(("finalize failed" if view.finalized.error else "finalize", one_line(answer)))
    headline = view.headline()
    validation = view.certificate.validation if view.certificate is not None else None
    return Summary(
        best=view.best.index if view.best is not None else None,
        test=headline if headline is not None and headline.of_test else None,
        compared=view.whole_validation(),
        low=validation.low if validation is not None else None,
        high=validation.high if validation is not None else None,
        story=fields.story(view, explained),
        certificate=_stated(fields.certificate_facts(view)),
        no_improvement=_stated(no_improvement(view)),
        facts=_stated(facts),
        tables=[
            SummaryTable(heading=heading, columns=list(columns), rows=[list(row) for row in rows])
            for heading, columns, rows in fields.tables(view)
        ],
    )


def _stated(facts: Sequence[tuple[str, str]]) -> list[StatedFact]:
    return [StatedFact(label=label, text=text) for label, text in facts]
