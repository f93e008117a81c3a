"""How an error ends a run: its status, its reason and its details."""

import errno

from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import (
    ClaimLost,
    ClientError,
    ConnectionLost,
    Interrupted,
    RunBusy,
    StoreUnavailable,
    details,
    summary,
)
from gepa_client.journal.run_events import Finished, Status
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
