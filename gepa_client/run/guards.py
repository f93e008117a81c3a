"""GEPA callbacks that end or warn about a run in which work fails in silence, has no price, or needs no scorer."""

import logging
from collections.abc import Callable

from gepa.core.callbacks import (
    ErrorEvent,
    IterationEndEvent,
    IterationStartEvent,
    MergeAttemptedEvent,
    ProposalEndEvent,
    ValsetEvaluatedEvent,
)

from evolverpc_common.display_text import line, plain
from gepa_client.errors import Interrupted, RecordedFailure, details, summary
from gepa_client.gepa.hooks import Failures
from gepa_client.gepa.reflection import WHERE as REFLECTION
from gepa_client.journal.entries import COMPLETION, EVALUATE, MODEL_CALL, MUTATION, RETRACE, SCORE
from gepa_client.journal.journal import Journal
from gepa_client.journal.run_events import Emit, StepFailed, Warned
from gepa_client.settings.run_config import RunConfig

logger = logging.getLogger(__name__)

WORK = {
    EVALUATE: "the program's examples",
    SCORE: "scores made elsewhere",
    RETRACE: "examples traced again",
    MUTATION: "changes of code",
    MODEL_CALL: "models that programs call",
}
"""Names of the kinds of attempts."""


class FailureGuard:
    """Report what GEPA swallows, and stop the run after `limit` failed iterations in a row.

    An iteration has failed if something in it failed and it proposed nothing. One with nothing to do (all scores
    perfect) neither counts nor resets the count. `failures` is where adapter and reflection record causes.
    `is_hopeless`: whether every iteration would meet this error of reflection again; one such error ends the run.

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
        """Reset what concerns one iteration."""
        self._raised = self._proposed = False

    def on_proposal_end(self, _event: ProposalEndEvent | MergeAttemptedEvent) -> None:
        """Note that the iteration proposed texts or a merge."""
        self._proposed = True

    on_merge_attempted = on_proposal_end

    def on_error(self, event: ErrorEvent) -> None:
        """Note that an exception ended the iteration."""
        self._raised = True
        self._failures.record("iteration", event["exception"])

    @property
    def cause(self) -> StepFailed | None:
        """The first failure of the present row."""
        return self._first if self._in_a_row else None

    def on_iteration_end(self, event: IterationEndEvent) -> None:
        """Report failures, and stop the run if there were too many."""
        taken = self._failures.take()
        for swallowed in taken:
            if swallowed.where == REFLECTION and self._hopeless(swallowed.error):
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

    def _hopeless(self, error: Exception) -> bool:
        """Return whether to end the run now; a recorded failure does not count, as GEPA continued after it."""
        if self._is_hopeless is None or isinstance(error, RecordedFailure):
            return False
        return self._is_hopeless(error)


class PriceGuard:
    """Warn, in a run limited by money, about work without a price, which never reaches the limit.

    Warns once for each kind of work. If nothing else ends the run it raises `Interrupted("failed")`, and `lacks_limit`
    is True: a limit of another kind would let the run continue.
    """

    def __init__(self, config: RunConfig, journal: Journal, emit: Emit) -> None:
        self._limits = {
            "max_cost_usd": (config.max_cost_usd, None),
            "max_reflection_cost": (config.max_reflection_cost, COMPLETION),
        }
        self._journal = journal
        self._emit = emit
        self._only_limit = config.ends_by_money_alone
        self.lacks_limit = False
        self._model = config.reflection_lm
        self._warned: set[tuple[str, str]] = set()

    def on_iteration_end(self, _event: IterationEndEvent) -> None:
        """Check whether an attempt came without a price."""
        if self._journal.replaying:
            return
        for kind in self._journal.spending.unpriced:
            for name, (limit, only_kind) in self._limits.items():
                if limit is None or only_kind not in (None, kind) or (name, kind) in self._warned:
                    continue
                self._warned.add((name, kind))
                what = self._model if kind == COMPLETION else WORK.get(kind, kind)
                message = f"no price is known for {what}, so --{name.replace('_', '-')} cannot hold"
                if self._only_limit and self._journal.spending.cost_usd == 0:
                    self.lacks_limit = True
                    raise Interrupted("failed", f"{message}, and nothing else ends this run: give --max-metric-calls N")
                self._emit(Warned(message=message))


class ScorerGuard:
    """Warn once if a scorer is named but the program scores all its outputs itself."""

    def __init__(self, config: RunConfig, journal: Journal, emit: Emit) -> None:
        self._scorers = config.score_with
        self._journal = journal
        self._emit = emit

    def on_valset_evaluated(self, _event: ValsetEvaluatedEvent) -> None:
        """Check after the first candidate's validation rows are scored."""
        if not self._scorers or self._journal.replaying:
            return
        if not self._journal.spending[SCORE].calls:
            self._emit(
                Warned(
                    message=f"the scorer {', '.join(self._scorers)} is never asked: the program scores its results "
                    "itself; leave --score-with out, or have the program leave its results unscored"
                )
            )
        self._scorers = ()
