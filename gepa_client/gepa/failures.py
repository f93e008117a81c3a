"""Failures that GEPA swallows, kept for whoever must decide whether a run is worth going on with."""

import threading
from dataclasses import dataclass

from gepa_client.transport.error_format import summary


@dataclass(frozen=True)
class Failure:
    """`where`: the step that failed (`reflection`, `make_reflective_dataset`, ...); `error`: what it raised."""

    where: str
    error: Exception

    def __str__(self) -> str:
        return f"{self.where}: {summary(self.error)}"


class Failures:
    """Failures in the order they came, until somebody takes them; may be written from several threads.

    `first`: the first of all, None while nothing has failed; it stays when it is taken.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Failure] = []
        self.first: Failure | None = None

    def record(self, where: str, error: Exception) -> None:
        """Add one."""
        failure = Failure(where, error)
        with self._lock:
            self._waiting.append(failure)
            self.first = self.first or failure

    def take(self) -> list[Failure]:
        """Those recorded since the last time; each is taken once."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        return taken
