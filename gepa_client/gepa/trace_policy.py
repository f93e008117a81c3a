"""Which of GEPA's evaluations are of parents, the only ones whose trajectories it ever reads."""

from typing import Any


class TraceParents:
    """A GEPA callback. Where it is installed, the adapter traces parents' minibatches and nothing else.

    GEPA's `batch_evaluate` does not say whether traces are wanted, and serves parents, children and full validation
    alike. But only evaluations of a candidate already in the pool are announced with a `candidate_idx`.
    """

    def __init__(self) -> None:
        self._installed = False
        self._parents_next = False

    def on_optimization_start(self, event: Any) -> None:  # noqa: ARG002 - GEPA's signature
        """From here on announcements are to be expected."""
        self._installed = True
        self._parents_next = False

    def on_evaluation_start(self, event: Any) -> None:
        """Note whether the evaluation that follows is of parents."""
        self._parents_next = event["candidate_idx"] is not None

    def on_optimization_end(self, event: Any) -> None:  # noqa: ARG002 - GEPA's signature
        """The run is over."""
        self.reset()

    def reset(self) -> None:
        """Forget the run; an interrupted one has no end of its own."""
        self._installed = False
        self._parents_next = False

    def wanted(self) -> bool:
        """Whether the evaluation about to start must be traced; to be asked once for each."""
        if not self._installed:
            return True
        parents, self._parents_next = self._parents_next, False
        return parents
