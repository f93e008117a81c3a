"""The examples of a recorded run that were tried again after an `infra_error`, by host and reason."""

from collections import Counter

from gepa_client.journal.entries import RETRY
from gepa_client.journal.history import entries
from gepa_client.journal.retries import RetryEntry
from gepa_client.journal.run_events import RetriedExamples, RetryGroup
from gepa_client.journal.store import Store


def retried_examples(store: Store, run_id: str) -> RetriedExamples | None:
    """Return how many examples were tried again, over every process of the run; None if none was."""
    found: Counter[tuple[str | None, str]] = Counter()
    examples: set[tuple[str, int, int]] = set()
    for entry in entries(store, run_id, RETRY):
        retried = RetryEntry.model_validate_json(entry.answer)
        for each in retried.failed:
            found[each.host, each.reason] += 1
            examples.add((retried.part, retried.number, each.at))
    if not found:
        return None
    groups = [RetryGroup(host=host, reason=reason, failures=times) for (host, reason), times in found.items()]
    return RetriedExamples(
        examples=len(examples),
        groups=sorted(groups, key=lambda group: (-group.failures, group.host or "", group.reason)),
    )
