"""The examples of a recorded run that failed in the program, by type, and those that were tried again, by host."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from gepa_client.journal.entries import EVALUATE, ROLLOUT, SEARCH, Entry
from gepa_client.journal.history import entries, row_names
from gepa_client.journal.requests import SHOWN, digest_of
from gepa_client.journal.run_events import FailedExamples, FailureGroup, RetriedExamples, RetryGroup
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import PAGE

FAILED = ("program_error", "timeout")
ANSWERED = ("ok", ROLLOUT, *FAILED)
"""Outcomes of attempts that gave every example a result."""

ROWS_LISTED = 200
"""Rows that a group lists; it counts all of them."""

MESSAGES_LISTED, MESSAGES_COUNTED = 5, 1_000
"""Different messages that a group lists, and that it counts: a program may invent any number."""

GROUPS_LISTED = 50
"""Types that get a group; the names come from the program, which may invent any number."""

OTHER_TYPES = "(other types)"
LONGEST_TYPE = 200
LONGEST_MESSAGE = 200
"""Characters by which messages are compared."""

LONGEST_TEXT = 20_000
"""Characters of a message, a traceback or a log that are kept."""


def failed_examples(
    store: Store,
    run_id: str,
    on_failure: Callable[[Entry], None] = lambda _entry: None,
) -> FailedExamples | None:
    """Return the failed examples of every process of the run; None if none failed.

    Only the responses of failed examples are read, page by page. A fork has no attempts for the entries it starts with:
    all of those are read. `on_failure`: called with the entry of each failed example.
    """
    found: dict[tuple[str, str], _FailureCount] = {}
    rows: dict[str, str] = {}
    candidates: dict[str, str] = {}
    inherited = store.run(run_id).inherited
    evaluated = sum(
        spent.examples for spent in store.spending(run_id) if spent.kind == EVALUATE and spent.outcome in ANSWERED
    )
    for entry in _entries_with_failures(store, run_id, inherited):
        if entry.kind != EVALUATE:
            continue
        evaluated += entry.part == SEARCH and entry.number < inherited
        result = orjson.loads(entry.answer)
        if result["status"] not in FAILED:
            continue
        on_failure(entry)
        rows = rows or row_names(store, run_id)
        candidates = candidates or _candidate_names(store, run_id)
        error = result.get("error") or {}
        status, kind = result["status"], str(error.get("type") or result["status"])[:LONGEST_TYPE]
        if (status, kind) not in found and len(found) >= GROUPS_LISTED:
            kind = OTHER_TYPES
        row = rows.get(entry.row, entry.about[:LONGEST_TYPE])
        candidate = candidates.get(entry.candidate, entry.candidate[:SHOWN] or "?")
        group = found.setdefault((status, kind), _FailureCount(kind, status, error, row, candidate))
        group.add(row, candidate, str(error.get("message", "")))
    if not found:
        return None
    groups = sorted((group.shown() for group in found.values()), key=lambda group: -group.count)
    return FailedExamples(failed=sum(group.count for group in groups), evaluated=evaluated, groups=groups)


@dataclass
class _FailureCount:
    type: str
    status: str
    error: dict[str, Any]
    row: str
    candidate: str
    count: int = 0
    rows: dict[str, None] = field(default_factory=dict)
    candidates: dict[str, int] = field(default_factory=dict)
    messages: Counter[str] = field(default_factory=Counter)

    def add(self, row: str, candidate: str, message: str) -> None:
        self.count += 1
        self.rows[row] = None
        self.candidates[candidate] = self.candidates.get(candidate, 0) + 1
        beginning = message[:LONGEST_MESSAGE]
        if beginning in self.messages or len(self.messages) < MESSAGES_COUNTED:
            self.messages[beginning] += 1

    def shown(self) -> FailureGroup:
        traceback, log = self.error.get("traceback"), self.error.get("log")
        return FailureGroup(
            type=self.type,
            status=self.status,
            count=self.count,
            rows=list(self.rows)[:ROWS_LISTED],
            row_count=len(self.rows),
            candidates=self.candidates,
            messages=dict(self.messages.most_common(MESSAGES_LISTED)),
            message_count=len(self.messages),
            message=str(self.error.get("message", ""))[:LONGEST_TEXT],
            traceback=str(traceback)[-LONGEST_TEXT:] if traceback else None,
            log=str(log)[-LONGEST_TEXT:] if log else None,
            row=self.row,
            candidate=self.candidate,
        )


def _entries_with_failures(store: Store, run_id: str, inherited: int) -> Iterator[Entry]:
    """Entries among which are all failed examples, each once, by part and number."""
    yield from entries(store, run_id, SEARCH, 0, inherited)
    alone: dict[str, list[int]] = {}
    batches: dict[str, list[tuple[int, int]]] = {}
    for made in store.unsuccessful_attempts(run_id):
        if made.examples > 1:  # the attempt of a batch counts for one of its examples, which may be any of them
            around = made.number - made.examples + 1, made.number + made.examples
            batches.setdefault(made.part, []).append(around)
        elif made.outcome in (None, *FAILED):
            alone.setdefault(made.part, []).append(made.number)
    for part in sorted(alone.keys() | batches.keys()):
        begin = done = inherited if part == SEARCH else 0
        read: set[int] = set()
        for first, end in sorted(batches.get(part, [])):
            for entry in entries(store, run_id, part, max(first, done), end):
                done = entry.number + 1
                read.add(entry.number)
                yield entry
        own = sorted({number for number in alone.get(part, []) if number >= begin} - read)
        for start in range(0, len(own), PAGE):
            yield from store.entries_at(run_id, part, own[start : start + PAGE])


def _candidate_names(store: Store, run_id: str) -> dict[str, str]:
    """Return the indices of the candidates of the pool by the digests of their texts, of equal ones the first."""
    return {digest_of(kept.texts): str(kept.index) for kept in reversed(store.candidates(run_id))}


def retried_examples(store: Store, run_id: str) -> RetriedExamples | None:
    """Return how many examples were tried again, over every process of the run; None if none was."""
    found: Counter[tuple[str | None, str]] = Counter()
    examples: set[tuple[str, int, int]] = set()
    for made in store.unsuccessful_attempts(run_id):
        for each in made.failed:
            found[each.host, each.reason] += 1
            examples.add((made.part, made.number, each.at))
    if not found:
        return None
    groups = [RetryGroup(host=host, reason=reason, failures=times) for (host, reason), times in found.items()]
    return RetriedExamples(
        examples=len(examples),
        groups=sorted(groups, key=lambda group: (-group.failures, group.host or "", group.reason)),
    )
