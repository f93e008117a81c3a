"""Read what users asked of a run, with the outcomes that `evolverpc steer list` prints."""

from collections.abc import Sequence
from typing import Any

from gepa_client.analysis.steered import TakenRequest, TextsOutcome, taken_text, texts_outcomes
from gepa_client.journal.entries import CONTROL, SEARCH, CandidateRecord, SteeringRequest, StoredRun
from gepa_client.journal.history import entries_at
from gepa_client.journal.steer_entries import SteerEntry
from gepa_client.journal.store import Store
from gepa_client.page.entry_reader import EntryReader
from gepa_client.page.event_log import EventLog
from gepa_client.page.moment_events import Steer
from gepa_client.page.page_fact import TEXT_BEGINNING

DETAILS = 20
"""Texts of a proposal by hand that its event names."""


class RequestReader:
    """The requests to one run."""

    def __init__(self, store: Store, run_id: str, log: EventLog) -> None:
        self._store, self._id, self._log = store, run_id, log
        self._outcomes: dict[str, TextsOutcome] = {}
        self._seen: tuple[str, int] | None = None
        self._progress = (0, 0)

    def read(self) -> None:
        """Add the requests, with the outcomes of their texts that are known."""
        for asked in self._store.requests(self._id):
            part = CONTROL if asked.action.get("kind") in ("pause", "cancel") else SEARCH
            self._log.add(
                Steer(
                    key=asked.id,
                    at=None if asked.number is None or part == CONTROL else asked.number + 1,
                    action=str(asked.action.get("kind")),
                    requested=asked.created,
                    by=asked.author,
                    detail={name: _bounded(value) for name, value in asked.action.items()},
                    outcome=self._outcome(asked, part),
                )
            )

    def read_outcomes(self, run: StoredRun, read: EntryReader, candidates: Sequence[CandidateRecord]) -> None:
        """Find the outcomes of texts that users proposed, while some have none and there is more to find them in."""
        now = (run.status, len(read.steered))
        undecided = any(each.outcome in ("pending", "unfinished") for each in self._outcomes.values())
        progress = (read.ordered, len(candidates)) if undecided else self._progress
        if not read.steered or (now, progress) == (self._seen, self._progress):
            return
        self._seen, self._progress = now, (read.ordered, len(candidates))
        taken = [
            TakenRequest(SEARCH, entry.number, SteerEntry.model_validate_json(entry.answer))
            for entry in entries_at(self._store, self._id, SEARCH, read.steered)
        ]
        self._outcomes = texts_outcomes(self._store, run, taken, candidates)
        self.read()

    def _outcome(self, asked: SteeringRequest, part: str) -> str | None:
        if asked.outcome == "taken" and asked.number is not None:
            return taken_text(part, asked.number, self._outcomes.get(asked.id))
        return asked.outcome if asked.reason is None else f"{asked.outcome}: {asked.reason}"


def _bounded(value: Any) -> Any:
    """Return a member of an action with the beginnings of its texts: a text by hand has up to a million characters."""
    if isinstance(value, dict):
        return {name: _bounded(part) for name, part in list(value.items())[:DETAILS]}
    if isinstance(value, str) and len(value) > TEXT_BEGINNING:
        return f"{value[:TEXT_BEGINNING]} [{len(value) - TEXT_BEGINNING:,} more characters]"
    return value
