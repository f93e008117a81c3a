"""A run as the process that drove it knows it: no decision of GEPA has to be replayed to show it."""

from dataclasses import dataclass

from gepa_client.analysis.explanation import Explanation
from gepa_client.page.replay_follower import Decided
from gepa_client.report.record import RunRecord


@dataclass(frozen=True)
class KnownRun:
    """The record of an ended run with its certificate. `explained`: None if it holds no candidate."""

    record: RunRecord
    explained: Explanation | None


class RecordedDecisions:
    """The decisions of a record, with the interface of `ReplayFollower`."""

    def __init__(self, record: RunRecord) -> None:
        self._left = iter([event for event in record.decisions if event.at is not None])
        self.ended = False

    def next(self) -> Decided | None:
        """Return the next decision; None if there is none, after which `ended` is true."""
        event = next(self._left, None)
        self.ended = event is None
        return None if event is None else Decided(at=event.at or 0, event=event)

    def close(self) -> None:
        """Nothing to end."""
