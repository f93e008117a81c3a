"""What a run came to, in the sentences, facts and tables that the Markdown report has too."""

from collections.abc import Sequence

from evolverpc_common.display_text import line
from gepa_client.analysis.explanation import Explanation
from gepa_client.analysis.proposals import Excerpt
from gepa_client.page.ending_events import FailedStep, StatedFact, Summary, SummaryTable
from gepa_client.page.page_fact import TEXT_SENT
from gepa_client.report import summary_fields as fields
from gepa_client.report.no_improvement import no_improvement, unused_iterations
from gepa_client.report.proposed_texts import COPY_COLUMNS, UNUSABLE_COLUMNS, copied_table, unusable_rows
from gepa_client.report.run_record import RunRecord

FAILED_STEPS = 20
"""Failed iterations that are listed, the first ones."""


def summary_of(record: RunRecord, explained: Explanation | None) -> Summary:
    """Return the summary; `explained`: None if the run holds no candidate."""
    facts = fields.summary_facts(record)
    if record.finalized is not None:
        answer = record.finalized.error or record.finalized.message or "no message"
        facts.append(("finalize failed" if record.finalized.error else "finalize", line(answer)))
    if (unused := unused_iterations(record)) is not None:
        facts.append(("unused", unused))
    tables = (
        ("Records cut for reflection", fields.CUT_COLUMNS, fields.cut_rows(record)),
        ("Answers that were not used", UNUSABLE_COLUMNS, unusable_rows(record)),
        ("Copied from training rows", COPY_COLUMNS, copied_table(record)),
        ("Model calls", fields.MODEL_CALL_COLUMNS, fields.model_call_rows(record)),
        ("Hosts that sandboxes connected to", fields.HOST_COLUMNS, fields.host_rows(record)),
        ("Refused", ("request", "reason"), [(event.what, fields.refusal_text(event)) for event in record.refusals]),
    )
    return Summary(
        story=fields.story(record, explained),
        certificate=_stated(fields.certificate_facts(record)),
        no_improvement=_stated(no_improvement(record)),
        facts=_stated(facts),
        settings=fields.changed_settings(record.started.config) if record.started is not None else {},
        tables=[
            SummaryTable(heading=heading, columns=list(columns), rows=[list(row) for row in rows])
            for heading, columns, rows in tables
            if rows
        ],
        failed_steps=[
            FailedStep(
                iteration=failure.iteration,
                step=failure.step,
                text=_beginning(f"{failure.message}\n{failure.details or ''}".rstrip()),
            )
            for failure in record.failures[:FAILED_STEPS]
        ],
    )


def _stated(facts: Sequence[tuple[str, str]]) -> list[StatedFact]:
    return [StatedFact(label=label, text=text) for label, text in facts]


def _beginning(text: str) -> Excerpt:
    return Excerpt(text=text[:TEXT_SENT], omitted=max(0, len(text) - TEXT_SENT))
