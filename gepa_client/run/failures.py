"""How failures end a run: the status and reason by an error, and GEPA callbacks that notice what fails in silence."""

import errno
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gepa.core.callbacks import (
    ErrorEvent,
    IterationEndEvent,
    IterationStartEvent,
    MergeAttemptedEvent,
    ProposalEndEvent,
    ValsetEvaluatedEvent,
)

from evolverpc_common.display_text import counted, one_line, plain
from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import (
    ClaimLost,
    ClientError,
    ConnectionLost,
    Interrupted,
    RecordedFailure,
    RunBusy,
    StoreUnavailable,
    details,
    summary,
)
from gepa_client.gepa.hooks import Failure, Failures
from gepa_client.gepa.reflection_strategies import WHERE as REFLECTION
from gepa_client.journal.entries import COMPARE, COMPLETION, EVALUATE, MODEL_CALL, MUTATION, PROBE, RETRACE, SCORE
from gepa_client.journal.journal import Journal
from gepa_client.journal.run_events import Emit, Finished, Status, StepFailed, Warned
from gepa_client.settings.run_config import RunConfig
from protocol.errors import ProgramFailed, RpcError

DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG})
"""The errors of the disk among all `OSError`s, which include lost connections and time-outs."""


def stop_for(error: Exception, what: str = "") -> Interrupted:
    """Return how an error ends a run. `what`: the failed step.

    The run is paused if the store was lost, or if free disk space helps; else it has failed.
    """
    if isinstance(error, StoreUnavailable | ClaimLost):
        return Interrupted("paused", stop_reason(error), infrastructure=True)
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        return Interrupted("paused", f"a file of the run cannot be written: {summary(error)}; make room, then resume")
    return Interrupted("failed", f"{what} failed: {stop_reason(error)}" if what else stop_reason(error))


def stop_reason(error: BaseException) -> str:
    """Return why the error ended the run, as one sentence."""
    if isinstance(error, SettingsError):
        return str(error)
    if isinstance(error, Interrupted):
        return error.reason
    if isinstance(error, ValueError) and "Total of weights must be greater than zero" in str(error):
        return no_merge("a common ancestor of two candidates scores 0 or less")
    return summary(error)


def error_details(error: BaseException) -> str | None:
    """Return the server's own text, or the traceback of an unexpected error; None for errors of settings and calls."""
    return None if isinstance(error, SettingsError | ClientError) else details(error) or None


def no_merge(why: str) -> str:
    """Return the sentence about a run that `use_merge` cannot continue."""
    return (
        f"use_merge cannot be used here: {why}, and GEPA 0.1.4 fails when it draws a common ancestor among candidates "
        "that score 0 or less. Leave use_merge off, or start from a seed that scores above 0"
    )


def finished_by(error: BaseException) -> Finished:
    """Return the last event of a run that the error ended before or after its search.

    An error of settings or calls pauses the run if a later attempt can succeed, else it refuses the run; if the program
    itself failed, the run has failed.
    """
    if isinstance(error, Interrupted):
        return Finished(status=error.status, reason=error.reason, infrastructure=error.infrastructure, metric_calls=0)
    if isinstance(error, OSError):
        stop = stop_for(error)
        more = details(error) if stop.status == "failed" else None
        return Finished(status=stop.status, reason=stop.reason, details=more, metric_calls=0)
    if isinstance(error, ProgramFailed):
        return Finished(status="failed", reason=stop_reason(error), details=error_details(error), metric_calls=0)
    later = isinstance(error, ConnectionLost | StoreUnavailable) or (isinstance(error, RpcError) and error.retryable)
    lost = isinstance(error, ConnectionLost | StoreUnavailable | ClaimLost | RunBusy)
    status: Status = "paused" if later else "refused"
    return Finished(status=status, reason=stop_reason(error), infrastructure=lost, metric_calls=0)


logger = logging.getLogger(__name__)

WORK = {
    EVALUATE: "the program's examples",
    SCORE: "scores made elsewhere",
    RETRACE: "examples traced again",
    PROBE: "examples run again to see whether a host answers",
    COMPARE: "examples by which servers are compared",
    MUTATION: "changes of code",
    MODEL_CALL: "models that programs call",
}
"""Names of the kinds of attempts."""

MOST_FAILED = 5
"""Failed iterations in a row after which a run fails."""

MOST_LOST = 3
"""Iterations in a row without a connection to the reflection model after which the run pauses."""


@dataclass
class FailureGuard:
    """Report what GEPA swallows, and stop the run after `MOST_FAILED` failed iterations in a row.

    It pauses after `MOST_LOST` in a row in which the reflection model could not be reached; those do not count.

    An iteration has failed if something in it failed and it proposed nothing. One with nothing to do (all scores
    perfect) neither counts nor resets the count. `failures`: the causes that adapter and reflection record.
    `is_hopeless`: whether every iteration would meet this error of reflection again; one such error ends the run.

    Raises `Interrupted("failed")` or `("paused")` from `on_iteration_end`, with a cause of the row in its reason.
    """

    failures: Failures
    emit: Emit
    is_hopeless: Callable[[Exception], bool] | None = None

    def __post_init__(self) -> None:
        self._raised = self._proposed = False
        self._in_a_row = self._lost = 0
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
        self.failures.record("iteration", event["exception"])

    @property
    def cause(self) -> StepFailed | None:
        """The first failure of the present row."""
        return self._first if self._in_a_row else None

    def on_iteration_end(self, event: IterationEndEvent) -> None:
        """Report failures, and stop the run if there were too many; GEPA ends an interrupted iteration likewise."""
        if isinstance(sys.exception(), Interrupted):
            return  # a resumed run repeats the iteration, and may end it otherwise
        taken = self.failures.take()
        for swallowed in taken:
            # GEPA continued after a recorded failure
            is_new = swallowed.where == REFLECTION and not isinstance(swallowed.error, RecordedFailure)
            if is_new and self.is_hopeless is not None and self.is_hopeless(swallowed.error):
                logger.error("%s", plain(details(swallowed.error)))
                raise Interrupted("failed", one_line(str(swallowed)))
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
            known = "\n".join(filter(None, (failure.message, failure.details)))
            logger.error("iteration %d, %s: %s", failure.iteration, failure.step, plain(known))
            self.emit(failure)
        if self._proposed and not self._raised:
            self._in_a_row = self._lost = 0
        elif taken and all(map(_is_lost, taken)):
            # one that is replayed was counted before
            self._lost += any(isinstance(failure.error, ConnectionLost) for failure in taken)
            if self._lost >= MOST_LOST:
                raise Interrupted(
                    "paused",
                    f"no connection to the reflection model in {counted(self._lost, 'iteration')} in a row: "
                    f"{summary(taken[0].error)}",
                )
        elif fresh:
            self._in_a_row, self._lost = self._in_a_row + 1, 0
            if self._in_a_row == 1:
                self._first = fresh[0]
        first = self.cause
        if first is not None and self._in_a_row >= MOST_FAILED:
            raise Interrupted(
                "failed",
                f"{self._in_a_row} iterations in a row failed; the first, at {first.step} in iteration "
                f"{first.iteration}: {first.message}",
            )


def _is_lost(failure: Failure) -> bool:
    """Whether the reflection model could not be reached, now or when a replayed failure was recorded."""
    error = failure.error
    return failure.where == REFLECTION and (
        isinstance(error, ConnectionLost)
        or (isinstance(error, RecordedFailure) and str(error).startswith(f"{ConnectionLost.__name__}: "))
    )


@dataclass
class RunWarnings:
    """Warn of a run whose limit cannot hold, or whose scorer is not needed; of each once.

    Work without a price never reaches a limit of money: each kind of it is a warning of its own. If nothing else ends
    the run it raises `Interrupted("failed")`, and `lacks_limit` is True: a limit of another kind would let the run
    continue.
    """

    config: RunConfig
    journal: Journal
    emit: Emit
    lacks_limit: bool = False

    def __post_init__(self) -> None:
        self._warned: set[str] = set()

    def on_iteration_end(self, _event: IterationEndEvent) -> None:
        """Check whether an attempt came without a price."""
        if self.config.max_cost_usd is None or self.journal.replaying:
            return
        for kind in self.journal.spending.unpriced:
            what = self.config.reflection_lm if kind == COMPLETION else WORK.get(kind, kind)
            of_a_model = kind in (COMPLETION, MODEL_CALL)
            remedy = "give its price in `model_prices`" if of_a_model else "have the server report `usage.cost_usd`"
            message = f"no price is known for {what}, so `max_cost_usd` cannot hold: {remedy}"
            if kind not in self._warned and self.config.ends_by_money_alone and self.journal.spending.cost_usd == 0:
                self.lacks_limit = True
                raise Interrupted("failed", f"{message}; nothing else ends this run: give `max_metric_calls`")
            self._warn(kind, message)

    def on_valset_evaluated(self, _event: ValsetEvaluatedEvent) -> None:
        """Check whether the scorer was asked when the validation rows of a candidate were scored."""
        if self.config.score_with and not self.journal.replaying and not self.journal.spending[SCORE].calls:
            self._warn(
                "scorer",
                f"the scorer {', '.join(self.config.score_with)} is never asked: the program scores its results "
                "itself; leave `score_with` out, or have the program leave its results unscored",
            )

    def _warn(self, of: str, message: str) -> None:
        if of not in self._warned:
            self._warned.add(of)
            self.emit(Warned(message=message))


class FailFastCallback:
    """Ends the run if a callback fails: GEPA would log the error once and continue without that callback."""

    def __init__(self, callback: object) -> None:
        self._callback = callback

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._callback, name)

        def called(event: Any) -> None:
            try:
                method(event)
            except Exception as error:
                raise stop_for(error, name) from error

        return called
