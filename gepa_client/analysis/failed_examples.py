"""The examples of a recorded run that failed in the program, by type, and those that were tried again, by host."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from gepa_client.analysis.proposals import ProposalHistory
from gepa_client.journal.entries import EVALUATE, ROLLOUT, SEARCH, CandidateRecord, Entry
from gepa_client.journal.history import RecordedRow, entries, selection_rows
from gepa_client.journal.requests import SHOWN, digest_of, evaluate_key, evaluated_of
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

_TEST_PART = re.compile(r"test-(\d+)(?:-repeat-\d+)?")


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
    names: EntryNames | None = None
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
        names = names or entry_names(store, run_id)
        error = result.get("error") or {}
        status, kind = result["status"], str(error.get("type") or result["status"])[:LONGEST_TYPE]
        if (status, kind) not in found and len(found) >= GROUPS_LISTED:
            kind = OTHER_TYPES
        row, candidate = names.row_and_candidate(entry)
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


def entry_names(store: Store, run_id: str) -> "EntryNames":
    """Return the names of what a run has evaluated by now."""
    run, candidates = store.run(run_id), store.candidates(run_id)
    proposed = ProposalHistory(store, run, candidates).digests()
    return EntryNames(candidates, selection_rows(store, run_id), proposed)


class EntryNames:
    """Finds the row and the candidate of an entry. `proposed`: digests of proposals, by their beginnings."""

    def __init__(
        self,
        candidates: Sequence[CandidateRecord],
        splits: Mapping[str, Sequence[RecordedRow]],
        proposed: Mapping[str, str],
    ) -> None:
        self._proposed = proposed
        self._candidates: dict[str, tuple[str, str]] = {}
        for kept in candidates:
            digest = digest_of(kept.texts)
            self._candidates.setdefault(digest[:SHOWN], (str(kept.index), digest))
        self._rows: dict[str, list[tuple[str, RecordedRow]]] = {}
        for split, rows in splits.items():
            for row in rows:
                self._rows.setdefault(repr(row.id), []).append((split, row))

    def row_and_candidate(self, entry: Entry) -> tuple[str, str]:
        """`("val 7", "2")`; a candidate that was not kept goes by the beginning of its digest."""
        read = evaluated_of(entry.about)
        if read is None:
            return entry.about[:LONGEST_TYPE], "?"
        quoted, short = read.quoted_id, read.candidate
        index, candidate = self._candidates.get(short, (short, self._proposed.get(short)))
        if (test := _TEST_PART.fullmatch(entry.part)) is not None:
            return f"test {quoted[1:-1]}", test[1]
        known = self._rows.get(quoted, [])
        if len(known) > 1 and candidate is not None:  # ids of two splits may be equal; requests are not
            same = [
                (split, row)
                for split, row in known
                if evaluate_key(candidate, digest_of(row.example), row.id, read.traced).digest == entry.digest
            ]
            known = same or known
        splits = " or ".join(split for split, _ in known)
        return f"{splits} {known[0][1].id if known else quoted[1:-1]}".strip(), index


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
