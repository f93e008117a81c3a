"""Why the best candidate is better, and where its texts are from, as the page gets it."""

from collections.abc import Mapping

from gepa_client.analysis.explanation import Change, Explanation, explain
from gepa_client.journal.entries import CandidateRecord
from gepa_client.journal.store import Store
from gepa_client.page.page_answers import (
    ChangedText,
    ChangeShown,
    Explained,
    MarkedWords,
    Origin,
    ProposalShown,
    Provenance,
    ProvenanceSpan,
    RowCompared,
    RowGroup,
)
from gepa_client.page.proposal_answers import proposal, row_compared
from gepa_client.page.provenance import spans_of
from gepa_client.page.shown_text import NotThere, candidate_of
from gepa_client.report import summary_fields as fields


def explanation(store: Store, run_id: str) -> Explained:
    """Return why the best candidate of a run is better than the seed."""
    found = explain(store, store.run(run_id))
    if found is None:
        raise NotThere("the seed has not been scored")
    return explained(found)


def explained(found: Explanation) -> Explained:
    """Return an explanation as the page gets it."""
    return Explained(
        best=found.best,
        overall=None if found.overall is None or len(found.steps) < 2 else _change(found.overall),
        steps=[_change(step) for step in found.steps],
        steps_omitted=found.steps_omitted,
    )


def _change(change: Change) -> ChangeShown:
    return ChangeShown(
        candidate=change.candidate,
        title=fields.step_title(change),
        origin=fields.step_origin(change),
        moved=fields.moved_rows(change.scores),
        texts=[
            ChangedText(
                component=text_.component, words=[MarkedWords(kind=part.kind, text=part.text) for part in text_.words]
            )
            for text_ in change.texts
        ],
        proposal=change.reason.number if change.reason is not None else None,
        groups=[
            RowGroup(name=name, count=moved.count, rows=[row_compared(row) for row in moved.rows])
            for name, moved in fields.row_groups(change)
            if moved.count
        ],
    )


def provenance(
    store: Store,
    run_id: str,
    candidate: int,
    proposals: Mapping[int, tuple[int, int]],
    known: Mapping[int, ProposalShown] | None = None,
) -> Provenance:
    """Return where the texts of a candidate are from.

    `proposals`: where the proposal that became a candidate begins, and where that was decided, by the index.
    `known`: proposals that need not be read, by where they begin.
    """
    candidate_of(store, run_id, candidate)
    candidates = store.candidates(run_id)
    components = {
        name: [
            ProvenanceSpan(text=part, candidate=index, proposal=proposals[index][0] if index in proposals else None)
            for part, index in spans
        ]
        for name, spans in spans_of(candidates, candidate).items()
    }
    used = sorted({span.candidate for spans in components.values() for span in spans})
    origins = [_origin(store, run_id, candidates[index], proposals, known or {}) for index in used]
    return Provenance(components=components, origins=origins)


def _origin(
    store: Store,
    run_id: str,
    kept: CandidateRecord,
    proposals: Mapping[int, tuple[int, int]],
    known: Mapping[int, ProposalShown],
) -> Origin:
    number, decided = proposals.get(kept.index, (None, None))
    made = None
    if number is not None:
        made = known.get(number) or proposal(store, run_id, number, decided)
    rows = [row.row for row in made.rows if _improved(row)] if made is not None else []
    worth: str | None = None
    if kept.parents:
        parent = max((candidate_of(store, run_id, each) for each in kept.parents), key=lambda each: each.score)
        worth = f"score {parent.score:.4g} -> {kept.score:.4g}"
    return Origin(candidate=kept.index, proposal=number, rows=rows, worth=worth)


def _improved(row: RowCompared) -> bool:
    """Whether the parent failed on a row of the minibatch, or the proposal scored more."""
    before = row.before.score if row.before is not None else None
    after = row.after.score if row.after is not None else None
    return before is None or (after is not None and after > before)
