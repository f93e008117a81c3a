"""What all kinds of work have in their process: settings, what the program saved, the end by an error."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import ClaimLost, ClientError, ConnectionLost, StoreUnavailable, summary
from gepa_client.sandboxing.session import SessionNotStarted
from gepa_client.sandboxing.session_interface import LABEL_LENGTH, RUN_LABEL
from gepa_client.settings.run_config import RunConfig
from gepa_service.jobs.http_front import HttpFront, fronted
from gepa_service.jobs.messages import Ended, WorkOrder, failed
from gepa_service.model.program_version import PROGRAM_JSON
from protocol.errors import RpcError
from sandbox_runtime import SandboxError
from sandbox_runtime.backends import open_runtime

LARGEST_SAVED = 4 << 20
"""Bytes of a file in which a program saved itself; a larger one is left out."""

STOPPED = Ended(status="interrupted", reason="stopped")
ENDING = (SessionNotStarted, SandboxError, SettingsError, ClientError, RpcError, OSError)
"""Errors that work may end by."""


@contextlib.contextmanager
def work_settings(
    order: WorkOrder, settings_for: Callable[[Mapping[str, Any]], RunConfig]
) -> Iterator[tuple[RunConfig, HttpFront | None]]:
    """Open the front of work at Modal for the block; yield the settings of the work, and the front.

    `settings_for`: returns the settings, given those by which sandboxes at Modal reach the gateway.

    Raises:
        SettingsError: the settings do not fit the backend. SandboxError: the front's port is taken.
    """
    with fronted(order.front) as (gateway, front):
        try:
            settings = settings_for(gateway)
        except ValidationError as error:
            raise SettingsError(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from error
        yield settings, front


async def end_earlier_attempts(run_id: str, settings: RunConfig) -> None:
    """End the sandboxes that earlier attempts of a work left at Modal. Raises `SandboxError`."""
    async with open_runtime(settings.sandbox, app_name=settings.modal_app) as runtime:
        await runtime.sweep({RUN_LABEL: run_id[:LABEL_LENGTH]}, orphans_only=False)


def saved_program(folder: Path) -> dict[str, Any] | None:
    """Return the object in `program.json` of a folder, else in its first JSON file that holds one; None without one."""
    for file in sorted(folder.rglob("*.json"), key=lambda file: (file.name != PROGRAM_JSON, file)):
        with contextlib.suppress(ValueError, OSError, RecursionError):
            if file.stat().st_size <= LARGEST_SAVED and isinstance(read := json.loads(file.read_bytes()), dict):
                return read
    return None


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
