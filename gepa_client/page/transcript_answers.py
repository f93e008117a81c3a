"""A change of code with its request, its outcome and its diff, as the page gets it."""

from gepa_client.journal.entries import MUTATION, SEARCH, Entry
from gepa_client.journal.mutation_entries import MutationEntry
from gepa_client.journal.store import Store
from gepa_client.page.page_answers import Transcript, TranscriptEntry
from gepa_client.page.page_fact import sent_text
from gepa_client.page.shown_text import NotThere, part_of


def transcript(store: Store, run_id: str, at: int) -> Transcript:
    """Return the change of code that was requested at this number."""
    found = [entry for entry in store.entries_at(run_id, SEARCH, [at]) if entry.kind == MUTATION]
    if not found:
        raise NotThere(f"no change of code was requested at {at}")
    return _transcript(found[0])


def _transcript(entry: Entry) -> Transcript:
    found = MutationEntry.model_validate_json(entry.answer)
    parts = [TranscriptEntry(role="change request", text=sent_text(found.request))]
    diff: str | None = None
    if found.applied is not None:
        parts.append(TranscriptEntry(role="summary", text=sent_text(found.applied.summary)))
        diff = found.applied.diff
    if found.rejected is not None:
        parts.append(TranscriptEntry(role=f"rejected at {found.rejected.stage}", text=sent_text(found.rejected.reason)))
        if found.rejected.log_tail:
            parts.append(TranscriptEntry(role="log", text=sent_text(found.rejected.log_tail)))
        diff = found.rejected.diff
    return Transcript(entries=parts, diff=None if diff is None else part_of(diff))
