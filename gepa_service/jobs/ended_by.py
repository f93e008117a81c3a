"""How work ends by an error of its process."""

from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import ClaimLost, ClientError, ConnectionLost, StoreUnavailable, summary
from gepa_client.sandboxing.session import SessionNotStarted
from gepa_service.jobs.work_order import Ended, failed
from protocol.errors import RpcError
from sandbox_runtime import SandboxError

STOPPED = Ended(status="interrupted", reason="stopped")

ENDING = (SessionNotStarted, SandboxError, SettingsError, ClientError, RpcError, OSError)
"""Errors that work may end by."""


def ended_by(error: Exception) -> Ended:
    """Return how work ends by one of `ENDING`; its notes, the last lines that were printed, are part of the reason."""
    match error:
        case SessionNotStarted(was_interrupted=True):
            return Ended(status="interrupted", reason=str(error))
        case StoreUnavailable() | ClaimLost() | SandboxError() | ConnectionLost():
            return Ended(status="interrupted", reason=str(error))
        case SessionNotStarted():
            return failed("sandbox", "\n".join([str(error), *_notes(error)]))
        case _:
            return failed("run", "\n".join([summary(error), *_notes(error)]))


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])
