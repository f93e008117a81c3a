"""The examples of a recorded run that were tried again after an `infra_error`, by host and reason."""

from collections import defaultdict

from gepa_client.journal.entries import RETRY
from gepa_client.journal.history import entries
from gepa_client.journal.retries import RetryEntry
from gepa_client.journal.run_events import RetriedExamples, RetryGroup
from gepa_client.journal.store import Store


def retried_examples(store: Store, run_id: str) -> RetriedExamples | None:
    """Return how many examples were tried again, over every process of the run; None if none was."""
    found: dict[tuple[str | None, str], set[tuple[str, int, int]]] = defaultdict(set)
    for entry in entries(store, run_id, RETRY):
        retried = RetryEntry.model_validate_json(entry.answer)
        for each in retried.failed:
            found[each.host, each.reason].add((retried.part, retried.number, each.at))
    if not found:
        return None
    groups = [RetryGroup(host=host, reason=reason, examples=len(each)) for (host, reason), each in found.items()]
    return RetriedExamples(
        examples=len(set().union(*found.values())),
        groups=sorted(groups, key=lambda group: (-group.examples, group.host or "", group.reason)),
    )
