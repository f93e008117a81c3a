"""Ends a run whose iterations keep failing: GEPA alone would go on, or finish, with every proposal lost in silence."""

import logging
from collections.abc import Callable
from typing import Protocol

from gepa.core.callbacks import (
    ErrorEvent,
    IterationEndEvent,
    IterationStartEvent,
    MergeAttemptedEvent,
    ProposalEndEvent,
)

from gepa_client.causes import details, summary
from gepa_client.errors import Interrupted
from gepa_client.failures import Failures
from gepa_client.reflection import WHERE as REFLECTION
from gepa_client.run.events import Emit, StepFailed, Warned
from gepa_client.text import line, plain

logger = logging.getLogger(__name__)


class FailureGuard:
    """A GEPA callback that reports what GEPA swallows and stops the run after `limit` failed iterations in a row.

    An iteration has failed when something in it failed and no proposal came of it. One that merely had nothing to do
    (all scores perfect) neither counts nor clears the count. `failures` is where adapter and reflection record causes.
    `is_hopeless` tells errors of reflection that every iteration would meet again: one is enough to end the run.

    Raises `Interrupted("failed")` from `on_iteration_end`, with the first cause of the row in its reason.
    """

    def __init__(
        self, failures: Failures, limit: int, emit: Emit, is_hopeless: Callable[[Exception], bool] | None = None
    ) -> None:
        self._failures = failures
        self._limit = limit
        self._emit = emit
        self._is_hopeless = is_hopeless
        self._raised = False
        self._proposed = False
        self._in_a_row = 0
        self._first: StepFailed | None = None

    def on_iteration_start(self, _event: IterationStartEvent) -> None:
        """A clean slate for the iteration, not for the row."""
        self._raised = self._proposed = False

    def on_proposal_end(self, _event: ProposalEndEvent) -> None:
        """Reflection gave new texts."""
        self._proposed = True

    def on_merge_attempted(self, _event: MergeAttemptedEvent) -> None:
        """A merge is a proposal too."""
        self._proposed = True

    def on_error(self, event: ErrorEvent) -> None:
        """An exception ended the iteration, whatever it had proposed."""
        self._raised = True
        self._failures.record("iteration", event["exception"])

    @property
    def cause(self) -> StepFailed | None:
        """The first failure of the present row, in full."""
        return self._first if self._in_a_row else None

    def on_iteration_end(self, event: IterationEndEvent) -> None:
        """Report what failed, and judge."""
        taken = self._failures.take()
        for swallowed in taken:
            if swallowed.where == REFLECTION and self._is_hopeless is not None and self._is_hopeless(swallowed.error):
                logger.error("%s", plain(details(swallowed.error)))
                raise Interrupted("failed", line(str(swallowed)))
        fresh = [
            StepFailed(
                iteration=event["iteration"],
                step=failure.where,
                message=summary(failure.error),
                details=details(failure.error),
            )
            for failure in taken
        ]
        for failure in fresh:
            self._emit(failure)
        if self._proposed and not self._raised:
            self._in_a_row = 0
        elif fresh:
            self._in_a_row += 1
            if self._in_a_row == 1:
                self._first = fresh[0]
        first = self.cause
        if first is not None and self._in_a_row >= self._limit:
            raise Interrupted(
                "failed",
                f"{self._in_a_row} iterations in a row failed; the first, at {first.step} in iteration "
                f"{first.iteration}: {first.message}",
            )


class Priced(Protocol):
    """A model that counts the answers it knows no price of."""

    @property
    def name(self) -> str:
        """As the user wrote it."""
        ...

    @property
    def unpriced_calls(self) -> int:
        """Answers whose cost is not known."""
        ...


class PriceGuard:
    """A GEPA callback for runs limited by `max_reflection_cost`: a model without a price never reaches the limit.

    Warns once; where nothing else ends the run (`only_limit`) it raises `Interrupted("failed")`.
    """

    def __init__(self, model: Priced, emit: Emit, *, only_limit: bool) -> None:
        self._model = model
        self._emit = emit
        self._only_limit = only_limit
        self._told = False

    def on_iteration_end(self, _event: IterationEndEvent) -> None:
        """Look whether an answer came without a price."""
        if self._told or not self._model.unpriced_calls:
            return
        self._told = True
        message = f"no price is known for {self._model.name}, so max_reflection_cost cannot hold"
        if self._only_limit:
            raise Interrupted("failed", f"{message}, and nothing else ends this run: give max_metric_calls")
        self._emit(Warned(message=message))
