"""The event of a change of code, from its entry in the journal."""

from typing import Any

from gepa_client.evolution.text_diffs import totals
from gepa_client.journal.answer_entries import MutationEntry
from gepa_client.journal.run_events import Mutated, MutationRejected
from protocol.code import branch_of


def mutation_event(number: int, entry: MutationEntry, parents: list[int]) -> Mutated | MutationRejected:
    """Return the event of a recorded mutation. `number`: of its entry; `parents`: indices of candidates."""
    head: dict[str, Any] = {"number": number, "kind": entry.kind, "parents": parents, "request": entry.request}
    if (applied := entry.applied) is not None:
        added, removed = totals(applied.diff)
        return Mutated(
            **head,
            branch=branch_of(applied.candidate) or "",
            commit=applied.commit,
            files=applied.files,
            lines_added=added,
            lines_removed=removed,
            summary=applied.summary,
            cost_usd=applied.usage.cost_usd if applied.usage is not None else None,
        )
    assert entry.rejected is not None, "one of both is set"  # noqa: S101
    refused = entry.rejected
    return MutationRejected(
        **head,
        stage=refused.stage,
        reason=refused.reason,
        cost_usd=refused.usage.cost_usd if refused.usage is not None else None,
    )
