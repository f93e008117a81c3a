"""What an attempt keeps beside the record of its work, for every kind of work."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evolverpc_common.redaction import Secrets
from gepa_service.jobs.work_order import Ended, Message, Order
from gepa_service.model.work import Status, Work


class ResultsUnread(Exception):
    """What the process has made cannot be read now; another attempt may."""


class Kept(ABC):
    """One for each attempt. All methods may raise `RecordsUnavailable`.

    `longest_s`: after how many seconds the process is ended.
    """

    longest_s: float = math.inf

    @property
    @abstractmethod
    def is_further(self) -> bool:
        """Whether the work got further in this attempt."""

    @abstractmethod
    def order(self, folder: Path, settings: dict[str, Any], common: dict[str, Any]) -> Order:
        """Return what the process does. `common`: fields of every kind of order."""

    @abstractmethod
    def changes(self, found: Work, status: Status) -> dict[str, Any]:
        """Return how far the work is, as changes of its record, which has this status from now on."""

    @abstractmethod
    def ended(self, ended: Ended, secrets: Secrets, log: Callable[[str], None]) -> dict[str, Any]:
        """Return the end of completed or failed work, as changes of its record. Raises `ResultsUnread`."""

    def keep(self) -> None:  # noqa: B027  batches and steps need nothing
        """Renew what the process needs; called all the time."""

    def take(self, message: Message) -> None:  # noqa: B027  an optimization keeps its own record
        """Keep what the process reports."""

    def close(self) -> None:  # noqa: B027  batches and steps get nothing
        """Take back what the process was given."""
