"""What the service keeps beside the record of its work, for every kind of work."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from evolverpc_common.redaction import Secrets
from gepa_service.jobs.work_order import Ended, Message
from gepa_service.model.work import Status, Work


class NotEnded(Exception):
    """The end of the work cannot be recorded by this attempt, for the reason in the text; another one may."""


class Kept(ABC):
    """One for each attempt, or several: what counts is in the records. All methods may raise `RecordsUnavailable`."""

    @abstractmethod
    def begin(self) -> frozenset[int]:
        """Make ready for the attempt; return the tasks that have a result."""

    @abstractmethod
    def is_further(self, found: Work) -> bool:
        """Whether the work is further than its record states."""

    @abstractmethod
    def changes(self, found: Work, status: Status) -> dict[str, Any]:
        """Return how far the work is, as changes of its record, which has this status from now on."""

    @abstractmethod
    def ended(self, ended: Ended, secrets: Secrets, log: Callable[[str], None]) -> dict[str, Any]:
        """Return the end of completed or failed work, as changes of its record. Raises `NotEnded`."""

    def count(self) -> None:  # noqa: B027  a batch or step reports what it spends
        """Count what the work has spent until now, as far as it can be read."""

    def take(self, message: Message) -> None:  # noqa: B027  an optimization keeps its own record
        """Keep what the process reports; nothing again that was kept before."""
