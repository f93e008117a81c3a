"""What the dispatcher needs of the place where attempts run: three methods."""

from collections.abc import Sequence
from typing import Protocol

from gepa_service.model.work import Work


class EngineUnavailable(Exception):
    """The engine cannot be reached now; trying later can help."""


class EngineRefused(EngineUnavailable):
    """The engine cannot be used as it is configured; the text has the reason, and what to do."""


class Engine(Protocol):
    """Runs attempts. One is known by its work's id and `attempts`, also to a dispatcher that has not started it.

    It may be late, or wrong, about an attempt: each write compares `attempts`, so that one that is thought dead writes
    nothing once the next one is placed. All methods return within seconds, and may raise `EngineUnavailable`.
    """

    def start(self, work: Work) -> str | None:
        """Start the attempt `work.attempts`; return what its record keeps as `call`, if the engine needs it."""

    def stop(self, work: Work) -> None:
        """Have an attempt stop and hand its work back, if it still runs."""

    def ended(self, running: Sequence[Work]) -> list[Work]:
        """Return those of these attempts that do not run: they ended in any way, or are not known."""
