"""Read what users asked of a run, with the outcomes that `evolverpc steer list` prints."""

from typing import Any

from gepa_client.analysis.proposals import RecordedProposals
from gepa_client.analysis.steered import TextsOutcome, taken_text, texts_outcomes
from gepa_client.journal.entries import CONTROL, SEARCH, SteeringRequest, StoredRun
from gepa_client.journal.steer_entries import SteerEntry, action_of
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import OVER
from gepa_client.page.event_log import EventLog
from gepa_client.page.moment_events import Steer
from gepa_client.page.page_fact import TEXT_BEGINNING

DETAILS = 20
"""Texts of a proposal by hand that its event names."""


class RequestReader:
    """The requests to one run. `proposals`: those that are read."""

    def __init__(self, store: Store, run_id: str, log: EventLog, proposals: RecordedProposals) -> None:
        self._store, self._id, self._log, self._proposals = store, run_id, log, proposals

    def read(self, run: StoredRun) -> None:
        """Add the requests, with the outcomes of their texts."""
        requests = self._store.requests(self._id)
        taken = (
            SteerEntry(id=each.id, action=action_of(each.action), author=each.author, created=each.created)
            for each in requests
            if each.outcome == "taken"
        )
        outcomes = texts_outcomes(taken, self._proposals.found.values(), over=run.status in OVER)
        for asked in requests:
            part = CONTROL if asked.action.get("kind") in ("pause", "cancel") else SEARCH
            self._log.add(
                Steer(
                    key=asked.id,
                    at=None if asked.number is None or part == CONTROL else asked.number + 1,
                    action=str(asked.action.get("kind")),
                    requested=asked.created,
                    by=asked.author,
                    detail={name: _bounded(value) for name, value in asked.action.items()},
                    outcome=_outcome(asked, part, outcomes.get(asked.id)),
                )
            )


def _outcome(asked: SteeringRequest, part: str, texts: TextsOutcome | None) -> str | None:
    if asked.outcome == "taken" and asked.number is not None:
        return taken_text(part, asked.number, texts)
    return asked.outcome if asked.reason is None else f"{asked.outcome}: {asked.reason}"


def _bounded(value: Any) -> Any:
    """Return a member of an action with the beginnings of its texts: a text by hand has up to a million characters."""
    if isinstance(value, dict):
        return {name: _bounded(part) for name, part in list(value.items())[:DETAILS]}
    if isinstance(value, str) and len(value) > TEXT_BEGINNING:
        return f"{value[:TEXT_BEGINNING]} [{len(value) - TEXT_BEGINNING:,} more characters]"
    return value
