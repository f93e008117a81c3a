"""Hooks into GEPA: which of its evaluations need traces, and the failures that it swallows."""

import threading
from dataclasses import dataclass
from typing import Any

from gepa_client.errors import summary


@dataclass(frozen=True)
class Failure:
    """A swallowed failure. `where`: the step (`reflection`, `make_reflective_dataset`, ...); `error`: its exception."""

    where: str
    error: Exception

    def __str__(self) -> str:
        return f"{self.where}: {summary(self.error)}"


class Failures:
    """Failures in order of arrival, until they are taken; may be written from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Failure] = []

    def record(self, where: str, error: Exception) -> None:
        """Add a failure."""
        with self._lock:
            self._waiting.append(Failure(where, error))

    def take(self) -> list[Failure]:
        """Return the failures recorded since the last call; each is returned once."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        return taken


class TracePolicy:
    """A GEPA callback: with it installed, the adapter traces parents' minibatches and nothing else.

    GEPA has children traced as parents are, and 0.1.4 full validation too, and does not read these traces. But only
    candidates already in the pool, whose traces it reads, are announced with a `candidate_idx`.
    """

    def __init__(self) -> None:
        self.reset()

    def on_optimization_start(self, event: Any) -> None:  # noqa: ARG002 - GEPA's signature
        """Expect announcements from here on."""
        self._installed, self._parents_next = True, False

    def on_evaluation_start(self, event: Any) -> None:
        """Note whether the evaluation that follows is of parents."""
        self._parents_next = event["candidate_idx"] is not None

    def on_optimization_end(self, event: Any) -> None:  # noqa: ARG002 - GEPA's signature
        """Forget the run."""
        self.reset()

    def reset(self) -> None:
        """Forget the run; GEPA announces no end of an interrupted one."""
        self._installed, self._parents_next = False, False

    def wanted(self) -> bool:
        """Whether the evaluation about to start needs traces; call it once for each."""
        if not self._installed:
            return True
        parents, self._parents_next = self._parents_next, False
        return parents
