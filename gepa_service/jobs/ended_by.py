"""Carry out an order in its process, and state how that ended."""

from collections.abc import Callable

from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import ClaimLost, ClientError, ConnectionLost, StoreUnavailable, summary
from gepa_client.sandboxing.session import SessionNotStarted, signals_interrupt
from gepa_service.jobs.job_sandboxes import SettingNotTaken
from gepa_service.jobs.work_order import Ended, Message, OptimizeOrder, Order, failed
from protocol.errors import RpcError
from sandbox_runtime import SandboxError


def carry_out(order: Order, report: Callable[[Message], None]) -> Ended:
    """Do the work to its end, or until it is stopped, and return how it ended. `report`: sends a message meanwhile."""
    try:
        with signals_interrupt():
            if isinstance(order, OptimizeOrder):
                from gepa_service.jobs.optimization import optimize

                return optimize(order)
            from gepa_service.jobs.program_work import work_on_program

            return work_on_program(order, report)
    except KeyboardInterrupt:
        return Ended(status="interrupted", reason="stopped")
    except SessionNotStarted as error:
        if error.was_interrupted:
            return Ended(status="interrupted", reason=str(error))
        return failed("sandbox", "\n".join([str(error), *_notes(error)]))
    except (StoreUnavailable, ClaimLost, SandboxError, ConnectionLost) as error:
        return Ended(status="interrupted", reason=str(error))
    except SettingNotTaken as error:
        return failed("settings", str(error))
    except (SettingsError, ClientError, RpcError, OSError) as error:
        return failed("run", "\n".join([summary(error), *_notes(error)]))


def _notes(error: BaseException) -> list[str]:
    """Return what was added to an error: the last lines that a batch or step printed."""
    return getattr(error, "__notes__", [])
